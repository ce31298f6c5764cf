//! The limits of the checkers, with their reasons, in nanoseconds unless the name has another unit.

/// Violations of one property that are described; the others are counted. A page with more is no more useful.
pub const MAX_VIOLATIONS: usize = 20;
/// Waiters that one release may wake.
pub const HERD: u32 = 1;
/// Time within which a free lock must be acquired by a live waiter.
pub const PROGRESS_MS: u64 = 10_000;
/// The lease of a history that does not record one: the default of most clients.
pub const LEASE_MS: u64 = 2_000;
/// The shortest lease of a lock whose history does not record one.
pub const LEAST_LEASE_MS: u64 = 1000;
/// The longest such lease: sessions of etcd's clients last for a minute by default.
pub const MOST_LEASE_MS: u64 = 60_000;
/// The steps of coarse clocks that matter beside the margins: seconds, and tenths.
pub const TICKS_NS: [u64; 2] = [1_000_000_000, 100_000_000];
/// The usual delay of an observer's line. Nothing finer follows from the times of server lines.
pub const OBSERVER_LAG_NS: u64 = 250_000_000;
/// Processes that may run or wait for each processor: locks, servers and clients continue, if slowly. With more, time counts for less.
pub const PROCESSES_BORNE: f64 = 6.0;
/// A hold that is lost so soon after its reply was lost at the reply.
pub const AT_ONCE_NS: u64 = 10_000_000;
/// The longest time between the two lines of the observer about a value that was written over another one: it reads the new value when it
/// is notified of the change.
pub const REWRITE_NS: u64 = 20_000_000;
/// The longest gap between lines of the observer in which it counts as connected.
pub const OBSERVER_GAP_NS: u64 = 5_000_000_000;
/// Grants of a shared lock that may begin while one continues. A search for the grant of a removal goes no further back.
pub const GRANTS_BESIDE_ONE: usize = 1 << 14;
/// The share of the holds with a name that must be joined to a grant before the names in the clients' answers count as the server's.
pub const JOINED_PERCENT: u64 = 50;
/// The longest pause between two attempts of one waiter that count as one wait.
pub const RETRY_GAP_NS: u64 = 1_000_000_000;
/// The time before and after a reply of "not acquired" in which the waiter's node may have been removed.
pub const LEAVE_NS: u64 = 500_000_000;
/// Time after the heal of a fault in which late messages may still arrive.
pub const AFTERMATH_NS: u64 = 2_000_000_000;
/// The share of the lease after which an expiry is plausible, in percent: clocks and renewals are not exact.
pub const LEASE_SHARE_PERCENT: u64 = 90;
/// The share of a lease that is left at an acquire, in percent: clients renew sessions and leases each third of their time.
pub const RENEWED_SHARE_PERCENT: u64 = 60;
/// The share of the lease for which a lock that is not renewed may be held at least, in percent; the rest is a margin for slow clocks.
pub const MARGIN_SHARE_PERCENT: u64 = 50;
/// The longest time of an answer after the end of an acquire's wait, and of a release, besides a lease: a large multiple of the time in
/// which a library gives up on a server.
pub const ANSWER_MS: u64 = 4_000;
/// The part of its wait that must be left to a refused acquire for it to have given up.
pub const GIVEN_UP_NS: u64 = 1_000_000_000;
/// A library that waits for longer than this, and always gives up early, has its own limit.
pub const OWN_LIMIT_NS: u64 = 100_000_000;
/// The longest time of a grant after its release was answered: releases that clients send without waiting arrive by then.
pub const RELEASE_NS: u64 = 1_000_000_000;
/// The number of ends of other holds near an end from which the observer's delay is measured.
pub const ENDS_BESIDE: u64 = 3;
/// The number of grants that must have been removed long after the answers to their releases: a single one may be a late observer.
pub const LATE_REMOVALS: u64 = 3;
/// The number of releases that must have been answered `fail` although they freed the lock: at one of them, another client may have removed
/// the lock.
pub const DENIED_RELEASES: u64 = 3;
/// The number of grants without an answer for which a library is blamed, where another acquire may have left them.
pub const ORPHANS: u64 = 3;
/// The number of refused attempts of a client after which its own grant counts as one that it did not notice.
pub const REFUSED_AGAIN: u64 = 5;
/// The number of times, and the share of all (one in so many), from which a deed of a library is a habit: it may end a hold, or give up an
/// acquire, in doubt, and an overloaded machine causes doubts.
const HABIT: [u64; 2] = [3, 10];
/// The number of grants to others after which a client without a grant has starved: this number, and this many for each client.
pub const STARVED_GRANTS: u64 = 50;
/// The number of grants to others by which a store serves while a client is refused.
pub const GRANTS_BESIDE_A_REFUSED: u64 = 10;
/// See [`STARVED_GRANTS`].
pub const PASSED_BY_CHANCE: u64 = 20;
/// Rows of the table of waiters and wakes.
pub const HERD_ROWS: usize = 64;
/// One millisecond.
pub const MS: u64 = 1_000_000;
/// The latest time of an event: 146 years, so that times since 1970 can be read. The sum of a time and a few lengths fits into 64 bits.
pub const MAX_TIME_NS: u64 = 1 << 62;
/// The longest bound that is not cut: 36 years.
const MAX_LENGTH_NS: u64 = 1 << 60;

/// Returns whether a library does something so often that doubt does not explain it.
pub(crate) fn is_habit(count: u64, all: u64) -> bool {
    let [least, share] = HABIT;
    count >= least && count * share >= all
}

/// Returns a length in nanoseconds, 36 years at most.
pub(crate) fn at_most_a_length(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_nanos())
        .unwrap_or(MAX_LENGTH_NS)
        .min(MAX_LENGTH_NS)
}

/// Returns milliseconds in nanoseconds, 36 years at most.
pub(crate) fn ns(ms: u64) -> u64 {
    ms.saturating_mul(MS).min(MAX_LENGTH_NS)
}
