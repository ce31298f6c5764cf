//! A blackhole: the kernel drops the packets that arrive at a socket, before it acknowledges them. To the peer the network
//! has gone: `connect()` gets no answer, `TCP_USER_TIMEOUT` and keepalive expire. The peer retransmits, so nothing is lost
//! once the blackhole is gone, but its next attempt may be seconds away.
//!
//! This is a classic BPF program on one of our own sockets (`SO_ATTACH_FILTER`, socket(7)), which needs no privileges. A
//! filter sees a packet from its TCP header on.

use std::os::fd::AsFd;

use nix::libc;
use nix::sys::socket::getsockopt;
use socket2::{SockFilter, SockRef};
use tokio::time::Instant;

use crate::limits::{BLACKHOLE_READ, LAST_ACKS};

/// `SO_MEMINFO` of linux/socket.h, which `libc` does not have for every architecture.
const SO_MEMINFO: libc::c_int = 55;
/// The place of `SK_MEMINFO_DROPS` among the counters of linux/sock_diag.h, and how many there are.
const DROPS: usize = 8;
const MEMINFO: usize = 9;

#[derive(Debug, Clone, Copy)]
struct MemInfo;

nix::getsockopt_impl!(
    MemInfo,
    libc::SOL_SOCKET,
    SO_MEMINFO,
    [u32; MEMINFO],
    nix::sys::socket::sockopt::GetStruct<[u32; MEMINFO]>
);

/// Drops every packet.
const EVERYTHING: [SockFilter; 1] = [SockFilter::new(RETURN, 0, 0, 0)];

/// Drops packets with payload, FIN or RST; a bare acknowledgement passes, so that the other direction goes on.
const STREAM: [SockFilter; 10] = [
    // A = flags; FIN or RST: drop
    SockFilter::new(LOAD_BYTE, 0, 0, 13),
    SockFilter::new(JUMP_IF_ANY, 6, 0, 0x05),
    // X = length of the header
    SockFilter::new(LOAD_BYTE, 0, 0, 12),
    SockFilter::new(SHIFT_RIGHT, 0, 0, 4),
    SockFilter::new(SHIFT_LEFT, 0, 0, 2),
    SockFilter::new(COPY_TO_X, 0, 0, 0),
    // A = length of the packet; longer than its header: drop
    SockFilter::new(LOAD_LENGTH, 0, 0, 0),
    SockFilter::new(JUMP_IF_GREATER_THAN_X, 0, 1, 0),
    SockFilter::new(RETURN, 0, 0, 0),
    SockFilter::new(RETURN, 0, 0, u32::MAX),
];

const RETURN: u16 = 0x06;
const LOAD_BYTE: u16 = 0x30;
const LOAD_LENGTH: u16 = 0x80;
const SHIFT_RIGHT: u16 = 0x74;
const SHIFT_LEFT: u16 = 0x64;
const COPY_TO_X: u16 = 0x07;
const JUMP_IF_ANY: u16 = 0x45;
const JUMP_IF_GREATER_THAN_X: u16 = 0x2d;

/// The packets that are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Drops {
    Everything,
    /// The same on a connection, once the last acknowledgements of what came before are through: see [`LAST_ACKS`].
    EverythingSoon,
    /// Packets with the peer's own bytes, but not its bare acknowledgements.
    Stream,
}

/// A blackhole at a socket, with the number of packets that it dropped.
#[derive(Debug)]
pub struct Blackhole {
    pub drops: Drops,
    /// The time at which its counter is read again.
    pub read_at: Instant,
    /// The time from which acknowledgements are dropped, too.
    everything_at: Option<Instant>,
    before: u32,
}

impl Blackhole {
    /// Returns `None` if the kernel does not take the filter: it then acknowledges the packets.
    pub fn attach(socket: &impl AsFd, drops: Drops) -> Option<Self> {
        let program = match drops {
            Drops::Everything => &EVERYTHING[..],
            Drops::Stream | Drops::EverythingSoon => &STREAM[..],
        };
        SockRef::from(socket).attach_filter(program).ok()?;
        let now = Instant::now();
        Some(Self {
            drops,
            read_at: now + BLACKHOLE_READ,
            everything_at: (drops == Drops::EverythingSoon).then(|| now + LAST_ACKS),
            before: counter(socket),
        })
    }

    pub fn detach(socket: &impl AsFd) {
        let _ = SockRef::from(socket).detach_filter();
    }

    /// Returns the packets dropped since the previous call, retransmissions among them. To be called at `read_at`.
    pub fn dropped(&mut self, socket: &impl AsFd) -> u64 {
        let read_at = Instant::now();
        self.read_at = read_at + BLACKHOLE_READ;
        if self.everything_at.is_some_and(|at| at <= read_at) {
            self.everything_at = None;
            // a kernel that took the first program takes this one
            let _ = SockRef::from(socket).attach_filter(&EVERYTHING);
        }
        let now = counter(socket);
        u64::from(now.wrapping_sub(std::mem::replace(&mut self.before, now)))
    }
}

/// Returns the packets that the kernel dropped at this socket.
fn counter(socket: &impl AsFd) -> u32 {
    getsockopt(socket, MemInfo).map_or(0, |counters| counters[DROPS])
}
