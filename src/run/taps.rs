//! The notifications of taps in the history: each that passed a link as a signal of its client, and at the end the traffic of
//! each client's links.

use std::collections::BTreeMap;
use std::sync::Arc;

use harness_checkers::history::event::Fields;
use harness_checkers::history::{AskedAgain, ClientSession, MessageCounts, RequestCount, TapTotals};
use tokio::sync::mpsc;

use super::clients::logical_client::LogicalClient;
use super::clients::pool::ClientPool;
use crate::clock::RunningTask;
use crate::faults::Links;
use crate::run::context::RunContext;
use harness_proxy::TapNotification;

/// Records notifications until the returned task is dropped.
pub fn start(mut notices: mpsc::Receiver<TapNotification>, clients: &ClientPool, run: Arc<RunContext>) -> RunningTask {
    let config = &run.spec.config;
    let stored = config.lock_names().into_iter().map(|lock| config.attach.stored(&lock));
    let (locks, separators): (Vec<String>, _) = (stored.collect(), config.backend.separators);
    let clients: Vec<Arc<LogicalClient>> = clients.clients().map(|(_, client)| Arc::clone(client)).collect();
    run.clock.by.spawn(async move {
        while let Some(notice) = notices.recv().await {
            let lock = lock_of(&notice.subject, separators, &locks);
            if let (Some(lock), Some(client)) = (lock, clients.get(notice.client as usize)) {
                let cause = [notice.name.as_str(), " ", &*notice.subject].concat();
                let fields = Fields {
                    cause: Some(&cause),
                    ..Fields::of(run.spec.config.attach.plain(lock))
                };
                client.signal("notified", fields, Some(notice.at), &run.recorder);
            }
        }
    })
}

/// Returns the lock whose name is a part of a path, key or channel, or the only lock.
fn lock_of<'a>(subject: &str, separators: &[char], locks: &'a [String]) -> Option<&'a str> {
    if let [only] = locks {
        return Some(only);
    }
    let mut parts = subject.split(separators);
    parts.find_map(|part| locks.iter().find(|lock| *lock == part).map(String::as_str))
}

/// Returns the traffic of each client's links, and whether every tap kept its place.
pub fn summary(links: &Links, run: &RunContext) -> TapTotals {
    let mut clients: BTreeMap<String, MessageCounts> = BTreeMap::new();
    for ((client, _), link) in links {
        if let Some(tap) = link.tap() {
            let traffic = tap.counts();
            let sum = clients.entry(format!("c{client}")).or_default();
            sum.requests += traffic.requests;
            sum.replies += traffic.replies;
            sum.notifications += traffic.notifications;
            sum.retries += traffic.retries;
        }
    }
    let (lost, why) = run.exchange.lost();
    let counted = run.exchange.requests().into_iter();
    let requests = counted.map(|(name, label, count)| RequestCount {
        message: name.to_string(),
        role: label.words().to_owned(),
        count,
    });
    let asked_again = run.exchange.lost_replies().into_iter();
    let asked_again = asked_again.filter(|again| again.refused > 0).map(|again| AskedAgain {
        client: format!("c{}", again.client),
        message: again.name.to_string(),
        time_ns: run.clock.stamp_of(again.at),
        refused: again.refused,
        refused_ns: again.times.iter().map(|at| run.clock.stamp_of(*at)).collect(),
        words: again.words.into_iter().map(String::from).collect(),
    });
    let sessions = run.exchange.sessions().into_iter();
    let sessions = sessions.map(|session| ClientSession {
        client: format!("c{}", session.client),
        name: session.name.into(),
        time_ns: run.clock.stamp_of(session.at),
    });
    TapTotals {
        clients,
        requests: requests.collect(),
        asked_again: asked_again.collect(),
        sessions: sessions.collect(),
        lost,
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEPARATORS: [char; 3] = ['/', ':', '@'];

    #[test]
    fn a_notification_is_about_the_lock_that_its_path_or_key_names() {
        let locks = ["l1".to_owned(), "l10".to_owned()];
        for (subject, lock) in [
            ("/harness/l1/lock-0000000001", Some("l1")),
            ("harness:l10", Some("l10")),
            ("harness/l10/694d7", Some("l10")),
            ("__keyspace@0__:other", None),
        ] {
            assert_eq!(lock_of(subject, &SEPARATORS, &locks), lock, "{subject}");
        }
        assert_eq!(lock_of("anything", &SEPARATORS, &locks[..1]), Some("l1"));
    }
}
