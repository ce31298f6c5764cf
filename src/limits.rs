//! Bounds that several modules use, by name, with their reason. A bound of one module is a constant there.

use std::time::Duration;

/// Time for a server that was started again to serve; one of three needs about a second.
pub const SERVER_BACK: Duration = Duration::from_secs(15);
/// Time for a server that was replaced or upgraded to be as the others: other faults may keep it from that until they are over.
pub const SERVER_CHANGED: Duration = Duration::from_secs(120);
/// Time between two questions whether a server serves.
pub const READY_POLL: Duration = Duration::from_millis(50);
/// Time for one such question.
pub const PROBE: Duration = Duration::from_secs(1);
/// Time for a server to end in order.
pub const IN_ORDER: Duration = Duration::from_secs(10);
/// Time for a window to find its target: a holder, a waiter, a leader.
pub const AIM: Duration = Duration::from_secs(3);
/// Lines of a log, of a server or of a command, that an error repeats.
pub const LOG_TAIL_LINES: usize = 3;
/// Client processes of one run.
pub const MAX_PROCESSES: u32 = 500;
/// Longer runs are made of several.
pub const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
