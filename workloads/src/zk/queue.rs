//! What all queue recipes share: enter the queue, wait for one's turn, leave it. How one waits is the recipe's [`Order`].
//!
//! 1. create an ephemeral sequential node under the lock's node; if the reply is lost, look for it by its GUID, and
//!    adopt it or create another;
//! 2. look at the queue until it is one's turn, or the wait is over;
//! 3. delete the node to release, or to give up. A delete whose reply is lost is repeated, and remembered until it is
//!    surely done.

use std::time::Duration;

use async_trait::async_trait;

use super::member::{Member, Patience, Proof, Stay, last_part};
use super::session::{Node, Watch, ZkConnect, ZkSession};
use super::{lock_path, sequence_of};
use crate::client::{Grant, LockClient, NotOk, Outcome};
use crate::host::within;
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

/// What a recipe adds to the queue: the name of its nodes, and how it waits.
#[async_trait(?Send)]
pub(super) trait Order {
    /// What a node's name begins with, after the GUID.
    fn kind(&self, _request: &Acquire) -> Result<&'static str, NotOk> {
        Ok("lock-")
    }

    /// One look at the queue from one's own place in it.
    async fn look(&self, place: Place<'_>) -> Result<Turn, SessionError>;
}

/// A place in the queue.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub session: &'a dyn ZkSession,
    pub parent: &'a str,
    /// The name of one's own node.
    pub name: &'a str,
}

/// What a look showed.
pub(super) enum Turn {
    Mine,
    /// One's own node is not in the queue.
    Gone,
    /// Not yet: look again when this fires.
    Watch(Watch),
    /// Not yet: look again after this time.
    Later(Duration),
}

/// The contenders ahead of a name, first come first; `None` if the name itself is not there.
///
/// Order is by sequence number, never by name: a GUID comes first in a name and means nothing.
pub(super) fn ahead_of(name: &str, names: Vec<String>) -> Option<Vec<String>> {
    let mut queue: Vec<_> = names
        .into_iter()
        .filter_map(|name| Some((sequence_of(&name)?, name)))
        .collect();
    queue.sort_unstable();
    let place = queue.iter().position(|(_, other)| other == name)?;
    Some(queue.into_iter().take(place).map(|(_, name)| name).collect())
}

/// Waits for the last of those ahead that `matters`; looks again itself when that one is gone already.
pub(super) async fn behind(place: Place<'_>, matters: impl Fn(&str) -> bool) -> Result<Turn, SessionError> {
    loop {
        let names = place.session.children(place.parent).await?;
        let Some(ahead) = ahead_of(place.name, names) else {
            return Ok(Turn::Gone);
        };
        let Some(nearest) = ahead.iter().rfind(|name| matters(name)) else {
            return Ok(Turn::Mine);
        };
        let path = format!("{}/{nearest}", place.parent);
        if let (Some(_), watch) = place.session.watch_exists(&path).await? {
            return Ok(Turn::Watch(watch));
        }
    }
}

/// A client of a queue recipe.
pub(super) struct Queue<O> {
    member: Member,
    order: O,
}

impl<O: Order> Queue<O> {
    pub(super) fn new(seat: Seat<dyn ZkConnect>, order: O) -> Self {
        Queue {
            member: Member::new(seat),
            order,
        }
    }

    /// Creates one's node. A create whose reply was lost is found again by its GUID, if it has one.
    async fn enter(&mut self, session: &dyn ZkSession, request: &Acquire, patience: Patience) -> Outcome<Node> {
        let parent = lock_path(&request.lock);
        let guid = if self.member.seat.options.guid {
            self.guid()
        } else {
            String::new()
        };
        let prefix = format!("{parent}/{guid}{}", self.order.kind(request)?);
        loop {
            let unknown = match session.create_sequential(&prefix).await {
                Err(SessionError::Indefinite(reason)) => reason,
                Err(error @ SessionError::Lost(_)) => {
                    self.member.end_session();
                    return Err(error.into());
                }
                answer => return Ok(answer?),
            };
            if guid.is_empty() {
                return Err(NotOk::Info(unknown));
            }
            match self.find(session, &parent, &guid, patience.limit).await {
                Ok(Some(node)) => return Ok(node),
                Ok(None) if self.member.now() < patience.deadline => {}
                Ok(None) => return Err(NotOk::Fail(unknown)),
                Err(_) => {
                    self.member.leftovers.doubt(&parent, &guid);
                    return Err(NotOk::Info(unknown));
                }
            }
        }
    }

    fn guid(&self) -> String {
        let host = &self.member.seat.host;
        format!("{:016x}{:016x}-", host.random(), host.random())
    }

    /// Looks for a node by its GUID, when the session is connected again.
    async fn find(
        &self,
        session: &dyn ZkSession,
        parent: &str,
        guid: &str,
        limit: Duration,
    ) -> Result<Option<Node>, SessionError> {
        let found = self.member.insist(session, limit, async || {
            let names = session.children(parent).await?;
            match names.into_iter().find(|name| name.starts_with(guid)) {
                Some(name) => session.exists(&format!("{parent}/{name}")).await,
                None => Ok(None),
            }
        });
        found.await.map(|(node, _)| node)
    }

    /// Looks at the queue until it is one's turn.
    async fn wait_turn(&self, place: Place<'_>, lock: &str, patience: Patience) -> Result<Proof, Stay> {
        let host = &*self.member.seat.host;
        let left = || patience.deadline.saturating_sub(host.now());
        loop {
            let proof = self.member.proof(place.session);
            match self.order.look(place).await {
                Ok(Turn::Mine) if self.member.is_sure(place.session, &proof) => return Ok(proof),
                Ok(Turn::Mine) => self.unsure(place.session, patience).await?,
                Ok(Turn::Gone) => return Err(Stay::Gone),
                Ok(_) if left().is_zero() => return Err(Stay::TooLong),
                Ok(Turn::Later(pause)) => host.sleep(pause.min(left())).await,
                Ok(Turn::Watch(watch)) => match within(host, left(), watch).await {
                    Some(event) => self.member.woken(lock, event)?,
                    None => return Err(Stay::TooLong),
                },
                Err(error) => self.member.ask_again(place.session, error, patience).await?,
            }
        }
    }

    /// It would be one's turn, but for a connection that broke meanwhile: look again when it is back.
    async fn unsure(&self, session: &dyn ZkSession, patience: Patience) -> Result<(), Stay> {
        match self.member.reconnected(session, patience.limit).await {
            true => Ok(()),
            false => Err(Stay::TooLong),
        }
    }
}

#[async_trait(?Send)]
impl<O: Order> LockClient for Queue<O> {
    async fn open(&mut self) -> Outcome<Grant> {
        self.member.open().await
    }

    async fn acquire(&mut self, request: &Acquire) -> Outcome<Grant> {
        let (session, patience) = self.member.begin(request).await?;
        let node = self.enter(&*session, request, patience).await?;
        let parent = lock_path(&request.lock);
        let place = Place {
            session: &*session,
            parent: &parent,
            name: last_part(&node.path),
        };
        match self.wait_turn(place, &request.lock, patience).await {
            Ok(proof) => Ok(self.member.hold(&session, &request.lock, node, &proof)),
            Err(why) => Err(self
                .member
                .give_up(&*session, request, Some(node.path), why, patience.limit)
                .await),
        }
    }

    async fn release(&mut self, lock: &str) -> Outcome<()> {
        self.member.release(lock).await
    }

    async fn close(&mut self) {
        self.member.close().await;
    }
}
