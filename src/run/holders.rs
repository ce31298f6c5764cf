//! Holders: the clients that hold or wait for each lock, as their drivers know them. Faults find their targets here.
//!
//! A fault that targets a holder extends its work until the given time, unless it learns that the lock is lost. The decision to
//! stop and the targeting exclude each other, so a targeted holder certainly still holds.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;

use crate::backends::observer::RELEASED_NS;
use crate::run::clock::RunClock;
use crate::run::locked::locked;

/// Time for a fault to act on a chosen waiter, on a busy machine; less than the shortest lease.
const STILL_WAITING: Duration = Duration::from_millis(100);

/// A hold that has not ended.
#[derive(Debug, Clone)]
pub struct Holding {
    pub lock: String,
    pub token: Option<u64>,
    /// Its begin, by the clock of the run.
    pub since: Duration,
    /// Whether it is for reading, which other readers may do at the same time.
    shared: bool,
    works_until: Duration,
}

#[derive(Debug, Default)]
struct HoldersTable {
    /// The holds by client.
    now: BTreeMap<u32, Holding>,
    /// The lock that each client waits for, and the time of its call.
    waiting: BTreeMap<u32, (String, Duration)>,
    /// Holds that began while another client held the same lock.
    overlaps: u64,
    /// The calls of releases whose grants have not ended yet, as far as the servers show it, by lock and grant.
    released: BTreeMap<String, BTreeMap<GrantId, Vec<CalledRelease>>>,
}

/// The call of a release. The times are readings of the clock.
#[derive(Debug)]
struct CalledRelease {
    called_ns: u64,
    /// The time of the first answer after it that gave the lock to the same name again.
    again_ns: Option<u64>,
}

/// A chosen holder, its hold, and the time for which it works from now.
pub type Targeted = (u32, Holding, Duration);

/// The server's name for a grant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum GrantId {
    Token(u64),
    Owner(String),
}

#[derive(Debug)]
pub struct Holders {
    clock: RunClock,
    table: Mutex<HoldersTable>,
    changed: Notify,
}

impl Holders {
    pub fn new(clock: RunClock) -> Self {
        Self {
            clock,
            table: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Adds a waiter.
    pub fn wait(&self, client: u32, lock: &str) {
        locked(&self.table)
            .waiting
            .insert(client, (lock.to_owned(), self.clock.now()));
        self.changed.notify_waiters();
    }

    /// Removes a waiter, whose acquire was answered.
    pub fn waited(&self, client: u32) {
        locked(&self.table).waiting.remove(&client);
    }

    /// Chooses a client that waits for a lock that another one holds: the one that asked last, which is likely to wait the
    /// longest. Waits for one if there is none. The holder works for [`STILL_WAITING`] more, so that the fault acts on a waiter
    /// and not on a client whose grant is not reported yet: no lock can prevent what that client does. Each of the `per_process`
    /// clients in its process waits like that, or neither holds nor waits.
    pub async fn waiter(&self, per_process: u32) -> (u32, String) {
        loop {
            let changed = self.changed.notified();
            if let Some(waiter) = self.try_waiter(per_process) {
                return waiter;
            }
            changed.await;
        }
    }

    fn try_waiter(&self, per_process: u32) -> Option<(u32, String)> {
        let mut table = locked(&self.table);
        let HoldersTable { now, waiting, .. } = &mut *table;
        let held_by_another = |client: u32, lock: &str| {
            now.iter()
                .any(|(holder, holding)| *holder != client && holding.lock == lock)
        };
        let members = |client: u32| {
            let first = client - client % per_process;
            first..first + per_process
        };
        let no_lock_comes = |client: u32| {
            !now.contains_key(&client)
                && waiting
                    .get(&client)
                    .is_none_or(|(lock, _)| held_by_another(client, lock))
        };
        let waits = waiting.iter().filter(|(client, (lock, _))| {
            let mut others = members(**client).filter(|member| member != *client);
            held_by_another(**client, lock) && others.all(no_lock_comes)
        });
        let (client, (lock, _)) = waits.max_by_key(|(_, (_, since))| *since)?;
        let waiter = (*client, lock.clone());
        let awaited = members(*client).filter_map(|member| Some(&waiting.get(&member)?.0));
        let awaited: Vec<&String> = awaited.collect();
        let until = self.clock.now() + STILL_WAITING;
        for holding in now.values_mut().filter(|holding| awaited.contains(&&holding.lock)) {
            holding.works_until = holding.works_until.max(until);
        }
        Some(waiter)
    }

    /// Adds a hold of a client that works for `work`; `shared` with other readers.
    pub fn begin(&self, client: u32, lock: &str, token: Option<u64>, work: Duration, shared: bool) {
        let now = self.clock.now();
        let holding = Holding {
            lock: lock.to_owned(),
            token,
            since: now,
            shared,
            works_until: now + work,
        };
        let mut table = locked(&self.table);
        let taken = table
            .now
            .iter()
            .any(|(other, holding)| *other != client && holding.lock == lock && !(shared && holding.shared));
        table.overlaps += u64::from(taken);
        table.now.insert(client, holding);
        drop(table);
        self.changed.notify_waiters();
    }

    /// Returns the time until which a holder works, by the clock of the run; `None` after it, and from then on it is no holder.
    pub fn works_until(&self, client: u32) -> Option<Duration> {
        let mut table = locked(&self.table);
        let until = table.now.get(&client)?.works_until;
        if until > self.clock.now() {
            return Some(until);
        }
        table.now.remove(&client);
        None
    }

    /// Removes a holder that stops at once: it learned of the loss of its lock, or the run ends.
    pub fn abandon(&self, client: u32) {
        locked(&self.table).now.remove(&client);
    }

    /// Records that the holder of a grant calls a release.
    pub fn release(&self, lock: &str, grant: GrantId) {
        let call = CalledRelease {
            called_ns: self.clock.by.now_ns(),
            again_ns: None,
        };
        let mut table = locked(&self.table);
        let of_lock = table.released.entry(lock.to_owned()).or_default();
        of_lock.entry(grant).or_default().push(call);
    }

    /// Records an answer that gives a lock to this name, at a reading of the clock. An observer that looks at intervals may have missed
    /// the end of the name's previous grant; the release of that one does not explain the end of this one.
    pub fn granted(&self, lock: &str, grant: &GrantId, at_ns: u64) {
        let mut table = locked(&self.table);
        let of_lock = table.released.get_mut(lock);
        let calls = of_lock.and_then(|of_lock| of_lock.get_mut(grant));
        let latest_first = calls.into_iter().flatten().rev();
        // those before one with such an answer have theirs
        for call in latest_first.take_while(|call| call.again_ns.is_none()) {
            call.again_ns = Some(at_ns);
        }
    }

    /// Returns the reading at which the holder of a grant called its release, if that may have ended the grant at the reading `at`.
    /// Forgets it, since a grant ends once.
    pub fn released_at(&self, lock: &str, grant: &GrantId, at: u64) -> Option<u64> {
        let mut table = locked(&self.table);
        let of_lock = table.released.get_mut(lock)?;
        let mut calls = of_lock.remove(grant)?;
        calls.retain(|call| {
            call.again_ns
                .is_none_or(|again_ns| at < again_ns.saturating_add(RELEASED_NS))
        });
        let first_ns = calls.first().map(|call| call.called_ns);
        let called_ns = first_ns.filter(|called_ns| *called_ns <= at);
        let later = calls.split_off(usize::from(called_ns.is_some()));
        if !later.is_empty() {
            of_lock.insert(grant.clone(), later);
        }
        called_ns
    }

    /// Chooses the client that has held a lock for the shortest time and `fits`, waits for one if there is none, and extends its
    /// work to at least `works` from now, but not past `at_most` from its grant on.
    pub async fn target(&self, works: Duration, at_most: Duration, fits: impl Fn(u32, &Holding) -> bool) -> Targeted {
        loop {
            let changed = self.changed.notified();
            if let Some(target) = self.try_target(works, at_most, &fits) {
                return target;
            }
            changed.await;
        }
    }

    fn try_target(&self, works: Duration, at_most: Duration, fits: impl Fn(u32, &Holding) -> bool) -> Option<Targeted> {
        let mut table = locked(&self.table);
        let fitting = table.now.iter_mut().filter(|(client, holding)| fits(**client, holding));
        let (client, holding) = fitting.max_by_key(|(_, holding)| holding.since)?;
        let now = self.clock.now();
        let longer = (now + works).min(holding.since.saturating_add(at_most));
        holding.works_until = holding.works_until.max(longer);
        Some((*client, holding.clone(), holding.works_until.saturating_sub(now)))
    }

    /// Returns the number of grants of a lock that another client held: for the live view; the history decides.
    pub fn overlaps(&self) -> u64 {
        locked(&self.table).overlaps
    }

    /// Returns all holders, by client.
    pub fn all(&self) -> Vec<(u32, Holding)> {
        let table = locked(&self.table);
        let holders = table.now.iter();
        holders.map(|(client, holding)| (*client, holding.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use harness_simulation::World;

    use super::*;
    use crate::clock::GroundClock;

    #[tokio::test(start_paused = true)]
    async fn a_targeted_holder_goes_on_working_and_others_do_not() {
        let holders = Holders::new(RunClock::start(GroundClock::Real));
        holders.begin(1, "l0", None, Duration::from_millis(10), false);
        holders.begin(2, "l1", None, Duration::from_millis(10), false);
        tokio::time::advance(Duration::from_millis(5)).await;
        let (targeted, ..) = holders.target(Duration::from_secs(5), Duration::MAX, |_, _| true).await;
        tokio::time::advance(Duration::from_millis(10)).await;
        assert!(holders.works_until(targeted).is_some());
        assert!(holders.works_until(3 - targeted).is_none());
        tokio::time::advance(Duration::from_secs(5)).await;
        assert!(holders.works_until(targeted).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_targeted_holder_that_does_not_renew_works_for_a_part_of_its_lease() {
        let holders = Holders::new(RunClock::start(GroundClock::Real));
        holders.begin(1, "l0", None, Duration::from_millis(10), false);
        tokio::time::advance(Duration::from_millis(5)).await;
        let (targeted, _, works) = holders
            .target(Duration::from_secs(5), Duration::from_millis(500), |_, _| true)
            .await;
        assert_eq!(works, Duration::from_millis(495));
        tokio::time::advance(Duration::from_millis(490)).await;
        assert!(holders.works_until(targeted).is_some());
        tokio::time::advance(Duration::from_millis(10)).await;
        assert!(holders.works_until(targeted).is_none());
    }

    #[test]
    fn two_holders_of_one_lock_are_seen_and_of_two_locks_are_not() {
        let holders = Holders::new(RunClock::start(GroundClock::Real));
        let work = Duration::from_secs(1);
        holders.begin(1, "l0", None, work, false);
        holders.begin(2, "l1", None, work, false);
        assert_eq!(holders.overlaps(), 0);
        holders.begin(3, "l0", None, work, false);
        assert_eq!(holders.overlaps(), 1);
        holders.begin(4, "l2", None, work, true);
        holders.begin(5, "l2", None, work, true);
        assert_eq!(holders.overlaps(), 1, "readers may read together");
        holders.begin(6, "l2", None, work, false);
        assert_eq!(holders.overlaps(), 2);
    }

    #[tokio::test]
    async fn a_waiter_waits_for_a_lock_that_is_taken_and_was_the_last_to_ask() {
        let holders = Holders::new(RunClock::start(GroundClock::Real));
        holders.begin(0, "l0", None, Duration::from_secs(1), false);
        for (client, lock) in [(1, "l0"), (2, "l0"), (3, "l1")] {
            holders.wait(client, lock);
        }
        assert_eq!(holders.waiter(1).await, (2, "l0".into()));
        holders.waited(2);
        assert_eq!(holders.waiter(1).await, (1, "l0".into()));
        holders.waited(1);
        assert_eq!(
            holders.try_waiter(1),
            None,
            "l1 is free: its waiter may have been granted it"
        );
        holders.wait(0, "l0");
        assert_eq!(holders.try_waiter(1), None, "the holder itself asks again");
    }

    #[tokio::test]
    async fn a_waiter_is_in_no_process_that_holds_or_may_be_granted_a_lock() {
        let holders = Holders::new(RunClock::start(GroundClock::Real));
        for (client, lock) in [(0, "l0"), (2, "l1")] {
            holders.begin(client, lock, None, Duration::from_secs(1), false);
        }
        holders.wait(1, "l1");
        assert_eq!(holders.try_waiter(2), None, "c0 holds in the same process");
        holders.wait(4, "l0");
        holders.wait(5, "l9");
        assert_eq!(holders.try_waiter(2), None, "c5 may be granted l9");
        holders.waited(5);
        assert_eq!(holders.try_waiter(2), Some((4, "l0".into())));
        holders.wait(5, "l1");
        assert_eq!(holders.try_waiter(2), Some((5, "l1".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_holder_keeps_its_lock_while_its_waiter_becomes_the_target_of_a_fault() {
        let holders = Holders::new(RunClock::start(GroundClock::Real));
        holders.begin(0, "l0", None, Duration::from_millis(1), false);
        holders.wait(1, "l0");
        assert_eq!(holders.waiter(1).await, (1, "l0".into()));
        tokio::time::advance(Duration::from_millis(50)).await;
        assert!(holders.works_until(0).is_some());
        tokio::time::advance(Duration::from_millis(60)).await;
        assert!(holders.works_until(0).is_none());
    }

    #[tokio::test]
    async fn a_target_is_waited_for_until_a_client_holds() {
        let holders = Holders::new(RunClock::start(GroundClock::Real));
        let (target, ()) = tokio::join!(
            holders.target(Duration::from_secs(1), Duration::MAX, |_, _| true),
            async {
                tokio::task::yield_now().await;
                holders.begin(7, "l0", Some(3), Duration::from_secs(1), false);
            }
        );
        assert_eq!(target.0, 7);
    }

    #[test]
    fn a_released_grant_is_known_once() {
        let clock = GroundClock::Real;
        let holders = Holders::new(RunClock::start(clock));
        for grant in [GrantId::Token(4), GrantId::Owner("0x1".into())] {
            assert!(holders.released_at("l0", &grant, clock.now_ns()).is_none());
            holders.release("l0", grant.clone());
            assert!(holders.released_at("l0", &grant, clock.now_ns()).is_some());
            assert!(holders.released_at("l0", &grant, clock.now_ns()).is_none());
        }
    }

    /// Returns the call in milliseconds that explains an end so many milliseconds after the begin, of an owner that called releases at
    /// these times, and was given the lock again at these.
    fn explained_at(end_ms: u64, released: &[u64], again: &[u64]) -> Option<u64> {
        World::run(7, |world| async move {
            let clock = GroundClock::Virtual(world);
            let (holders, owner) = (Holders::new(RunClock::start(clock)), GrantId::Owner("0x1".into()));
            for ms in 1..=1000 {
                clock.sleep_until(ms * 1_000_000).await;
                if released.contains(&ms) {
                    holders.release("l0", owner.clone());
                }
                if again.contains(&ms) {
                    holders.granted("l0", &owner, clock.now_ns());
                }
            }
            let called_ns = holders.released_at("l0", &owner, end_ms * 1_000_000)?;
            Some(called_ns / 1_000_000)
        })
    }

    #[test]
    fn a_release_explains_no_end_of_a_later_grant_of_its_owner() {
        assert_eq!(explained_at(900, &[10], &[12]), None, "the owner had the lock again");
        assert_eq!(explained_at(100, &[10], &[12]), Some(10), "the end may be seen late");
        assert_eq!(explained_at(900, &[10], &[]), Some(10));
        assert_eq!(explained_at(900, &[10, 890], &[12]), Some(890), "two looks, one grant");
        assert_eq!(explained_at(100, &[10, 20], &[12]), Some(10), "one more comes");
        assert_eq!(explained_at(5, &[10], &[]), None, "it was called later");
    }
}
