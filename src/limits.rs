//! Bounds that several rooms use, by name, with their reason. A bound of one room is a constant there.

use std::time::Duration;

/// Notifications that taps read and that wait to be recorded; more are lost, and counted as lost.
pub const NOTICES: usize = 65_536;
/// Time for servers to form a cluster that serves. A three-server ensemble needs one to three seconds.
pub const CLUSTER_READY: Duration = Duration::from_secs(40);
/// Time for a server that was started again to serve; one of three needs about a second.
pub const SERVER_BACK: Duration = Duration::from_secs(15);
/// Time between two questions whether a server serves.
pub const READY_POLL: Duration = Duration::from_millis(50);
/// Time for one such question.
pub const PROBE: Duration = Duration::from_secs(1);
/// Time for a window to find its target: a holder, a waiter, a leader.
pub const AIM: Duration = Duration::from_secs(3);
/// Lines of a server's log that an error repeats.
pub const LOG_TAIL_LINES: usize = 3;
/// Time for the container engine to answer a question that costs it nothing.
pub const ENGINE: Duration = Duration::from_secs(5);
/// Time for an image to be pulled.
pub const IMAGE_PULL: Duration = Duration::from_secs(180);
/// Servers listen below the range from which the kernel takes ports for outgoing connections.
pub const SERVER_PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Clients of one run; each is a child process with a link to every server.
pub const MAX_CLIENTS: u32 = 500;
/// Locks of one run.
pub const MAX_LOCKS: u32 = 10_000;
/// Shorter leases run out by themselves on a loaded machine.
pub const MIN_LEASE: Duration = Duration::from_millis(500);
/// The shortest turn of locks that come and go: a few acquires long.
pub const MIN_TURN: Duration = Duration::from_millis(10);
/// Longer leases make fault windows that last too long to wait for.
pub const MAX_LEASE: Duration = Duration::from_secs(600);
/// Longer runs are made of several.
pub const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
/// Time for a row of a suite to end beyond its own: servers start and stop, a long history is checked.
pub const ROW_OVERTIME: Duration = Duration::from_secs(240);
/// Lines of a row's log that the suite repeats when it has nothing better to say.
pub const SUITE_LOG_TAIL: usize = 3;
