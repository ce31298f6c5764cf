//! The owner of a lock on the server over time, as a lane of drawings: most violations are contradictions between it and
//! the holds of clients.

use std::collections::BTreeMap;

use harness_checkers::history::event::Kind;
use harness_checkers::{F, History};

/// The time from a grant, as the server shows it, to its end or to the end of the history.
#[derive(Debug, PartialEq, Eq)]
pub struct OwnedBar<'a> {
    pub lock: &'a str,
    /// The client of the grant, if it is known.
    pub client: Option<u32>,
    pub from_ns: u64,
    pub to_ns: u64,
}

/// Returns the grants of a history by their beginning. Grants without a known owner are left out.
pub fn owned(history: &History) -> Vec<OwnedBar<'_>> {
    // an owner is the name of a client for one grant (a random value) or for all (a session)
    let mut clients: BTreeMap<&str, u32> = BTreeMap::new();
    let acquired = history.entries_of(F::Acquire).filter(|entry| entry.kind == Kind::Ok);
    clients.extend(acquired.filter_map(|entry| Some((entry.owner?, entry.client.or(entry.process_number())?))));
    let mut open: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut bars = Vec::new();
    let bar = |(lock, owner): (_, &str), from_ns, to_ns| OwnedBar {
        lock,
        client: clients.get(owner).copied(),
        from_ns,
        to_ns,
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
                bars.extend(from_ns.map(|from_ns| bar((lock, owner), from_ns, entry.time_ns)));
            }
            _ => {}
        }
    }
    bars.extend(open.into_iter().map(|(of, from_ns)| bar(of, from_ns, history.end_ns())));
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
        let bars = owned(&history);
        let of = |client, from_ns, to_ns| OwnedBar {
            lock: "l0",
            client,
            from_ns,
            to_ns,
        };
        assert_eq!(bars, [of(Some(0), 20, 90), of(None, 95, history.end_ns())]);
        let texts: Vec<String> = bars.iter().map(|bar| bar.bar().text).collect();
        assert_eq!(texts, ["owner: c0", "an owner"]);
    }
}
