//! The observer of Redis: the keyspace events of the locks, and the value that each set wrote.
//!
//! If a master has a replica, it watches the one that clients reach.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use harness_checkers::history::RevokeCause;

use super::keyspace::{KeyChange, Keyspace, OpenKeyspace};
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, Observer, Unasked, observing};
use crate::backends::owners::Contender;
use crate::cluster::EndpointsReceiver;

/// The time of a new connection before another one is tried: the kernel repeats the first try at a container that is not up yet
/// only after a second, and events of that time are not seen.
pub(super) const REOPEN: Duration = Duration::from_millis(100);

/// The time in which a new connection must show the held locks, of which each is a query: the server may be gone without a sign.
pub(super) const HELD: Duration = Duration::from_secs(10);

/// The time of an answer from which the server, or this machine, is busy: reports are late then.
const LATE: Duration = Duration::from_millis(100);

const A_DAY: Duration = Duration::from_secs(24 * 3600);

/// The master that an observer watches.
pub struct OneMaster {
    /// The name of its source in the history.
    pub source: String,
    /// Whether another server takes the place of a master that is gone: the fate of its grants is known only then.
    pub elected: bool,
}

impl OneMaster {
    /// Returns the only master.
    pub fn fixed() -> Self {
        Self {
            source: "master".to_owned(),
            elected: false,
        }
    }
}

pub struct RedisObserver {
    endpoints: EndpointsReceiver,
    at: SocketAddr,
    keys: LockKeys,
    source: OpenKeyspace,
    connection: Box<dyn Keyspace>,
    master: OneMaster,
    /// Whether the last answer was late.
    late: bool,
}

/// The owner in the key of each lock.
type KeyOwners = BTreeMap<String, KeyOwner>;

/// The owner that a key shows.
#[derive(Debug, Clone, PartialEq, Eq)]
struct KeyOwner {
    /// `None` if the key was gone when its value was queried.
    name: Option<String>,
    /// Whether its value was read at an event of an earlier owner, so that the end of that one may still come.
    ahead: bool,
}

impl RedisObserver {
    pub async fn connect(
        source: OpenKeyspace,
        endpoints: EndpointsReceiver,
        keys: LockKeys,
        master: OneMaster,
    ) -> Result<Observer, String> {
        let at = first(&endpoints);
        let connection = source(at, &keys).await?;
        let observer = Self {
            endpoints,
            at,
            keys,
            source,
            connection,
            master,
            late: false,
        };
        Ok(observing(move |log| observer.observe(log)))
    }

    async fn observe(mut self, log: ObservationLog) {
        let mut owners = KeyOwners::new();
        loop {
            log.watches(self.at);
            self.late = false;
            let (cause, heard) = self.watch(&mut owners, &log).await;
            log.lost(&self.master.source, heard);
            let before = self.at;
            let waits = self.master.elected && cause.is_none();
            if !waits {
                revoke_all(&mut owners, cause.as_ref(), &log);
            }
            if cause.is_none() {
                log.pause().await;
            }
            let held = loop {
                self.at = first(&self.endpoints);
                let opening = (self.source)(self.at, &self.keys);
                if let Some(Ok(connection)) = log.clock.within(REOPEN, opening).await {
                    self.connection = connection;
                    let held = log.clock.within_real(HELD, self.connection.held()).await;
                    // a server that still loads its data accepts connections, and answers with an error
                    if let Some(Ok(held)) = held {
                        break held;
                    }
                }
                log.pause().await;
            };
            if waits {
                let replaced = (self.at != before).then_some(RevokeCause::Failover);
                revoke_all(&mut owners, replaced.as_ref(), &log);
            }
            for (lock, owner) in held {
                let (name, owner) = (Some(owner.clone()), Some(owner));
                log.granted(&lock, &Contender { owner, token: None }, log.clock.now_ns());
                owners.insert(lock, KeyOwner { name, ahead: false });
            }
            log.back(&self.master.source);
        }
    }

    /// Records events until the connection is lost, or another server becomes the primary; returns the fate of every lock, and
    /// the time of the last message of the master.
    async fn watch(&mut self, owners: &mut KeyOwners, log: &ObservationLog) -> (Option<RevokeCause>, u64) {
        let mut heard = log.clock.now_ns();
        loop {
            let event = tokio::select! {
                biased;
                event = self.connection.event() => event,
                // without a sender the primary does not change any more
                Ok(()) = self.endpoints.changed() => {
                    if first(&self.endpoints) == self.at {
                        continue;
                    }
                    return (Some(RevokeCause::Failover), heard);
                }
            };
            let Ok((lock, event)) = event else { return (None, heard) };
            let at = log.clock.now_ns();
            if self.saw(&lock, event, at, owners, log).await.is_err() {
                return (None, heard);
            }
            heard = at;
        }
    }

    async fn saw(
        &mut self,
        lock: &str,
        event: KeyChange,
        at: u64,
        owners: &mut KeyOwners,
        log: &ObservationLog,
    ) -> Result<(), String> {
        match event {
            // the same owner, with another value
            KeyChange::Written if self.keys.rewrites && owners.contains_key(lock) => {}
            KeyChange::Written => {
                let owner = self.connection.owner_of(lock).await?;
                self.note_delay(at, log);
                let known = owners.get(lock);
                // a key that is gone by now has an event of that, too
                if known.is_some_and(|known| owner.is_none() || known.name == owner) {
                    return Ok(());
                }
                let today = log.clock.since_1970();
                let ended = match self.keys.deadlines {
                    true => overwritten(known.map(|known| &known.name), owner.as_deref(), today),
                    false => Some(Unasked::Overwritten),
                };
                let Some(why) = ended else { return Ok(()) };
                let ahead = known.is_some();
                // now, and not at the arrival of the event: the key may have been written again since
                let now = log.clock.now_ns();
                let name = owner.clone();
                if let Some(replaced) = owners.insert(lock.to_owned(), KeyOwner { name, ahead }) {
                    gone(lock, replaced.name, why, now, log);
                }
                log.granted(lock, &Contender { owner, token: None }, now);
            }
            KeyChange::Gone(why) => {
                let Some(known) = owners.remove(lock) else {
                    return Ok(());
                };
                if !known.ahead {
                    gone(lock, known.name, why, at, log);
                    return Ok(());
                }
                let owner = self.connection.owner_of(lock).await?;
                if owner.is_some() && owner == known.name {
                    let KeyOwner { name, .. } = known;
                    owners.insert(lock.to_owned(), KeyOwner { name, ahead: false });
                } else {
                    gone(lock, known.name, Unasked::Unknown, log.clock.now_ns(), log);
                }
            }
        }
        Ok(())
    }

    /// Records that the answer to an event at `at` was late, and that answers are in time again.
    fn note_delay(&mut self, at: u64, log: &ObservationLog) {
        let late = log.clock.now_ns().saturating_sub(at) > LATE.as_nanos() as u64;
        match (self.late, late) {
            (false, true) => log.lost(&self.master.source, at),
            (true, false) => log.back(&self.master.source),
            _ => {}
        }
        self.late = late;
    }
}

/// Records the end of a grant. Of an unknown owner it is not known whether it requested that.
fn gone(lock: &str, owner: Option<String>, why: Unasked, at: u64, log: &ObservationLog) {
    let why = match why {
        Unasked::Deleted | Unasked::Overwritten if owner.is_none() => Unasked::Unknown,
        why => why,
    };
    log.ended(lock, &Contender { owner, token: None }, why, at);
}

/// Records that no known owner has its grant any more.
fn revoke_all(owners: &mut KeyOwners, cause: Option<&RevokeCause>, log: &ObservationLog) {
    for (lock, KeyOwner { name: owner, .. }) in std::mem::take(owners) {
        let contender = Contender { owner, token: None };
        log.revoked(&lock, &contender, cause.cloned(), log.clock.now_ns());
    }
}

/// Returns the end of the known owner by a write to a lock whose value is a deadline, by GETSET. All clients that see a passed
/// deadline write, and the first of them has the lock: those after it replace a deadline that has not passed, have lost, and know
/// it, so the owner stays: `None`.
fn overwritten(known: Option<&Option<String>>, new: Option<&str>, now: Duration) -> Option<Unasked> {
    let deadline = |value: &str| deadline(value, now);
    match (known, new.and_then(deadline)) {
        (Some(Some(old)), Some(_)) => match deadline(old) {
            Some(deadline) if deadline < now => Some(Unasked::Expired),
            Some(_) => None,
            None => Some(Unasked::Overwritten),
        },
        // the previous owner is not known, so neither is the end of its lease
        (Some(None), Some(_)) => None,
        _ => Some(Unasked::Overwritten),
    }
}

/// Returns the deadline in a value such as `1795263846123:5eed`, since 1970. A number that is far from the time of day is another
/// one: of a client, or of a thread.
fn deadline(value: &str, now: Duration) -> Option<Duration> {
    let (digits, _) = value.split_once(':')?;
    let deadline = digits.parse().ok().map(Duration::from_millis)?;
    (deadline.abs_diff(now) < A_DAY).then_some(deadline)
}

/// Returns the address of the first server, on which a plain lock lives.
fn first(endpoints: &EndpointsReceiver) -> SocketAddr {
    endpoints.borrow().servers()[0]
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use async_trait::async_trait;
    use harness_workloads::BackendId;
    use tokio::sync::watch;

    use super::*;
    use crate::backends;
    use crate::backends::observer::told::told_within;
    use crate::clock::GroundClock;
    use crate::cluster::Endpoints;

    /// An event of a lock's key, and the answer to the query of its owner, after this many milliseconds.
    type PlayedEvent = (&'static str, KeyChange, Option<&'static str>, u64);

    const GONE: KeyChange = KeyChange::Gone(Unasked::Deleted);

    struct PlayedKeyspace {
        events: VecDeque<PlayedEvent>,
        asked: Option<PlayedEvent>,
        clock: GroundClock,
        held: Result<Vec<(String, String)>, String>,
    }

    #[async_trait]
    impl Keyspace for PlayedKeyspace {
        async fn event(&mut self) -> Result<(String, KeyChange), String> {
            self.asked = self.events.pop_front();
            let (lock, change, ..) = self.asked.ok_or("closed")?;
            Ok((lock.to_owned(), change))
        }

        async fn owner_of(&mut self, _: &str) -> Result<Option<String>, String> {
            let (_, _, owner, milliseconds) = self.asked.unwrap();
            self.clock.sleep(Duration::from_millis(milliseconds)).await;
            Ok(owner.map(str::to_owned))
        }

        async fn held(&mut self) -> Result<Vec<(String, String)>, String> {
            self.held.clone()
        }
    }

    /// Returns a server that loads its data at the second connection.
    fn played(events: Vec<PlayedEvent>, clock: GroundClock) -> OpenKeyspace {
        let opened = AtomicU32::new(0);
        Arc::new(move |_, _| {
            let keyspace = PlayedKeyspace {
                events: events.iter().copied().collect(),
                asked: None,
                clock,
                held: match opened.fetch_add(1, Relaxed) {
                    1 => Err("LOADING".to_owned()),
                    _ => Ok(vec![("l0".to_owned(), "a".to_owned())]),
                },
            };
            Box::pin(async move { Ok(Box::new(keyspace) as Box<dyn Keyspace>) })
        })
    }

    /// Returns an observer of these events over each connection.
    async fn connected(events: &[PlayedEvent], clock: GroundClock) -> RedisObserver {
        let (_, receiver) = watch::channel(Endpoints::new(vec![([127, 0, 0, 1], 1).into()], None));
        let at = first(&receiver);
        let keys = LockKeys::default_of(backends::of(BackendId::Redis));
        let source = played(events.to_vec(), clock);
        RedisObserver {
            endpoints: receiver,
            at,
            connection: source(at, &keys).await.unwrap(),
            keys,
            source,
            master: OneMaster::fixed(),
            late: false,
        }
    }

    /// Returns the lines of an observer about these events.
    fn observed(events: &[PlayedEvent]) -> Vec<String> {
        told_within(Duration::from_secs(1), |log| async move {
            let mut observer = connected(events, log.clock).await;
            observer.watch(&mut KeyOwners::new(), &log).await;
        })
    }

    #[test]
    fn what_is_answered_late_is_out_of_sight_until_an_answer_is_in_time() {
        let written = KeyChange::Written;
        let told = observed(&[
            ("l0", written, Some("a"), 40),
            ("l1", written, Some("b"), 150),
            ("l2", written, Some("c"), 150),
            ("l3", written, Some("d"), 40),
        ]);
        let lines = [
            "granted l0 a",
            "lost at 40 ms",
            "granted l1 b",
            "granted l2 c",
            "back",
            "granted l3 d",
        ];
        assert_eq!(told, lines);
    }

    #[test]
    fn the_outage_of_a_server_that_still_loads_its_data_ends_when_its_locks_are_read() {
        let told = told_within(Duration::from_millis(50), |log| async move {
            connected(&[], log.clock).await.observe(log).await;
        });
        let lines = ["lost at 0 ms", "granted l0 a", "back", "lost at 40 ms", "revoked l0 a"];
        assert_eq!(told, lines);
    }

    #[test]
    fn an_owner_that_was_gone_before_the_answer_is_unnamed() {
        let told = observed(&[("l0", KeyChange::Written, None, 1), ("l0", GONE, None, 1)]);
        assert_eq!(told, ["granted l0 unnamed", "revoked l0 unnamed"]);
    }

    #[test]
    fn the_end_of_an_owner_whose_successor_was_read_ahead_is_not_the_successors() {
        let told = observed(&[
            ("l0", KeyChange::Written, Some("a"), 1),
            // the answer to an event that is not returned is about the owner after it
            ("l0", KeyChange::Written, Some("c"), 1),
            ("l0", GONE, Some("c"), 1),
            ("l0", GONE, None, 1),
        ]);
        let lines = [
            "granted l0 a",
            "revoked l0 a overwritten",
            "granted l0 c",
            "revoked l0 c deleted",
        ];
        assert_eq!(told, lines);
    }

    #[test]
    fn only_the_first_to_overwrite_a_deadline_that_has_passed_owns_the_lock() {
        let now = Duration::from_millis(5_000);
        let known = |value: &str| Some(Some(value.to_owned()));
        let of = |known: Option<Option<String>>, new| overwritten(known.as_ref(), Some(new), now);
        assert_eq!(of(known("4000:a"), "7000:b"), Some(Unasked::Expired));
        assert_eq!(of(known("7000:b"), "7001:c"), None);
        assert_eq!(of(Some(None), "7001:c"), None);
        let taken = Some(Unasked::Overwritten);
        assert_eq!(of(known("5eed"), "beef"), taken, "a plain value says nothing of time");
        assert_eq!(of(None, "7000:b"), taken, "there was no owner");
        let thread = "139872345678912:a";
        assert_eq!(of(known(thread), thread), taken, "the number of a thread is no time");
    }
}
