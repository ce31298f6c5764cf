//! The connection of a NATS client that its locks share ([`SharedConnection`]): made again, to the next server, when it broke.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use super::NatsSession;
use crate::recipe::NatsContext;
use crate::session::{RETRY_PAUSE, SessionError};

#[derive(Clone)]
pub(super) struct SharedConnection {
    context: NatsContext,
    session: Rc<RefCell<Option<Rc<NatsSession>>>>,
}

impl SharedConnection {
    pub(super) fn new(context: &NatsContext) -> Self {
        SharedConnection {
            context: context.clone(),
            session: Rc::default(),
        }
    }

    /// Returns the connection, or a new one if it broke; tries until the limit.
    pub(super) async fn session(&self, limit: Duration) -> Result<Rc<NatsSession>, SessionError> {
        loop {
            let known = self.session.borrow().clone();
            if let Some(session) = known.filter(|session| !session.is_broken()) {
                return Ok(session);
            }
            match self.context.store.connect().await {
                Ok(session) => drop(self.session.replace(Some(session))),
                Err(_) if self.context.host.now() < limit => self.context.host.sleep(RETRY_PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn close(&self) {
        self.session.take();
    }
}
