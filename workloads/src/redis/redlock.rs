//! `redlock`: one key on each of N independent masters, held by the majority.
//!
//! 1. take the time; SET key value NX PX lease on all masters at once, with one random value;
//! 2. the lock is held if a majority took it while the validity, which counts from that time, has not ended;
//! 3. else delete it everywhere, also where it was refused or not answered, and try again after a random pause;
//! 4. a script on all masters to release: DEL the key if it still has the value.
//!
//! One does not wait for a minority that is silent: what it would answer changes nothing. The delete follows the SET on
//! the same connection, so it cannot overtake it.
//!
//! Source: "The Redlock algorithm", in Redis's "Distributed locks" page.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::guard::{Vigil, watch_over};
use super::keyed::VALIDITY;
use super::lock_key;
use super::session::{RedisConnect, RedisSession};
use crate::client::{Grant, LockClient, NotOk, Outcome};
use crate::host::Task;
use crate::protocol::Acquire;
use crate::recipe::Seat;
use crate::session::SessionError;

/// As many as the source says.
pub const MASTERS: u32 = 5;

pub fn open(seat: Seat<dyn RedisConnect>) -> Box<dyn LockClient> {
    let masters = (0..seat.store.servers()).map(|server| {
        Rc::new(Master {
            server,
            session: RefCell::default(),
        })
    });
    let masters = masters.collect();
    Box::new(Redlock {
        seat,
        masters,
        held: BTreeMap::new(),
    })
}

struct Redlock {
    seat: Seat<dyn RedisConnect>,
    masters: Vec<Rc<Master>>,
    held: BTreeMap<String, Held>,
}

struct Held {
    value: String,
    _guard: Option<Task>,
}

/// One master and the connection to it, made anew when it breaks.
struct Master {
    server: usize,
    session: RefCell<Option<Rc<dyn RedisSession>>>,
}

impl Master {
    async fn session(&self, store: &dyn RedisConnect) -> Result<Rc<dyn RedisSession>, SessionError> {
        let current = self.session.borrow().clone();
        if let Some(session) = current.filter(|session| !session.is_broken()) {
            return Ok(session);
        }
        let session = store.connect(self.server).await?;
        self.session.replace(Some(session.clone()));
        Ok(session)
    }
}

/// The question that is put to all masters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    Take,
    Delete,
}

/// The answers of the masters, as far as they were waited for.
#[derive(Debug, Default, Clone, Copy)]
struct Votes {
    yes: usize,
    /// It is surely not so there.
    no: usize,
}

impl Redlock {
    fn quorum(&self) -> usize {
        self.masters.len() / 2 + 1
    }

    /// Asks all masters at once, and waits until `enough` is known, or nobody is left who will answer in time.
    async fn ask(&self, ask: Ask, key: &str, value: &str, enough: impl Fn(Votes) -> bool) -> Votes {
        let (sender, mut answers) = mpsc::unbounded_channel();
        for master in &self.masters {
            let (seat, master, sender) = (self.seat.clone(), master.clone(), sender.clone());
            let (key, value) = (key.to_owned(), value.to_owned());
            let task = self.seat.host.spawn(Box::pin(async move {
                let answer = match master.session(&*seat.store).await {
                    Err(error) => Err(error),
                    Ok(session) if ask == Ask::Take => session.set_nx(&key, &value, Some(seat.lease)).await,
                    Ok(session) => session.del_if(&key, &value).await,
                };
                // nobody waits any more for what comes late
                let _ = sender.send(answer);
            }));
            task.detach();
        }
        drop(sender);
        let mut votes = Votes::default();
        while let Some(answer) = answers.recv().await {
            match answer {
                Ok(true) => votes.yes += 1,
                Ok(false) => votes.no += 1,
                // a SET that never left did not take; a DEL that never left did not delete
                Err(SessionError::Definite(_)) if ask == Ask::Take => votes.no += 1,
                Err(_) => {}
            }
            if enough(votes) {
                break;
            }
        }
        votes
    }

    /// Deletes everywhere; says whether the value surely has no majority (any more), and on how many it was.
    async fn delete(&self, key: &str, value: &str) -> (bool, usize) {
        let minority = self.masters.len() - self.quorum();
        let surely = |votes: Votes| votes.yes + votes.no > minority;
        let votes = self.ask(Ask::Delete, key, value, surely).await;
        (surely(votes), votes.yes)
    }

    fn hold(&mut self, lock: &str, key: String, value: String, asked: Duration) -> Grant {
        let vigil = || Vigil {
            lock: lock.to_owned(),
            key,
            value: value.clone(),
            asked,
        };
        let guard = self.seat.is_careful().then(|| watch_over(&self.seat, vigil()));
        self.held.insert(
            lock.to_owned(),
            Held {
                value: value.clone(),
                _guard: guard,
            },
        );
        Grant {
            token: None,
            owner: Some(value),
        }
    }
}

#[async_trait(?Send)]
impl LockClient for Redlock {
    async fn open(&mut self) -> Outcome<Grant> {
        let mut refused = String::new();
        let mut connected = 0;
        for master in &self.masters {
            match master.session(&*self.seat.store).await {
                Ok(_) => connected += 1,
                Err(error) => refused = error.to_string(),
            }
        }
        if connected >= self.quorum() {
            Ok(Grant::default())
        } else {
            Err(NotOk::Fail(refused))
        }
    }

    async fn acquire(&mut self, request: &Acquire) -> Outcome<Grant> {
        let host = self.seat.host.clone();
        let deadline = host.now() + Duration::from_millis(request.wait_ms);
        let (key, quorum, all) = (lock_key(&request.lock), self.quorum(), self.masters.len());
        let value = format!("{:016x}{:016x}", host.random(), host.random());
        loop {
            let asked = host.now();
            let decided = |votes: Votes| votes.yes >= quorum || votes.no > all - quorum;
            let votes = self.ask(Ask::Take, &key, &value, decided).await;
            let valid = !self.seat.is_careful() || host.now() < asked + self.seat.lease * VALIDITY / 100;
            if votes.yes >= quorum && valid {
                return Ok(self.hold(&request.lock, key, value, asked));
            }
            let (surely, _) = self.delete(&key, &value).await;
            let left = deadline.saturating_sub(host.now());
            if left.is_zero() {
                let unknown = || NotOk::Info("a majority did not answer".into());
                return Err(if surely || votes.no > all - quorum {
                    NotOk::gave_up(request)
                } else {
                    unknown()
                });
            }
            let interval = self.seat.options.interval;
            let draw = u32::try_from(host.random() % 101).expect("a percentage");
            host.sleep((interval / 2 + interval * draw / 100).min(left)).await;
        }
    }

    async fn release(&mut self, lock: &str) -> Outcome<()> {
        let Some(Held { value, .. }) = self.held.remove(lock) else {
            return Err(NotOk::not_held());
        };
        match self.delete(&lock_key(lock), &value).await {
            (true, 0) => Err(NotOk::not_held()),
            (true, _) => Ok(()),
            (false, _) => Err(NotOk::Info("a majority did not answer".into())),
        }
    }

    async fn close(&mut self) {
        for (lock, held) in std::mem::take(&mut self.held) {
            self.delete(&lock_key(&lock), &held.value).await;
        }
    }
}
