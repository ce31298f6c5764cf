//! A connection to the server of several that takes writes ([`FailoverConnection`]), made anew when it breaks.

use std::rc::Rc;
use std::time::Duration;

use super::RedisContext;
use crate::session::SessionError;
use crate::session::redis::RedisSession;

/// The pause before another try to connect or to release, so that servers that refuse at once are not asked in a loop.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub(super) struct FailoverConnection {
    context: RedisContext,
    server: usize,
    session: Option<Rc<dyn RedisSession>>,
}

impl FailoverConnection {
    pub(super) fn new(context: RedisContext) -> Self {
        FailoverConnection {
            context,
            server: 0,
            session: None,
        }
    }

    /// Returns the connection, or a new one if it broke. Tries server after server until the limit.
    pub(super) async fn session(&mut self, limit: Duration) -> Result<Rc<dyn RedisSession>, SessionError> {
        if let Some(session) = &self.session {
            if !session.is_broken() {
                return Ok(session.clone());
            }
            self.next_server();
        }
        loop {
            let refused = match self.context.store.connect(self.server).await {
                Ok(session) => return Ok(self.session.insert(session).clone()),
                Err(error) => error,
            };
            self.next_server();
            self.context.host.sleep(RETRY_PAUSE).await;
            if self.context.host.now() >= limit {
                return Err(refused);
            }
        }
    }

    /// Turns to the next server: this one does not answer, or is a replica and does not take writes.
    pub(super) fn next_server(&mut self) {
        self.session = None;
        self.server = (self.server + 1) % self.context.store.servers();
    }

    pub(super) fn close(&mut self) {
        self.session = None;
    }
}
