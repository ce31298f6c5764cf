//! The network of a world: links that obey [`harness_proxy::Behaviour`], with the promises of TCP.
//!
//! Messages arrive in order, also after their sender closed the connection or gave up, unless the connection is reset; a reset overtakes
//! those on their way. An attempt to connect is not answered while a link is stalled. Messages that a blackhole dropped come when their
//! sender retransmits.
//!
//! Not modelled: packets (messages arrive whole), windows that fill up, half-open connections after a crash of a machine, and bandwidth
//! that several links share.

mod connection;
mod link;
mod link_state;
mod message;
mod peers;
mod port;
mod transit;

pub use connection::{ClientSide, PortEvent, ServerSide};
pub use link::{ConnectionRefused, SimulatedLink};
pub use link_state::LinkLatency;
pub(crate) use message::CallDigest;
pub use message::{DelayHolds, LinkHook, MessageVerdict, PassingMessage, WireMessage};
pub(crate) use peers::{agreement, applied_at, arrives_behind, peer_latency};
pub use port::{Port, PortListener};
pub use transit::ConnectionEnding;

use std::cell::RefCell;
use std::task::{Context, Waker};

/// Keeps the waker of a task; most often it is there already.
pub(crate) fn keep_waker(kept: &mut Option<Waker>, task: &Context<'_>) {
    match kept {
        Some(waker) => waker.clone_from(task.waker()),
        None => *kept = Some(task.waker().clone()),
    }
}

/// Wakes the task that is kept, which may be kept again at once.
pub(crate) fn wake_kept(kept: &RefCell<Option<Waker>>) {
    let waker = kept.borrow_mut().take();
    if let Some(waker) = waker {
        waker.wake();
    }
}
