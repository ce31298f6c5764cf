//! The client of all queue recipes ([`QueueLock`]): enter the queue, wait to be the first, leave it. The recipe's [`QueueForm`] has the
//! names of its nodes, and the wait of a client.
//!
//! 1. create an ephemeral sequential node under the lock's node; if the reply is lost, look for it by its GUID after a `sync`, and
//!    adopt it or create another;
//! 2. look at the queue until the client is first, or the wait is over;
//! 3. delete the node to release, or to give up. A delete whose reply is lost is repeated, and remembered until it is
//!    surely done; a careful client that holds nothing else ends its session then.

use std::time::Duration;

use async_trait::async_trait;

use super::lock_session::{LockSession, ProofOfLife, WaitEnd, WaitLimits, last_part};
use super::{ZkContext, lock_path, sequence_of};
use crate::client::{LockClient, LockError, LockGrant, LockResult};
use crate::defects::has_defect;
use crate::host::{random_name, within};
use crate::protocol::AcquireRequest;
use crate::session::SessionError;
use crate::session::zk::{ZkSession, ZkWatch, Znode};

/// The differences of queues: the names of their nodes, and the wait of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueForm {
    /// It lists the queue again and again.
    Polling,
    /// It watches the lock's node.
    ParentWatch,
    /// It watches the node just ahead.
    PredecessorWatch,
    /// The same, among candidates.
    Election,
    /// A reader watches the nearest writer ahead, a writer the node just ahead.
    ReadWrite,
}

impl QueueForm {
    /// Returns the beginning of a node's name, after the GUID.
    fn kind(self, request: &AcquireRequest) -> LockResult<&'static str> {
        match self {
            QueueForm::Election => Ok("n_"),
            QueueForm::ReadWrite => match request.mode.as_deref() {
                Some("read") => Ok("read-"),
                Some("write") | None => Ok("write-"),
                Some(other) => Err(LockError::refused(format!(
                    "a mode is \"read\" or \"write\", not {other:?}"
                ))),
            },
            _ => Ok("lock-"),
        }
    }
}

fn is_writer(name: &str) -> bool {
    // the kind is between the GUID, which ends in a dash, and the number
    name.starts_with("write-") || name.contains("-write-")
}

/// A place in the queue.
#[derive(Clone, Copy)]
struct QueuePlace<'a> {
    session: &'a dyn ZkSession,
    parent: &'a str,
    /// The name of the client's own node.
    name: &'a str,
}

/// The result of a look at the queue.
enum QueueLook {
    /// The client is first.
    First,
    /// The client's own node is not in the queue.
    Gone,
    /// Not yet: look again when this fires.
    Watch(ZkWatch),
    /// Not yet: look again after this time.
    Later(Duration),
}

/// Returns the contenders ahead of a name, first come first; `None` if the name itself is not there.
///
/// The order is by sequence number, never by name: a GUID comes first in a name and means nothing.
pub(super) fn ahead_of(name: &str, names: Vec<String>) -> Option<Vec<String>> {
    let is_by_name = has_defect("zk-predecessor-watch", "the queue is in the order of names");
    let own = (sequence_of(name)?, name);
    if !names.iter().any(|other| other == name) {
        return None;
    }
    let mut ahead: Vec<(i32, String)> = names
        .into_iter()
        .filter_map(|name| Some((sequence_of(&name)?, name)))
        .filter(|(sequence, name)| match is_by_name {
            true => name.as_str() < own.1,
            false => (*sequence, name.as_str()) < own,
        })
        .collect();
    ahead.sort_unstable();
    Some(ahead.into_iter().map(|(_, name)| name).collect())
}

/// Watches the nearest node ahead that `matters`; looks again when that one is gone already.
async fn watch_nearest(place: QueuePlace<'_>, matters: impl Fn(&str) -> bool) -> Result<QueueLook, SessionError> {
    loop {
        let names = place.session.children(place.parent).await?;
        let Some(ahead) = ahead_of(place.name, names) else {
            return Ok(QueueLook::Gone);
        };
        let nearest = match has_defect("zk-predecessor-watch", "everybody watches the first") {
            true => ahead.iter().find(|name| matters(name)),
            false => ahead.iter().rfind(|name| matters(name)),
        };
        let Some(nearest) = nearest else {
            return Ok(QueueLook::First);
        };
        let path = [place.parent, "/", nearest].concat();
        if let (Some(_), watch) = place.session.watch_exists(&path).await? {
            return Ok(QueueLook::Watch(watch));
        }
        if has_defect("zk-predecessor-watch", "whose predecessor is gone is first") {
            return Ok(QueueLook::First);
        }
    }
}

/// A client of a queue recipe.
pub(super) struct QueueLock {
    base: LockSession,
    form: QueueForm,
}

impl QueueLock {
    pub(super) fn new(context: ZkContext, form: QueueForm) -> Self {
        QueueLock {
            base: LockSession::new(context),
            form,
        }
    }

    /// Creates the client's node. A create whose reply was lost is found again by its GUID, if it has one.
    async fn enter(
        &mut self,
        session: &dyn ZkSession,
        request: &AcquireRequest,
        limits: WaitLimits,
    ) -> LockResult<Znode> {
        let parent = lock_path(&request.lock);
        let guid = self.guid();
        let prefix = [&*parent, "/", &*guid, self.form.kind(request)?].concat();
        loop {
            let unknown = match session.create_sequential(&prefix).await {
                Err(SessionError::Indefinite(reason)) => reason,
                Err(error @ SessionError::Lost(_)) => {
                    self.base.end_session();
                    return Err(error.into());
                }
                answer => return Ok(answer?),
            };
            if guid.is_empty() || has_defect("zk-predecessor-watch", "an unanswered create is forgotten") {
                return Err(LockError::Unknown(unknown));
            }
            match self.find(session, &parent, &guid, limits.call_limit).await {
                Ok(Some(node)) => return Ok(node),
                Ok(None) if self.base.now() < limits.deadline => {}
                Ok(None) => return Err(LockError::refused(unknown)),
                Err(_) => {
                    self.base.leave_create(&parent, &guid);
                    return Err(LockError::Unknown(unknown));
                }
            }
        }
    }

    /// Draws the beginning of a node's name, if it has a GUID.
    fn guid(&self) -> String {
        let context = &self.base.context;
        match context.options.guid {
            true => random_name(&*context.host) + "-",
            false => String::new(),
        }
    }

    /// Looks for a node by its GUID, when the session is connected again.
    async fn find(
        &self,
        session: &dyn ZkSession,
        parent: &str,
        guid: &str,
        limit: Duration,
    ) -> Result<Option<Znode>, SessionError> {
        let found = self.base.retry(session, limit, async || {
            self.base.sync(session, parent).await?;
            let names = session.children(parent).await?;
            match names.into_iter().find(|name| name.starts_with(guid)) {
                Some(name) => session.exists(&format!("{parent}/{name}")).await,
                None => Ok(None),
            }
        });
        found.await.map(|found| found.answer)
    }

    /// Looks once at the queue from the client's own place in it.
    async fn look(&self, place: QueuePlace<'_>) -> Result<QueueLook, SessionError> {
        let (names, not_yet) = match self.form {
            QueueForm::Polling => {
                let names = place.session.children(place.parent).await?;
                (names, QueueLook::Later(self.base.context.options.interval))
            }
            QueueForm::ParentWatch => {
                let (names, watch) = place.session.watch_children(place.parent).await?;
                (names, QueueLook::Watch(watch))
            }
            QueueForm::PredecessorWatch | QueueForm::Election => return watch_nearest(place, |_| true).await,
            QueueForm::ReadWrite => {
                let writer = is_writer(place.name);
                return watch_nearest(place, |name| writer || is_writer(name)).await;
            }
        };
        Ok(match ahead_of(place.name, names) {
            None => QueueLook::Gone,
            Some(ahead) if ahead.is_empty() => QueueLook::First,
            Some(_) => not_yet,
        })
    }

    /// Looks at the queue until the client is first.
    async fn wait_turn(&self, place: QueuePlace<'_>, lock: &str, limits: WaitLimits) -> Result<ProofOfLife, WaitEnd> {
        let host = &*self.base.context.host;
        let left = || limits.deadline.saturating_sub(host.now());
        loop {
            let proof = self.base.proof(place.session);
            match self.look(place).await {
                Ok(QueueLook::First) if self.base.is_sure(place.session, &proof) => return Ok(proof),
                Ok(QueueLook::First) => {
                    // the connection broke: look again when it is back
                    if !self.base.reconnected(place.session, limits.call_limit).await {
                        return Err(WaitEnd::TimedOut);
                    }
                }
                Ok(QueueLook::Gone) => return Err(WaitEnd::NodeGone),
                Ok(_) if left().is_zero() => return Err(WaitEnd::TimedOut),
                Ok(QueueLook::Later(pause)) => host.sleep(pause.min(left())).await,
                Ok(QueueLook::Watch(watch)) => match within(host, left(), watch).await {
                    Some(event) => {
                        self.base.woken(lock, event)?;
                        if has_defect("zk-predecessor-watch", "who is woken is first") {
                            return Ok(self.base.proof(place.session));
                        }
                    }
                    None => return Err(WaitEnd::TimedOut),
                },
                Err(error) => self.base.ask_again(place.session, error, limits).await?,
            }
        }
    }
}

#[async_trait(?Send)]
impl LockClient for QueueLock {
    async fn open(&mut self) -> LockResult<LockGrant> {
        self.base.open().await
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let (session, limits) = self.base.begin(request).await?;
        let node = self.enter(&*session, request, limits).await?;
        let parent = lock_path(&request.lock);
        let place = QueuePlace {
            session: &*session,
            parent: &parent,
            name: last_part(&node.path),
        };
        match self.wait_turn(place, &request.lock, limits).await {
            Ok(proof) => Ok(self.base.begin_hold(&session, &request.lock, node, &proof)),
            Err(why) => Err(self
                .base
                .withdraw(&*session, request, Some(node.path), why, limits.call_limit)
                .await),
        }
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        self.base.release(lock).await
    }

    async fn close(&mut self) {
        self.base.close().await;
    }
}
