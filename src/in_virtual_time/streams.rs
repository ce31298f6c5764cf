//! Streams from harness to a server of a family ([`FamilyStream`]), for the observer and the questions to servers. They take no time, and
//! no fault acts on them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use harness_simulation::Kept;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::ends::{EndNumber, FamilySaid, OnSaid};
use super::family::Family;
use super::page::connection;

/// The state of a stream, which is kept as long as its world.
struct StreamState {
    family: Rc<Family>,
    end: EndNumber,
    inbox: Rc<StreamInbox>,
}

#[derive(Default)]
struct StreamInbox {
    bytes: RefCell<VecDeque<u8>>,
    is_over: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl StreamInbox {
    fn hear(&self, said: FamilySaid<'_>) {
        match said {
            FamilySaid::Bytes(bytes) => self.bytes.borrow_mut().extend(bytes),
            FamilySaid::End => self.is_over.set(true),
        }
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

/// A connection to a server in virtual time. It closes when it is dropped.
pub struct FamilyStream(Kept<StreamState>);

impl FamilyStream {
    /// Connects to a family; `dial` is given the receiver of its output. The error says why that is not possible now.
    pub fn open(family: &Rc<Family>, dial: impl FnOnce(OnSaid) -> Result<EndNumber, String>) -> Result<Self, String> {
        let inbox: Rc<StreamInbox> = Rc::default();
        let hearing = Rc::clone(&inbox);
        let end = dial(Rc::new(move |said| hearing.hear(said)))?;
        let state = StreamState {
            family: Rc::clone(family),
            end,
            inbox,
        };
        let stream = Self(family.world.keep(state));
        family.step();
        Ok(stream)
    }
}

impl AsyncRead for FamilyStream {
    fn poll_read(self: Pin<&mut Self>, task: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let state = self.0.get();
        let mut bytes = state.inbox.bytes.borrow_mut();
        if bytes.is_empty() && !state.inbox.is_over.get() {
            *state.inbox.waker.borrow_mut() = Some(task.waker().clone());
            return Poll::Pending;
        }
        let read = bytes.len().min(buffer.remaining());
        let taken: Vec<u8> = bytes.drain(..read).collect();
        buffer.put_slice(&taken);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for FamilyStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let state = self.0.get();
        if state.inbox.is_over.get() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        state.family.write(state.end, bytes);
        state.family.step();
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for FamilyStream {
    fn drop(&mut self) {
        // its world may have ended
        if let Some(state) = self.0.try_get()
            && !state.inbox.is_over.replace(true)
        {
            state.family.close(state.end, connection::CLOSED);
            state.family.step();
        }
    }
}
