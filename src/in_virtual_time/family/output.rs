//! The output of a family, which harness takes after each step, and the input for which there was no room before.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::SeqCst;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::Family;
use crate::in_virtual_time::ends::{EndNumber, FamilyEnd, FamilySaid, close, read_all};
use crate::in_virtual_time::page::{CONNECTIONS, connection, dirty, kind};

impl Family {
    /// Takes the output of all ends. Returns whether a thread may have waited for that.
    pub(super) fn take(self: &Rc<Self>) -> bool {
        let page = &self.processes.page;
        let mut dirty = page.dirty.swap(0, SeqCst);
        if dirty != 0 && page.inherits.load(SeqCst) == 1 {
            dirty |= dirty::ALL;
        }
        let mut waits = self.flush();
        for number in self.written_to(dirty) {
            let may_be_full = match self.progress.ends.borrow().get(&number) {
                Some(end) if dirty & dirty::FULL == 0 => end.may_be_full(),
                _ => 1,
            };
            waits |= self.take_from(number, dirty & dirty::ALL != 0) >= may_be_full;
        }
        let dialled = page.dialled.load(SeqCst);
        if self.progress.dialled.replace(dialled) != dialled {
            (self.on_network)(self);
        }
        let mut waiting = page.waiting();
        waits && waiting.any(|slot| slot.kind.load(SeqCst) == kind::DESCRIPTORS)
    }

    /// Returns the ends that may have been written to, or closed, by the flags of the page.
    fn written_to(&self, dirty: u32) -> Vec<EndNumber> {
        if dirty == 0 {
            return Vec::new();
        }
        let mut written = [0u64; CONNECTIONS / 64];
        if dirty & dirty::CONNECTIONS != 0 {
            for (kept, word) in written.iter_mut().zip(&self.processes.page.written) {
                if word.load(SeqCst) != 0 {
                    *kept = word.swap(0, SeqCst);
                }
            }
        }
        if dirty & dirty::ALL != 0 {
            return self.readable();
        }
        let is_written = |end: &FamilyEnd| match end.connection {
            Some(number) => written[usize::from(number) / 64] >> (number % 64) & 1 != 0,
            None => dirty & dirty::PIPES != 0,
        };
        let ends = self.progress.ends.borrow();
        let said = ends.iter().filter(|(_, end)| end.on_said.is_some() && is_written(end));
        said.map(|(number, _)| *number).collect()
    }

    /// Sends unsent input for which there is room now. Returns whether there was any.
    fn flush(&self) -> bool {
        let mut ends = self.progress.ends.borrow_mut();
        let unsent = ends.values_mut().filter(|end| !end.unsent.is_empty());
        let flushed = unsent.map(FamilyEnd::flush).filter(|any| *any).count();
        let is_done = |end: &FamilyEnd| end.is_closing && end.unsent.is_empty();
        let done = ends.iter().filter(|(_, end)| is_done(end));
        let done: Vec<_> = done.map(|(number, _)| *number).collect();
        drop(ends);
        for number in done {
            self.close(number, connection::CLOSED);
        }
        flushed > 0
    }

    fn readable(&self) -> Vec<EndNumber> {
        let ends = self.progress.ends.borrow();
        let ends: Vec<_> = ends.iter().filter(|(_, end)| end.on_said.is_some()).collect();
        let mut wanted: Vec<PollFd<'_>> = ends
            .iter()
            .map(|(_, end)| PollFd::new(end.descriptor.as_fd(), PollFlags::POLLIN))
            .collect();
        let _ = poll(&mut wanted, PollTimeout::ZERO);
        let said = |wanted: &PollFd<'_>| wanted.any().unwrap_or(true);
        let numbers = ends.iter().zip(&wanted).filter(|(_, wanted)| said(wanted));
        numbers.map(|((number, _), _)| **number).collect()
    }

    /// Takes the output of one end, up to its end where it may be over. Returns its length.
    pub(super) fn take_from(&self, number: EndNumber, may_be_over: bool) -> usize {
        let (bytes, is_over, on_said) = {
            let ends = self.progress.ends.borrow();
            let Some(end) = ends.get(&number) else { return 0 };
            let mut bytes = Vec::new();
            let is_over = read_all(&end.descriptor, &mut bytes, may_be_over);
            (bytes, is_over, end.on_said.clone())
        };
        let Some(on_said) = on_said else { return 0 };
        if !bytes.is_empty() {
            on_said(FamilySaid::Bytes(&bytes));
        }
        if is_over {
            let ended = self.progress.ends.borrow_mut().remove(&number);
            if let Some(end) = ended {
                close(end.descriptor);
                if let Some(number) = end.connection {
                    // another one may have its number
                    self.processes.page.connections[usize::from(number)].store(connection::CLOSED, SeqCst);
                }
            }
            on_said(FamilySaid::End);
        }
        bytes.len()
    }
}
