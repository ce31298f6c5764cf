//! Every bound of the tool, by name, with its reason. A number that limits something is written here and nowhere else.

use std::time::Duration;

/// Progress events that may wait for the screen; more are dropped, since the history is the truth and progress is not.
pub const PROGRESS_QUEUE: usize = 1024;
/// Bytes of history that may wait for the disk before clients are held back.
pub const RECORDER_BUFFER: usize = 64 << 20;
/// The history reaches the disk at least this often, so that a killed run leaves a history behind.
pub const RECORDER_FLUSH: Duration = Duration::from_millis(20);
/// Notifications that taps read and that wait to be recorded; more than these are said to be lost.
pub const NOTICES: usize = 65_536;
/// Time for servers to form a cluster that serves. A three-server ensemble needs one to three seconds.
pub const CLUSTER_READY: Duration = Duration::from_secs(40);
/// Time for a server that was started again to serve; one of three needs about a second.
pub const SERVER_BACK: Duration = Duration::from_secs(15);
/// Time between two questions whether a server serves.
pub const READY_POLL: Duration = Duration::from_millis(50);
/// Time for one such question.
pub const PROBE: Duration = Duration::from_secs(1);
/// Time for a client to open its session in fair weather.
pub const CLIENT_OPEN: Duration = Duration::from_secs(15);
/// Time for a client to say goodbye before it is killed.
pub const CLIENT_CLOSE: Duration = Duration::from_secs(2);
/// Longest line that a client may print: nothing in the protocol is longer, and a client that lies must not fill memory.
pub const CLIENT_LINE: usize = 64 << 10;
/// How much of a client's offending line is repeated in the error.
pub const QUOTED_LINE: usize = 120;
/// Time for a window that aims at the holder to find one.
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
/// Times that one client's process may end by itself and be started again before the run gives up on it.
pub const MAX_RESTARTS: u32 = 50;
/// Shorter leases run out by themselves on a loaded machine.
pub const MIN_LEASE: Duration = Duration::from_millis(500);
/// The shortest turn of locks that come and go: a few acquires long.
pub const MIN_TURN: Duration = Duration::from_millis(10);
/// Longer leases make windows that nobody waits for.
pub const MAX_LEASE: Duration = Duration::from_secs(600);
/// Longer runs are made of several.
pub const MAX_TIME: Duration = Duration::from_secs(24 * 3600);
/// Time for a row of a suite to end beyond its own: servers start and stop, a long history is checked.
pub const ROW_OVERTIME: Duration = Duration::from_secs(240);
/// Lines of a row's log that the suite repeats when it has nothing better to say.
pub const SUITE_LOG_TAIL: usize = 3;
