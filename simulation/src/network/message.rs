//! Messages of the simulated network ([`WireMessage`]), and the hook that a link asks about each ([`LinkHook`]).

use std::time::Duration;

/// A message as the taps of the real proxy read it, with their name of it: `SET`, `create`, `NodeDeleted`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassingMessage<'a> {
    /// Its number on its connection is repeated by its reply. Equal requests have equal digests, their numbers apart.
    Request {
        number: u64,
        name: &'static str,
        digest: u64,
    },
    /// `refuses`: whether it says that nothing was done.
    Reply {
        number: u64,
        name: &'static str,
        refuses: bool,
    },
    /// An unasked message of the server about a change: of this key, path or channel.
    Notification { name: &'static str, subject: &'a str },
    /// A message of the protocol itself, such as a ping: no tap counts it, and no rule stops it.
    Control,
}

/// A message that can be sent over a link.
pub trait WireMessage: 'static {
    /// Returns the part that a hook sees.
    fn passing(&self) -> PassingMessage<'_>;

    /// Returns its size on the wire, in bytes, about that of the real protocol.
    fn bytes(&self) -> usize;
}

/// A digest of a request's parts, taken eight bytes at a time: it is made for each request that passes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallDigest(u64);

impl CallDigest {
    /// Makes the digest of a request of this name.
    pub fn of(name: &str) -> Self {
        CallDigest(0xcbf2_9ce4_8422_2325).bytes(name.as_bytes())
    }

    pub fn number(self, number: u64) -> Self {
        CallDigest((self.0.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let all = words
            .iter()
            .fold(self, |digest, word| digest.number(u64::from_le_bytes(*word)));
        let last = rest
            .iter()
            .fold(bytes.len() as u64, |last, byte| last << 8 | u64::from(*byte));
        all.number(last)
    }

    pub fn value(self) -> u64 {
        self.0
    }
}

/// Whether a delay goes on when its link [lets go](super::SimulatedLink::release) of those that do not.
pub type DelayHolds = Box<dyn Fn() -> bool>;

/// The decision about a message.
pub enum MessageVerdict {
    Pass,
    /// It does not arrive, and its connection is reset in its place: messages that were sent before it arrive.
    Drop,
    /// It and all that follows it in the same direction wait this long.
    Delay(Duration, DelayHolds),
    /// The connection is reset at once, with all that is on its way.
    Reset,
}

/// Decides about each message when it enters a link.
pub trait LinkHook {
    /// Decides about a message. `connection`: its number, of those to the same server.
    fn passes(&self, connection: u64, message: &dyn WireMessage) -> MessageVerdict;

    /// Whether the link refuses a new connection now.
    fn refuses(&self) -> bool {
        false
    }

    /// Notes that a connection is over: no reply of it comes any more.
    fn ended(&self, connection: u64) {
        let _ = connection;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_requests_have_equal_digests_and_others_have_not() {
        let of = |parts: &[&str]| {
            let digest = CallDigest::of("SET");
            parts
                .iter()
                .fold(digest, |digest, part| digest.bytes(part.as_bytes()))
                .value()
        };
        let drawn = [
            of(&[]),
            of(&[""]),
            of(&["key"]),
            of(&["key", ""]),
            of(&["ke", "y"]),
            of(&["\0key"]),
            of(&["a longer key"]),
            of(&["a longer kez"]),
        ];
        assert_eq!(of(&["a longer key"]), drawn[6]);
        for (place, one) in drawn.iter().enumerate() {
            assert!(!drawn[..place].contains(one), "{drawn:?}");
        }
    }
}
