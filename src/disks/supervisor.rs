//! Lets the syncs of servers continue, at once or later: harness's side of a seccomp filter that notifies of system calls.
//!
//! A server's program sends the listener of its filter over a socket ([`super::DiskGate`]). A reported call waits in the kernel
//! until it is answered; the answer here is always that the kernel may execute it. When all processes of a server have ended, the
//! listener hangs up.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use super::Syncs;

/// Milliseconds between two checks of the calls that are held back, and so the most that a call waits too long.
const LOOK: u16 = 2;
/// Time for a program that has connected to send its listener.
const ARRIVAL: Duration = Duration::from_secs(10);

/// Accepts listeners at the socket, each in a thread of its own, until the gate is dropped.
pub fn start(socket: UnixListener, syncs: &Arc<Syncs>) -> std::io::Result<()> {
    let syncs = Arc::clone(syncs);
    let wait = move || {
        for stream in socket.incoming() {
            if syncs.over.load(SeqCst) {
                return;
            }
            let Some(listener) = stream.ok().and_then(|stream| receive(&stream)) else {
                continue;
            };
            let syncs = Arc::clone(&syncs);
            // without a thread the listener is closed, and the server's syncs fail
            let _ = thread::Builder::new()
                .name("disk".into())
                .spawn(move || supervise(&listener, &syncs));
        }
    };
    thread::Builder::new().name("disk-gate".into()).spawn(wait).map(|_| ())
}

/// Returns the open file that was sent over a socket.
fn receive(stream: &UnixStream) -> Option<OwnedFd> {
    stream.set_read_timeout(Some(ARRIVAL)).ok()?;
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    let mut space = nix::cmsg_space!(i32);
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(stream.as_raw_fd(), &mut slices, Some(&mut space), flags).ok()?;
    message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::ScmRights(files) => files.first().map(|file| own(*file)),
        _ => None,
    })
}

#[expect(unsafe_code, reason = "nix gives a file that was received as a number")]
fn own(file: i32) -> OwnedFd {
    // SAFETY: the kernel has just made it for this process, and no other code knows it.
    unsafe { OwnedFd::from_raw_fd(file) }
}

/// A call that waits, with the time of its notification.
struct HeldCall {
    id: u64,
    since: Instant,
}

/// Answers calls until no process with the filter is left.
fn supervise(listener: &OwnedFd, syncs: &Syncs) {
    let mut held: Vec<HeldCall> = Vec::new();
    loop {
        let timeout = if held.is_empty() {
            PollTimeout::NONE
        } else {
            PollTimeout::from(LOOK)
        };
        let mut polled = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
        let events = polled[0].revents().unwrap_or(PollFlags::empty());
        if events.contains(PollFlags::POLLIN) {
            match kernel::next_call(listener.as_fd()) {
                Ok(id) => {
                    syncs.reported.fetch_add(1, SeqCst);
                    if !syncs.delay().is_zero() {
                        syncs.delayed.fetch_add(1, SeqCst);
                    }
                    let since = Instant::now();
                    held.push(HeldCall { id, since });
                }
                // its process was killed in the meantime, or a signal came
                Err(Errno::ENOENT | Errno::EINTR) => {}
                Err(_) => return,
            }
        } else if events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
            return;
        }
        let delay = syncs.delay();
        held.retain(|call| {
            let due = call.since.elapsed() >= delay;
            if due {
                // a call of an ended process needs no answer
                let _ = kernel::go_on(listener.as_fd(), call.id);
            }
            !due
        });
    }
}

/// The requests of a listener: `linux/seccomp.h`.
#[expect(
    unsafe_code,
    reason = "requests to a device are numbers and structures of the kernel's"
)]
mod kernel {
    use super::{AsRawFd, BorrowedFd, Errno};

    /// `seccomp_notif`, in whole words: its id comes first, and the rest is not used.
    #[repr(C)]
    pub struct Notification {
        id: u64,
        call: [u64; 9],
    }

    /// `seccomp_notif_resp`.
    #[repr(C)]
    pub struct Response {
        id: u64,
        value: i64,
        error: i32,
        flags: u32,
    }

    /// The kernel may execute the call.
    const CONTINUE: u32 = 1;

    nix::ioctl_readwrite!(receive, b'!', 0, Notification);
    nix::ioctl_readwrite!(respond, b'!', 1, Response);

    /// Waits for a call, and returns its id.
    pub fn next_call(listener: BorrowedFd<'_>) -> Result<u64, Errno> {
        let mut notification = Notification { id: 0, call: [0; 9] };
        // SAFETY: the file is a listener, and the structure is the kernel's.
        unsafe { receive(listener.as_raw_fd(), &raw mut notification) }?;
        Ok(notification.id)
    }

    /// Lets a call continue.
    pub fn go_on(listener: BorrowedFd<'_>, id: u64) -> Result<(), Errno> {
        let mut response = Response {
            id,
            value: 0,
            error: 0,
            flags: CONTINUE,
        };
        // SAFETY: as above.
        unsafe { respond(listener.as_raw_fd(), &raw mut response) }?;
        Ok(())
    }
}
