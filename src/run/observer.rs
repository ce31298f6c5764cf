//! The observer of a run: connected to the servers without a proxy, it writes what it saw into the history.

use std::net::SocketAddr;
use std::sync::Arc;

use harness_checkers::history::event::{Fields, Process};
use harness_checkers::history::{NemesisFact, ObserverFact};

use super::clients::holders::GrantId;
use super::context::RunContext;
use super::ground::ConnectObserver;
use crate::backends::observer::{ObservationLog, ObservationSink};
use crate::backends::owners::Contender;
use crate::clock::RunningTask;
use crate::cluster::EndpointsReceiver;

/// Connects and starts to observe, until the returned task is dropped; the error says why it cannot.
pub async fn start(
    observe: &ConnectObserver,
    endpoints: EndpointsReceiver,
    run: Arc<RunContext>,
) -> Result<RunningTask, String> {
    let observer = observe(endpoints, run.terms.keys.clone()).await?;
    let clock = run.clock.by;
    Ok(clock.spawn(observer.run(ObservationLog::new(run, clock))))
}

impl ObservationSink for RunContext {
    fn signal(&self, name: &'static str, fields: Fields<'_>, at: u64) {
        self.recorder.signal(Process::Server, None, name, fields, Some(at));
    }

    fn lost(&self, source: &str, heard: u64) {
        let watched = source.to_owned();
        let since_ns = Some(self.recorder.time_of(heard));
        let fact = NemesisFact::Observer(ObserverFact::Lost { watched, since_ns });
        self.recorder.nemesis(&fact);
    }

    fn back(&self, source: &str) {
        let watched = source.to_owned();
        let fact = NemesisFact::Observer(ObserverFact::Back { watched });
        self.recorder.nemesis(&fact);
    }

    fn released_at(&self, lock: &str, contender: &Contender) -> Option<u64> {
        let by_token = contender.token.map(GrantId::Token);
        let by_owner = contender.owner.clone().map(GrantId::Owner);
        // each is asked for, since asking forgets
        let asked: Vec<Option<u64>> = by_token
            .into_iter()
            .chain(by_owner)
            .map(|grant| self.holders.released_at(lock, &grant))
            .collect();
        asked.into_iter().flatten().max()
    }

    fn watches(&self, address: SocketAddr) {
        self.observed.send_replace(Some(address));
    }
}
