//! The ends of a family's pipes and connections that harness has ([`FamilyEnd`]).

use std::collections::VecDeque;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::socket::{Shutdown, shutdown};

use super::startup::without_copies;

/// The bytes of one read.
const PORTION: usize = 16 << 10;
/// The number of bytes that may have filled a buffer of the usual size.
const MAY_BE_FULL: usize = 32 << 10;

/// The output of a family at one of its ends.
pub enum FamilySaid<'a> {
    Bytes(&'a [u8]),
    /// The end of the output.
    End,
}

/// The receiver of the output.
pub type OnSaid = Rc<dyn Fn(FamilySaid<'_>)>;

/// A pipe or a connection of a family, as harness has it.
pub struct FamilyEnd {
    pub descriptor: OwnedFd,
    /// `None`: harness only writes to it.
    pub on_said: Option<OnSaid>,
    /// The number in the page, of a connection.
    pub connection: Option<u16>,
    /// Input for which the family has no room yet.
    pub unsent: VecDeque<u8>,
    /// Whether it closes once all of that is sent.
    pub is_closing: bool,
}

pub type EndNumber = u64;

/// Reads all that there is now. Returns whether it reached the end, which is only sure where it `may_be_over`.
pub fn read_all(descriptor: &OwnedFd, into: &mut Vec<u8>, may_be_over: bool) -> bool {
    loop {
        let begin = into.len();
        into.resize(begin + PORTION, 0);
        let read = nix::unistd::read(descriptor, &mut into[begin..]);
        into.truncate(begin + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => return true,
            // that was all there is
            Ok(read) if read < PORTION && !may_be_over => return false,
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(nix::errno::Errno::EAGAIN) => return false,
            Err(_) => return true,
        }
    }
}

/// Closes an end, when no process has a copy of it, as one that harness starts for another world has until it executes its program. A
/// connection is shut down first: other programs that harness starts may have copies, too.
pub fn close(end: OwnedFd) {
    let _ = shutdown(end.as_raw_fd(), Shutdown::Both);
    let _alone = without_copies();
    drop(end);
}

impl FamilyEnd {
    /// Returns the number of bytes that may have filled its buffer, so that a thread waits for room.
    pub fn may_be_full(&self) -> usize {
        /// A write has a page of its own, or shares it with those before if all fit: a full pipe has half of its bytes at least.
        const PAGE: usize = 4096;
        // that of a user with many pipes is small; a connection has none
        match fcntl(&self.descriptor, FcntlArg::F_GETPIPE_SZ) {
            Ok(size) => (size as usize / PAGE / 2 * PAGE).clamp(1, MAY_BE_FULL),
            Err(_) => MAY_BE_FULL,
        }
    }

    /// Sends as much as there is room for. Returns whether that was anything.
    pub fn flush(&mut self) -> bool {
        let mut any = false;
        while !self.unsent.is_empty() {
            let (first, _) = self.unsent.as_slices();
            match nix::unistd::write(&self.descriptor, first) {
                Ok(written) => {
                    any |= written > 0;
                    self.unsent.drain(..written);
                }
                Err(nix::errno::Errno::EINTR) => {}
                Err(nix::errno::Errno::EAGAIN) => break,
                // nobody reads it any more
                Err(_) => self.unsent.clear(),
            }
        }
        any
    }
}
