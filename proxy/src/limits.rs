//! Every bound of the proxy, by name, with its reason.

use std::time::Duration;

/// Bytes that one direction of one connection may hold back before the sender feels it as a full window.
pub const LINK_BUFFER: usize = 1 << 20;
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
