//! The owner of a lock on the server over time, as a lane of drawings: most violations are contradictions between it and
//! the holds of clients.

use std::collections::{BTreeMap, HashMap};

use harness_checkers::history::event::Kind;
use harness_checkers::{F, History};

/// The time from a grant, as the server shows it, to its end or to the end of the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnedBar {
    /// The index of a lane of the lock.
    pub lane: usize,
    /// The client of the grant, if it is known.
    pub client: Option<u32>,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// Returns the grants of a history by their beginning; `lanes` are locks and clients. Grants without a known owner are left out, and
/// those of a lock that no client requested.
pub fn owned(history: &History, lanes: &[(String, u32)]) -> Vec<OwnedBar> {
    let mut of_lock: HashMap<&str, usize> = HashMap::new();
    for (lane, (lock, _)) in lanes.iter().enumerate() {
        of_lock.entry(lock).or_insert(lane);
    }
    // an owner is the name of a client for one grant (a random value) or for all (a session)
    let mut clients: BTreeMap<&str, u32> = BTreeMap::new();
    let acquired = history.entries_of(F::Acquire).filter(|entry| entry.kind == Kind::Ok);
    clients.extend(acquired.filter_map(|entry| Some((entry.owner?, entry.client.or(entry.process_number())?))));
    let mut open: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut bars = Vec::new();
    let bar = |(lock, owner): (&str, &str), from_ns, to_ns| {
        Some(OwnedBar {
            lane: *of_lock.get(lock)?,
            client: clients.get(owner).copied(),
            from_ns,
            to_ns,
        })
    };
    for entry in history.entries() {
        let (Some(lock), Some(owner)) = (entry.lock, entry.owner) else {
            continue;
        };
        match entry.f {
            F::Granted => {
                open.entry((lock, owner)).or_insert(entry.time_ns);
            }
            F::Revoked => {
                let from_ns = open.remove(&(lock, owner));
                bars.extend(from_ns.and_then(|from_ns| bar((lock, owner), from_ns, entry.time_ns)));
            }
            _ => {}
        }
    }
    let open = open.into_iter();
    bars.extend(open.filter_map(|(of, from_ns)| bar(of, from_ns, history.end_ns())));
    bars.sort_by_key(|bar| bar.from_ns);
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_history::history_of;

    #[test]
    fn a_grant_lasts_until_it_is_taken_and_has_the_client_that_said_whose_it_is() {
        let acquire = |kind: &str| format!(r#""process":0,"client":0,"type":"{kind}","f":"acquire","lock":"l0""#);
        let server = |fact: &str| format!(r#""process":"server","type":"signal","f":{fact}"#);
        let history = history_of([
            (10, acquire("invoke")),
            (20, server(r#""granted","lock":"l0","owner":"s0""#)),
            (30, acquire("ok") + r#","owner":"s0""#),
            (90, server(r#""revoked","lock":"l0","owner":"s0","cause":"expired""#)),
            (95, server(r#""granted","lock":"l0","owner":"s9""#)),
            (99, server(r#""granted","lock":"l1""#)),
        ]);
        let bars = owned(&history, &[("l0".to_owned(), 0)]);
        let of = |client, from_ns, to_ns| OwnedBar {
            lane: 0,
            client,
            from_ns,
            to_ns,
        };
        assert_eq!(bars, [of(Some(0), 20, 90), of(None, 95, history.end_ns())]);
        let texts: Vec<String> = bars.iter().map(|bar| bar.bar().text).collect();
        assert_eq!(texts, ["owner: c0", "an owner"]);
    }
}
