//! Stored data on servers ([`StoredData`]): the removal of all data from servers that a run started, and on attached servers a
//! survey before a run and the removal of that run's entries alone.

use std::net::SocketAddr;
use std::time::Duration;

use harness_workloads::KeyPattern;
use serde::{Deserialize, Serialize};

use crate::clock::GroundClock;
use crate::cluster::{BoxFuture, EndpointsReceiver, ServerAccess, first_answer};
use crate::limits::{PROBE, READY_POLL, SERVER_WORK};

/// The number of names that a survey lists.
const NAMED: usize = 5;

/// The data on the servers of one product.
pub trait StoredData: Sync {
    /// Removes all data from servers that harness started and that no client uses, before another run. The error is a sentence.
    fn wipe(&self, endpoints: EndpointsReceiver) -> BoxFuture<'static, Result<(), String>>;

    /// Surveys attached servers without a change. The error is a sentence with the reason for which clients with this lease
    /// cannot run there.
    fn survey(&self, endpoints: EndpointsReceiver, lease: Duration) -> BoxFuture<'static, Result<StoreSurvey, String>>;

    /// Removes a run's entries from attached servers; returns their number. The error is a sentence about possible leftovers.
    fn remove(&self, endpoints: EndpointsReceiver, traces: RunTraces) -> BoxFuture<'static, Result<u64, String>>;

    /// Whether it has a way to remove them.
    fn removes(&self) -> bool {
        true
    }
}

/// The survey of attached servers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreSurvey {
    /// Their entries, in words: `1234 keys`. `None` if they have none.
    pub holds: Option<String>,
    /// The entries at the top of the store, if it is a tree: entries of a run there are removed when they are empty.
    pub top: Vec<String>,
    /// The reason for which no observer can watch the locks without a change of the servers' settings.
    pub blind: Option<String>,
}

/// The entries of a run on attached servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunTraces {
    /// The mark in the name of every lock, and so of every entry of a client for one: `harness-1a2b3c4d-`.
    pub mark: String,
    /// The place of the locks.
    pub pattern: KeyPattern,
    /// [`StoreSurvey::top`], from before the run.
    pub top: Vec<String>,
}

impl RunTraces {
    /// Whether an entry of this name is the run's.
    pub fn made(&self, name: &[u8]) -> bool {
        name.windows(self.mark.len()).any(|part| part == self.mark.as_bytes())
    }
}

/// Executes `work` on one server, within `limit`. The error names the server.
pub async fn on_server<T>(
    server: SocketAddr,
    limit: Duration,
    work: impl Future<Output = Result<T, String>>,
) -> Result<T, String> {
    let done = GroundClock::Real.answer_within(limit, work).await;
    done.map_err(|error| format!("{server}: {error}"))
}

/// Executes `work` with patience: servers that have just lost their leader wait for the next one.
pub fn in_time<T: Send + 'static>(
    work: impl Future<Output = Result<T, String>> + Send + 'static,
) -> BoxFuture<'static, Result<T, String>> {
    Box::pin(GroundClock::Real.answer_within(SERVER_WORK, work))
}

/// Connects to the first server that answers. A silent one leaves most of the time to the others, and has more time in each later round,
/// since the machine may be busy.
pub async fn connect_to_any<T, F: Future<Output = Result<T, String>>>(
    servers: impl Fn() -> Vec<ServerAccess>,
    connect: impl Fn(ServerAccess) -> F,
) -> Result<T, String> {
    let begin = |server: ServerAccess| {
        let (address, connected) = (server.address, connect(server));
        async move { connected.await.map_err(|why| format!("{address}: {why}")) }
    };
    // the last reason for a failure is returned before the time of the work is over
    let last_round = GroundClock::Real.after(SERVER_WORK / 2);
    let mut limit = PROBE;
    loop {
        match first_answer(servers(), limit, begin).await {
            Err(_) if GroundClock::Real.now_ns() < last_round => GroundClock::Real.sleep(READY_POLL).await,
            outcome => return outcome,
        }
        limit = SERVER_WORK.min(2 * limit);
    }
}

/// Executes `work` on the first server, which is the only one of a run.
pub fn on_first<T: Send + 'static, F: Future<Output = Result<T, String>> + Send + 'static>(
    endpoints: &EndpointsReceiver,
    work: impl FnOnce(ServerAccess) -> F,
) -> BoxFuture<'static, Result<T, String>> {
    let server = endpoints.borrow().first();
    Box::pin(on_server(server.address, SERVER_WORK, work(server)))
}

/// Returns `3 nodes (kafka, solr, brokers)`.
pub fn named(names: &[String], what: &str) -> Option<String> {
    let first = names[..names.len().min(NAMED)].join(", ");
    let more = if names.len() > NAMED { ", …" } else { "" };
    counted(names.len() as u64, what).map(|count| format!("{count} ({first}{more})"))
}

/// Returns `3 keys`, or `None` for 0.
pub fn counted(count: u64, what: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {what}")),
        _ => Some(format!("{count} {what}s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_run_s_if_the_mark_is_in_its_name() {
        let traces = RunTraces {
            mark: "harness-1a2b3c4d-".into(),
            pattern: "my:{lock}".parse().unwrap(),
            top: Vec::new(),
        };
        assert!(traces.made(b"my:harness-1a2b3c4d-l0:token"));
        assert!(!traces.made(b"harness:l0"));
        assert!(!traces.made(b"my:harness-ffffffff-l0"), "another run's");
        assert!(!traces.made(b""));
    }

    #[test]
    fn what_servers_hold_is_said_by_its_first_names() {
        let names: Vec<String> = (1..=7).map(|number| format!("n{number}")).collect();
        assert_eq!(named(&names, "node").unwrap(), "7 nodes (n1, n2, n3, n4, n5, …)");
        assert_eq!(named(&names[..1], "node").unwrap(), "1 node (n1)");
        assert_eq!(named(&[], "node"), None);
    }
}
