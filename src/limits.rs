//! Bounds that several modules use, by name, with their reason. A bound of one module is a constant there.

use std::time::Duration;

/// Time for a restarted server to serve. One of three servers needs about a second, and 22 on a busy machine; the wait ends when it
/// serves.
pub const SERVER_BACK: Duration = Duration::from_secs(60);
/// The same in virtual time, where no machine is busy.
pub const SERVER_BACK_VIRTUAL: Duration = Duration::from_secs(15);
/// Time for work on all data of servers; those that have just lost their leader wait for the next one.
pub const SERVER_WORK: Duration = Duration::from_secs(15);
/// Time for a replaced or upgraded server to be as the others: other faults may prevent that until they are healed.
pub const SERVER_CHANGED: Duration = Duration::from_secs(120);
/// Time between two probes of a server's readiness.
pub const READY_POLL: Duration = Duration::from_millis(50);
/// Time for one such probe.
pub const PROBE: Duration = Duration::from_secs(1);
/// Time for the orderly end of a server.
pub const IN_ORDER: Duration = Duration::from_secs(10);
/// Time in which a window waits for its target: a holder, a waiter, a leader.
pub const AIM: Duration = Duration::from_secs(3);
/// Lines of a log, of a server or of a command, that an error repeats.
pub const LOG_TAIL_LINES: usize = 3;
/// The most client processes of one run.
pub const MAX_PROCESSES: u32 = 500;
/// The longest run.
pub const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
