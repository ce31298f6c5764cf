//! One connection to whichever server of several takes writes, made anew when it breaks.

use std::rc::Rc;
use std::time::Duration;

use super::session::{RedisConnect, RedisSession};
use crate::recipe::Seat;
use crate::session::SessionError;

/// Between two tries that failed at once.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone)]
pub(super) struct Connection {
    seat: Seat<dyn RedisConnect>,
    server: usize,
    session: Option<Rc<dyn RedisSession>>,
}

impl Connection {
    pub(super) fn new(seat: Seat<dyn RedisConnect>) -> Self {
        Connection {
            seat,
            server: 0,
            session: None,
        }
    }

    /// The connection, or a new one if it broke. Tries server after server until the limit.
    pub(super) async fn session(&mut self, limit: Duration) -> Result<Rc<dyn RedisSession>, SessionError> {
        if let Some(session) = &self.session {
            if !session.is_broken() {
                return Ok(session.clone());
            }
            self.go_on();
        }
        loop {
            let refused = match self.seat.store.connect(self.server).await {
                Ok(session) => return Ok(self.session.insert(session).clone()),
                Err(error) => error,
            };
            self.go_on();
            self.seat.host.sleep(RETRY_PAUSE).await;
            if self.seat.host.now() >= limit {
                return Err(refused);
            }
        }
    }

    /// Turns to the next server: this one does not answer, or does not take writes.
    pub(super) fn go_on(&mut self) {
        self.session = None;
        self.server = (self.server + 1) % self.seat.store.servers();
    }

    pub(super) fn close(&mut self) {
        self.session = None;
    }
}
