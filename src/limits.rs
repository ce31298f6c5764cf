//! Bounds that several rooms use, by name, with their reason. A bound of one room is a constant there.

use std::time::Duration;

/// Bytes that one direction of one connection may hold back before the sender feels it as a full window.
pub const LINK_BUFFER: usize = 1 << 20;
/// Notifications that taps read and that wait to be recorded; more are lost, and counted as lost.
pub const NOTICES: usize = 65_536;
/// Bytes read from a socket at once.
pub const CHUNK: usize = 16 << 10;
/// How long the proxy looks for more after it carried something, before it sleeps: Redis on loopback answers sooner.
pub const VIGIL: Duration = Duration::from_micros(50);
/// It does so where the last time the next chunk came within this, which includes that it was woken for it.
pub const SOON: Duration = Duration::from_micros(75);
/// Whoever keeps the processor this long when the proxy offers it does not just answer.
pub const CROWDED: Duration = Duration::from_micros(500);
/// The proxy does without its vigil this long after that.
pub const CROWDED_FOR: Duration = Duration::from_millis(20);
/// Time for the proxy to reach a server. On loopback and bridges a connect is answered at once or never.
pub const DIAL: Duration = Duration::from_secs(3);
/// Time for a server to say whom its way out should lead to: it is a child of ours on the same machine.
pub const SOCKS_HANDSHAKE: Duration = Duration::from_secs(10);
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
/// Time for one call of a Toxiproxy's API; it gives up on its own handlers after 25 s.
pub const REMOTE_CALL: Duration = Duration::from_secs(5);
/// Time for a Toxiproxy to do all that an order says: some hundred calls of about a millisecond.
pub const REMOTE: Duration = Duration::from_secs(20);
/// Time for what was made on a Toxiproxy to be deleted again at the end.
pub const REMOTE_GOODBYE: Duration = Duration::from_secs(3);
/// Longest body of a request to the API of the built-in proxy: thousands of proxies, and not a memory full.
pub const API_BODY: usize = 4 << 20;
/// Time for a request to the API to arrive.
pub const API_REQUEST: Duration = Duration::from_secs(15);
/// Time for a row of a suite to end beyond its own: servers start and stop, a long history is checked.
pub const ROW_OVERTIME: Duration = Duration::from_secs(240);
/// Lines of a row's log that the suite repeats when it has nothing better to say.
pub const SUITE_LOG_TAIL: usize = 3;
