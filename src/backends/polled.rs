//! The polled observer of servers that report no events ([`PolledObserver`]): it looks at the locks at short intervals, and
//! records the differences from the previous look.
//!
//! A grant that comes and goes between two looks is not seen, and one that is released and taken again by the same session in
//! between is seen as one. Both are shorter than the delay that the checkers allow an observer: if a look was later than
//! [`BLIND`], on a busy machine, the server was out of sight. If the server's clock was set between two looks, a lease of any
//! length may have come and ended in between, and the events of that time are not known either.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::lock_keys::LockKeys;
use super::observer::{ObservationLog, Observer, Unasked, observing};
use super::owners::Contender;
use crate::cluster::{BoxFuture, EndpointsReceiver};

/// The time between two looks: far below the delay that the checkers allow, and cheap beside the load of the clients.
const EVERY: Duration = Duration::from_millis(8);
/// The longest time between two looks that show every grant of 250 ms, the delay that the checkers allow an observer.
const BLIND: Duration = Duration::from_millis(100);
/// The time of a new connection before another one is tried.
const REOPEN: Duration = Duration::from_millis(500);
/// The time of a look before its connection counts as lost. A server may keep the session of each such look until its table is
/// free, so that a shorter time could exhaust its connections.
const SILENT: Duration = Duration::from_secs(10);

/// The name of its source in the history.
const SOURCE: &str = "server";

/// A held lock in a look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    pub contender: Contender,
    /// The earliest and the latest end of its lease by the server's clock, in milliseconds since 1970; `None` if it ends with its
    /// owner's session.
    pub ends_ms: Option<(i64, i64)>,
}

/// The result of one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LockLook {
    /// The server's clock, in milliseconds since 1970.
    pub now_ms: i64,
    /// The most milliseconds from then until the locks were read: a lease may have ended in between, and another client have taken it
    /// over.
    pub late_ms: i64,
    /// The held locks, by their names in the run.
    pub held: BTreeMap<String, HeldLock>,
    /// The names of the living sessions, without those that are ending: their locks go before they do.
    pub sessions: BTreeSet<String>,
}

impl LockLook {
    /// Adds a held lock, if it is one of the run. `token` and `end_ms` are those of a lease.
    pub fn add(&mut self, lock: Option<String>, owner: String, token: Option<i64>, end_ms: Option<i64>) {
        let Some(lock) = lock else { return };
        let contender = Contender {
            owner: Some(owner),
            token: token.and_then(|token| u64::try_from(token).ok()),
        };
        let ends_ms = end_ms.map(|end_ms| (end_ms, end_ms));
        self.held.insert(lock, HeldLock { contender, ends_ms });
    }
}

/// A connection for looks at locks.
pub trait LockTable: Send + Sync {
    /// Looks at the locks. An error means that the connection is lost.
    fn look(&mut self) -> BoxFuture<'_, Result<LockLook, String>>;

    /// Whether a look connects to lost servers itself. Such a table is kept, since it compares a look with those before the loss.
    fn connects_again(&self) -> bool {
        false
    }
}

/// Opens the connection to the first of these servers, or to all.
pub type OpenTable = fn(EndpointsReceiver, LockKeys) -> OpenedTable;
pub type OpenedTable = BoxFuture<'static, Result<Box<dyn LockTable>, String>>;

pub struct PolledObserver {
    open: OpenTable,
    endpoints: EndpointsReceiver,
    keys: LockKeys,
    table: Box<dyn LockTable>,
    /// The first server when the table was opened.
    at: SocketAddr,
}

impl PolledObserver {
    pub async fn connect(open: OpenTable, endpoints: EndpointsReceiver, keys: LockKeys) -> Result<Observer, String> {
        let at = first(&endpoints);
        let table = open(endpoints.clone(), keys.clone()).await?;
        let observer = Self {
            open,
            endpoints,
            keys,
            table,
            at,
        };
        Ok(observing(move |log| observer.observe(log)))
    }

    async fn observe(mut self, log: ObservationLog) {
        let mut held = BTreeMap::new();
        loop {
            log.watches(self.at);
            let heard = self.watch(&mut held, &log).await;
            lose_sight(&mut held, heard, &log);
            let look = loop {
                log.pause().await;
                self.at = first(&self.endpoints);
                if !self.table.connects_again() {
                    let opening = (self.open)(self.endpoints.clone(), self.keys.clone());
                    let Some(Ok(table)) = log.clock.within(REOPEN, opening).await else {
                        continue;
                    };
                    self.table = table;
                }
                let look = log.clock.within_real(SILENT, self.table.look()).await;
                // clients may have left the server in the meantime
                if let Some(Ok(look)) = look
                    && first(&self.endpoints) == self.at
                {
                    break look;
                }
            };
            record(&mut held, look, &log);
            log.back(SOURCE);
        }
    }

    /// Looks until the connection is lost, or another server has the locks; returns the time of the last answer.
    async fn watch(&mut self, held: &mut BTreeMap<String, HeldLock>, log: &ObservationLog) -> u64 {
        let mut heard = log.clock.now_ns();
        let mut server_ms = None;
        while first(&self.endpoints) == self.at {
            let mut looking = self.table.look();
            let in_time = log.clock.within_real(BLIND, &mut looking).await;
            let silent = in_time.is_none();
            let answer = match in_time {
                Some(answer) => Some(answer),
                None => {
                    // at once: the run may end before the answer
                    lose_sight(held, heard, log);
                    log.clock.within_real(SILENT, looking).await
                }
            };
            let Some(Ok(look)) = answer else { break };
            let since = Duration::from_nanos(log.clock.now_ns().saturating_sub(heard));
            let late = silent || since > BLIND;
            let was_set = server_ms.is_some_and(|before| was_set(before, look.now_ms, since));
            if late && !silent {
                lose_sight(held, heard, log);
            } else if was_set && !late {
                log.lost(SOURCE, heard);
            }
            heard = log.clock.now_ns();
            server_ms = Some(look.now_ms);
            record(held, look, log);
            if late || was_set {
                log.back(SOURCE);
            }
            log.clock.sleep(EVERY).await;
        }
        heard
    }
}

/// Records that the server was lost at `heard`, and that the grants of that time are out of sight.
fn lose_sight(held: &mut BTreeMap<String, HeldLock>, heard: u64, log: &ObservationLog) {
    log.lost(SOURCE, heard);
    for (lock, HeldLock { contender, .. }) in std::mem::take(held) {
        log.lost_sight(&lock, &contender, log.clock.now_ns());
    }
}

/// Whether the change of the server's clock between two looks differs from the time between them: a look is late by less than
/// [`BLIND`].
fn was_set(before_ms: i64, now_ms: i64, since: Duration) -> bool {
    let since_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    (now_ms - before_ms).abs_diff(since_ms) > BLIND.as_millis() as u64
}

/// Records the differences from the previous look.
fn record(held: &mut BTreeMap<String, HeldLock>, look: LockLook, log: &ObservationLog) {
    let at = log.clock.now_ns();
    for (lock, before) in held.iter() {
        if look.held.get(lock).map(|now| &now.contender) != Some(&before.contender) {
            log.ended(lock, &before.contender, why_over(before, &look), at);
        }
    }
    for (lock, now) in &look.held {
        if held.get(lock).map(|before| &before.contender) != Some(&now.contender) {
            log.granted(lock, &now.contender, at);
        }
    }
    *held = look.held;
}

/// Returns the cause of a grant's end, if its owner did not request it.
fn why_over(before: &HeldLock, look: &LockLook) -> Unasked {
    let owner = before.contender.owner.as_ref();
    match before.ends_ms {
        Some((earliest, _)) if look.now_ms + look.late_ms < earliest => Unasked::Deleted,
        Some((_, latest)) if look.now_ms < latest => Unasked::Unknown,
        Some(_) => Unasked::Expired,
        // a living session released its locks
        None if owner.is_some_and(|owner| look.sessions.contains(session_of(owner))) => Unasked::Deleted,
        None => Unasked::Expired,
    }
}

/// Returns the session in the name of an owner, which may be one transaction of it: `6b03626a.c22/741`.
fn session_of(owner: &str) -> &str {
    owner.split_once('/').map_or(owner, |(session, _)| session)
}

fn first(endpoints: &EndpointsReceiver) -> SocketAddr {
    endpoints.borrow().first().address
}

#[cfg(test)]
mod tests {
    use harness_workloads::BackendId;
    use tokio::sync::watch;

    use super::*;
    use crate::backends;
    use crate::backends::observer::told::{ToldLines, told_within};
    use crate::clock::GroundClock;
    use crate::cluster::Endpoints;

    fn held(owner: &str, ends_ms: Option<(i64, i64)>) -> HeldLock {
        let contender = Contender {
            owner: Some(owner.into()),
            token: None,
        };
        HeldLock { contender, ends_ms }
    }

    /// A table whose looks the test answers by their numbers, from 1; `None` is no answer.
    struct PlayedTable<A> {
        answer: A,
        looks: u32,
        connects_again: bool,
    }

    impl<A: Fn(u32) -> Option<Result<LockLook, String>> + Send + Sync> LockTable for PlayedTable<A> {
        fn look(&mut self) -> BoxFuture<'_, Result<LockLook, String>> {
            self.looks += 1;
            match (self.answer)(self.looks) {
                Some(look) => Box::pin(std::future::ready(look)),
                None => Box::pin(std::future::pending()),
            }
        }

        fn connects_again(&self) -> bool {
            self.connects_again
        }
    }

    /// Returns an observer of such a table, which can open no other one.
    fn observer(
        connects_again: bool,
        answer: impl Fn(u32) -> Option<Result<LockLook, String>> + Send + Sync + 'static,
    ) -> PolledObserver {
        PolledObserver {
            open: |_, _| Box::pin(async { Err("closed".into()) }),
            endpoints: watch::channel(Endpoints::new(vec![([127, 0, 0, 1], 1).into()], None)).1,
            keys: LockKeys::default_of(backends::of(BackendId::Postgres)),
            table: Box::new(PlayedTable {
                answer,
                looks: 0,
                connects_again,
            }),
            at: ([127, 0, 0, 1], 1).into(),
        }
    }

    /// Returns the lines of a quarter of a second.
    fn told_by(observer: impl FnOnce(GroundClock) -> PolledObserver) -> Vec<String> {
        told_within(Duration::from_millis(250), |log| observer(log.clock).observe(log))
    }

    /// Returns a look at a server where `a` holds `l0`.
    fn held_by_a(ends_ms: Option<(i64, i64)>) -> LockLook {
        LockLook {
            held: [("l0".to_owned(), held("a", ends_ms))].into(),
            ..LockLook::default()
        }
    }

    /// The clock of the server jumps by an hour before its third look, and it is lost after its fourth.
    #[test]
    fn what_happened_while_the_server_s_clock_was_set_is_not_known() {
        let look = |clock: GroundClock, number: u32| {
            let ran_ms = (clock.now_ns() / 1_000_000) as i64;
            let (stepped_ms, there) = match number {
                1 | 2 => (0, held_by_a(None)),
                3 => (3_600_000, held_by_a(None)),
                4 => (3_600_000, LockLook::default()),
                _ => return Some(Err("lost".to_owned())),
            };
            let now_ms = ran_ms + stepped_ms;
            Some(Ok(LockLook { now_ms, ..there }))
        };
        let told = told_by(|clock| observer(false, move |number| look(clock, number)));
        // the state of the server before and after is known
        let lines = [
            "granted l0 a",
            "lost at 8 ms",
            "back",
            "revoked l0 a expired",
            "lost at 24 ms",
        ];
        assert_eq!(told, lines);
    }

    #[test]
    fn a_table_that_connects_again_is_kept() {
        let answer = |number: u32| match number {
            2 | 3 => Some(Err("lost".to_owned())),
            _ => Some(Ok(held_by_a(None))),
        };
        let told = told_by(|_| observer(true, answer));
        let lines = [
            "granted l0 a",
            "lost at 0 ms",
            "revoked l0 a out of sight",
            "granted l0 a",
            "back",
        ];
        assert_eq!(told, lines);
    }

    #[test]
    fn a_look_at_a_server_that_clients_have_left_is_not_recorded() {
        let at = |port: u16| Endpoints::new(vec![([127, 0, 0, 1], port).into()], None);
        let (clients, endpoints) = watch::channel(at(1));
        let answer = move |number: u32| {
            if number == 3 {
                clients.send_replace(at(2));
            }
            Some(match number {
                1 | 3 => Ok(held_by_a(None)),
                2 => Err("lost".to_owned()),
                _ => Ok(LockLook::default()),
            })
        };
        let told = told_by(|_| PolledObserver {
            endpoints,
            ..observer(true, answer)
        });
        let lines = ["granted l0 a", "lost at 0 ms", "revoked l0 a out of sight", "back"];
        assert_eq!(told, lines);
    }

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_out_of_sight_before_its_answer() {
        let answer = |number: u32| (number < 2).then(|| Ok(held_by_a(Some((i64::MAX, i64::MAX)))));
        let observer = observer(false, answer);
        let clock = GroundClock::Real;
        let (log, told) = ToldLines::of(clock);
        let observing = tokio::spawn(observer.observe(log));
        while told.lines().len() < 3 {
            clock.sleep(EVERY).await;
        }
        observing.abort();
        let lines = told.lines();
        assert!(lines[1].starts_with("lost at "), "{lines:?}");
        assert_eq!(
            [lines[0].as_str(), lines[2].as_str()],
            ["granted l0 a", "revoked l0 a out of sight"]
        );
    }

    #[test]
    fn a_late_look_is_no_set_clock() {
        let since = Duration::from_millis(90);
        assert!(!was_set(1000, 1008, since));
        assert!(!was_set(1000, 1100, since));
        assert!(was_set(1000, 1300, since));
        assert!(was_set(1000, 900, since));
    }

    #[test]
    fn a_lease_that_is_gone_before_its_end_was_taken_and_one_after_it_ran_out() {
        let look = LockLook {
            now_ms: 100,
            ..LockLook::default()
        };
        assert_eq!(why_over(&held("a", Some((101, 101))), &look), Unasked::Deleted);
        assert_eq!(why_over(&held("a", Some((100, 100))), &look), Unasked::Expired);
        assert_eq!(why_over(&held("a", Some((100, 101))), &look), Unasked::Unknown);
        let read_later = LockLook { late_ms: 1, ..look };
        assert_eq!(why_over(&held("a", Some((102, 102))), &read_later), Unasked::Deleted);
        assert_eq!(why_over(&held("a", Some((101, 101))), &read_later), Unasked::Unknown);
        assert_eq!(why_over(&held("a", Some((100, 100))), &read_later), Unasked::Expired);
    }

    #[test]
    fn a_lock_of_a_session_goes_with_it_or_by_its_request() {
        let look = LockLook {
            sessions: ["a".to_owned()].into(),
            ..LockLook::default()
        };
        assert_eq!(why_over(&held("a", None), &look), Unasked::Deleted);
        assert_eq!(why_over(&held("a/741", None), &look), Unasked::Deleted);
        assert_eq!(why_over(&held("b", None), &look), Unasked::Expired);
    }
}
