//! Every bound and margin of the checkers, with its reason. Times in nanoseconds unless the name says otherwise.

/// Violations of one property that are described; the rest are counted. A page can show no more with profit.
pub const MAX_VIOLATIONS: usize = 20;
/// Waiters that one release may wake.
pub const HERD: u32 = 1;
/// Time within which a free lock must be acquired by a live waiter.
pub const PROGRESS_MS: u64 = 10_000;
/// The lease when the history does not say: what most clients ask for.
pub const LEASE_MS: u64 = 2_000;
/// As short as this may be a lease of which a history does not say how long it is.
pub const LEAST_LEASE_MS: u64 = 1000;
/// And as long: sessions of etcd's clients last for a minute, unless they are told otherwise.
pub const MOST_LEASE_MS: u64 = 60_000;
/// Of which the times of a coarse clock are whole numbers, where they matter beside the margins: seconds, and tenths.
pub const TICKS_NS: [u64; 2] = [1_000_000_000, 100_000_000];
/// How much later than it happened the observer may have seen something. Server lines prove nothing finer.
pub const OBSERVER_LAG_NS: u64 = 250_000_000;
/// So many processes that run or wait for each processor are borne: locks, servers and clients go on, if slowly. With more, time counts
/// for less.
pub const PROCESSES_BORNE: f64 = 6.0;
/// A hold that is lost so soon after its reply was lost when it was told.
pub const AT_ONCE_NS: u64 = 10_000_000;
/// Between the two lines by which the observer tells of a value that was written over another one: it asks for the new value
/// when it hears of the change.
pub const REWRITE_NS: u64 = 20_000_000;
/// How far away the observer's own lines may be for it to count as having been live in between.
pub const OBSERVER_GAP_NS: u64 = 5_000_000_000;
/// The share of holds with a name that must be joined to a grant of the server before their answers count as those of the server.
pub const JOINED_PERCENT: u64 = 50;
/// Pauses between two attempts of one waiter that still count as one wait.
pub const RETRY_GAP_NS: u64 = 1_000_000_000;
/// How long before and after a reply of "not acquired" the waiter's node may have gone away.
pub const LEAVE_NS: u64 = 500_000_000;
/// Time after the heal of a fault in which late messages may still arrive.
pub const AFTERMATH_NS: u64 = 2_000_000_000;
/// Share of the lease after which an expiry is a plausible reason, in percent: clocks and renewals are not exact.
pub const LEASE_SHARE_PERCENT: u64 = 90;
/// Share of a lease that is left when a lock is acquired, in percent: sessions and leases of clients are renewed each third of their time.
pub const RENEWED_SHARE_PERCENT: u64 = 60;
/// Share of the lease that a lock which is not renewed may be held at least, in percent: what is left is a margin for slow clocks.
pub const MARGIN_SHARE_PERCENT: u64 = 50;
/// How much longer than its wait an acquire may take to be answered, and a release at all, besides a lease: what a library needs
/// to give up on a server, many times over.
pub const ANSWER_MS: u64 = 4_000;
/// How much of its wait must be left to an acquire that is refused for it to have given up.
pub const GIVEN_UP_NS: u64 = 1_000_000_000;
/// Acquires that must have given up, and one in how many of those that were refused, for that to be a habit.
pub const GIVEN_UP: u64 = 3;
/// See [`GIVEN_UP`].
pub const GIVEN_UP_SHARE: u64 = 10;
/// A library that waits for longer than this, and always gives up early, has a limit of its own.
pub const OWN_LIMIT_NS: u64 = 100_000_000;
/// How long a grant may stand after its release was answered: releases that are sent and not waited for arrive by then.
pub const RELEASE_NS: u64 = 1_000_000_000;
/// Ends of other holds near one that must show how late the observer was for that one to count as late.
pub const ENDS_BESIDE: u64 = 3;
/// Grants that must have been removed long after their release was answered: the observer may have been late for a moment.
pub const LATE_REMOVALS: u64 = 3;
/// Releases that must have been answered `fail` though they freed the lock: the lock may have been removed by another client at the
/// moment of one of them.
pub const DENIED_RELEASES: u64 = 3;
/// Grants without an answer that must be seen for a library to be blamed for them where another acquire may have left them.
pub const ORPHANS: u64 = 3;
/// How often a client must have asked for a lock again, and been refused, for its own grant to count as one that it did not notice.
pub const REFUSED_AGAIN: u64 = 5;
/// Holds that a library must have ended early, and one in how many of all, for that to be a habit: in doubt a lock may give up,
/// and a machine with too much to do gives it doubts.
pub const EARLY_LOSSES: u64 = 3;
/// See [`EARLY_LOSSES`].
pub const EARLY_SHARE: u64 = 10;
/// Grants that others must have had before a client that got none has starved: this number, and this many for each client.
pub const STARVED_GRANTS: u64 = 50;
/// Grants that others must have had while a client was refused: the store serves.
pub const GRANTS_BESIDE_A_REFUSED: u64 = 10;
/// See [`STARVED_GRANTS`].
pub const PASSED_BY_CHANCE: u64 = 20;
/// Rows of the table of waiters and woken.
pub const HERD_ROWS: usize = 64;
/// One millisecond.
pub const MS: u64 = 1_000_000;
/// The latest time that an event may have: 146 years, so that times since 1970 can be read. A time and a few lengths fit into 64
/// bits together.
pub const MAX_TIME_NS: u64 = 1 << 62;
/// The longest bound that counts as it is given: 36 years.
const MAX_LENGTH_NS: u64 = 1 << 60;

/// A length as nanoseconds, 36 years at most.
pub(crate) fn at_most_a_length(length: std::time::Duration) -> u64 {
    u64::try_from(length.as_nanos())
        .unwrap_or(MAX_LENGTH_NS)
        .min(MAX_LENGTH_NS)
}

/// Milliseconds as nanoseconds, 36 years at most.
pub(crate) fn ns(ms: u64) -> u64 {
    ms.saturating_mul(MS).min(MAX_LENGTH_NS)
}
