//! Calls of a session to its task (`engine`), and their answers ([`CallResult`]).

use std::cell::RefCell;
use std::collections::VecDeque;
use std::task::Waker;

use harness_workloads::zk::WatchEvent;
use tokio::sync::oneshot;

use super::request::{ZkAnswer, ZkCall, ZkCode};

/// The reason for which a call was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallError {
    Code(ZkCode),
    /// The connection ended under it.
    ConnectionLoss,
    /// The session is over.
    Over,
}

/// An answer, and its watch: a number and the receiver of the event.
pub(super) type Answered = (ZkAnswer, Option<(u64, oneshot::Receiver<WatchEvent>)>);

/// The answer to a call, if it has one.
pub(super) type CallResult = Result<Answered, CallError>;

pub(super) enum ClientRequest {
    Call(ZkCall, oneshot::Sender<CallResult>),
    /// Removes a watch that nobody waits for any more.
    RemoveWatch(String, u64),
}

/// The queue from the session to its task.
#[derive(Default)]
pub(super) struct SharedQueue {
    pub requests: VecDeque<ClientRequest>,
    /// Whether the session was closed: nothing more is asked for.
    pub is_closed: bool,
    /// Whether the session is over.
    pub is_over: bool,
    pub waker: Option<Waker>,
}

impl SharedQueue {
    /// Closes the session: nothing more is asked for.
    pub fn close(queue: &RefCell<Self>) {
        Self::change(queue, |queue| queue.is_closed = true);
    }

    pub fn push(queue: &RefCell<Self>, request: ClientRequest) {
        Self::change(queue, |queue| queue.requests.push_back(request));
    }

    /// Changes the queue, and wakes the task.
    fn change(queue: &RefCell<Self>, change: impl FnOnce(&mut Self)) {
        let waker = {
            let mut queue = queue.borrow_mut();
            change(&mut queue);
            queue.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The kind of a read, by which its answer is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadKind {
    Exists,
    Children,
}

/// A call that waits for its answer.
pub(super) struct WaitingCall {
    pub reads: Option<ReadKind>,
    /// The path that it watches, if it does.
    pub watched: Option<String>,
}

impl WaitingCall {
    pub fn of(call: &ZkCall) -> Self {
        let (reads, path, watch) = match call {
            ZkCall::Exists { path, watch } => (Some(ReadKind::Exists), Some(path), *watch),
            ZkCall::GetChildren { path, watch } => (Some(ReadKind::Children), Some(path), *watch),
            _ => (None, None, false),
        };
        let watched = path.filter(|_| watch).cloned();
        WaitingCall { reads, watched }
    }
}
