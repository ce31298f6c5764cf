//! Every bound of the proxy, by name, with its reason.

use std::time::Duration;

/// Bytes that one direction of one connection may hold back before the sender sees a full window.
pub const LINK_BUFFER: usize = 1 << 20;
/// Bytes read from a socket at once.
pub const CHUNK: usize = 16 << 10;
/// Chunks that one direction of one connection may hold back: chunks of a byte must not fill the memory.
pub const LINK_CHUNKS: usize = 16_384;
/// A blackhole lets bare acknowledgements pass for this long: those of what arrived before it, which a kernel may delay by up
/// to 200 ms, are no sign that something was lost in it.
pub const LAST_ACKS: Duration = Duration::from_millis(200);
/// The period in which the kernel is asked what a blackhole dropped.
pub const BLACKHOLE_READ: Duration = Duration::from_millis(50);
/// The time for which the proxy's thread polls after it forwarded a chunk, before it sleeps. Redis on loopback answers within 20 µs where
/// its processor is awake; where a virtual processor first has to be woken, that takes 50 to 60 µs more.
pub const BUSY_POLL: Duration = Duration::from_micros(100);
/// The thread polls if the next chunk came within this time after the last one of this direction, which includes waking the thread.
pub const QUICK_REPLY: Duration = Duration::from_micros(150);
/// The period in which the thread asks the kernel, while it polls, whether tasks wait for a processor: the answer costs 1.5 µs.
pub const LOADAVG_READ: Duration = Duration::from_micros(250);
/// The time for which the thread does not ask again after a task waited: a busy machine stays busy for longer, and asking delays a chunk.
pub const CROWDED: Duration = Duration::from_millis(2);
/// Time for the proxy to reach a server. On loopback and bridges a connect is answered at once or never.
pub const DIAL: Duration = Duration::from_secs(3);
/// Time for a server to request a peer: it is a child process on the same machine.
pub const SOCKS_HANDSHAKE: Duration = Duration::from_secs(10);
/// Time for one call of a Toxiproxy's API; it gives up on its own handlers after 25 s.
#[cfg(feature = "toxiproxy")]
pub const REMOTE_CALL: Duration = Duration::from_secs(5);
/// Time for a Toxiproxy to carry out an order: some hundred calls of about a millisecond.
pub const REMOTE: Duration = Duration::from_secs(20);
/// Time for the deletion, at the end, of the proxies that were made on a Toxiproxy.
#[cfg(feature = "toxiproxy")]
pub const REMOTE_GOODBYE: Duration = Duration::from_secs(3);
/// Longest body of a request to the API of the built-in proxy: thousands of proxies, and not a memory full.
#[cfg(feature = "api")]
pub const API_BODY: usize = 4 << 20;
/// Time for a request to the API to arrive.
#[cfg(feature = "api")]
pub const API_REQUEST: Duration = Duration::from_secs(15);
