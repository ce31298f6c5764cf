//! `redlock`: one key on each of N independent masters, held by the majority.
//!
//! 1. take the time; SET key value NX PX lease on all masters at once, with one random value, another one for each attempt;
//! 2. the lock is held if a majority took it while the validity, which counts from that time, has not ended;
//! 3. else delete it everywhere, also where it was refused or not answered, and try again after a random pause;
//! 4. a script on all masters to release: DEL the key if it still has the value.
//!
//! A minority that is silent is not waited for: its answers would change nothing. The delete follows the SET on the same connection, so it
//! cannot overtake it.
//!
//! Source: the Redis documentation, "Distributed Locks with Redis", section "The Redlock Algorithm":
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/#the-redlock-algorithm>. What its holder may
//! not rely on: Martin Kleppmann, "How to do distributed locking", 2016:
//! <https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html>.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc;

use super::redis;
use crate::client::{LockClient, LockError, LockGrant, LockResult};
use crate::client_holds::ClientHolds;
use crate::defects::has_defect;
use crate::host::random_name;
use crate::protocol::AcquireRequest;
use crate::recipe::Recipe;
use crate::redis::lease_keeper::counted_from_reply;
use crate::redis::{RedisContext, lock_key};
use crate::session::SessionError;
use crate::session::redis::{RedisConnect, RedisSession};

/// The number of masters of the source.
const MASTERS: u32 = 5;

pub(super) const RECIPE: Recipe = Recipe {
    servers: Some(MASTERS),
    ..redis("redlock", "SET NX PX on a majority of independent masters", |context| {
        Box::new(Redlock::new(context))
    })
};

struct Redlock {
    context: RedisContext,
    masters: Vec<Rc<Master>>,
    /// The held locks, with their values on the masters.
    held: ClientHolds<String>,
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

/// The command that is sent to all masters.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MasterCommand {
    Take,
    Delete,
}

/// The answers of the masters by their numbers, as far as they were waited for: whether it was done, or surely was not.
struct Votes(Vec<Option<bool>>);

impl Votes {
    fn count(&self, answer: bool) -> usize {
        self.0.iter().filter(|vote| **vote == Some(answer)).count()
    }

    fn yes(&self) -> usize {
        self.count(true)
    }

    fn no(&self) -> usize {
        self.count(false)
    }

    fn answered(&self) -> usize {
        self.yes() + self.no()
    }

    /// Returns on how many masters the value of these votes may be there, or come late, after a delete with the other votes. A SET without
    /// an answer may come late, also after a delete that went over another connection.
    fn may_have_after(&self, deleted: &Self) -> usize {
        let masters = self.0.iter().zip(&deleted.0);
        masters
            .filter(|(taken, deleted)| taken.is_none_or(|taken| taken && deleted.is_none()))
            .count()
    }
}

impl Redlock {
    fn new(context: RedisContext) -> Self {
        let masters = (0..context.store.servers()).map(|server| {
            Rc::new(Master {
                server,
                session: RefCell::default(),
            })
        });
        let masters = masters.collect();
        Redlock {
            held: ClientHolds::new(&context.signals),
            context,
            masters,
        }
    }

    fn quorum(&self) -> usize {
        self.masters.len() / 2 + usize::from(!has_defect("redlock", "half of the masters are enough"))
    }

    /// Sends a command to all masters at once, and waits until `enough` is known, or until all answered or timed out.
    async fn ask(&self, command: MasterCommand, key: &str, value: &str, enough: impl Fn(&Votes) -> bool) -> Votes {
        let (sender, mut answers) = mpsc::unbounded_channel();
        for master in &self.masters {
            let (context, master, sender) = (self.context.clone(), master.clone(), sender.clone());
            let (key, value) = (key.to_owned(), value.to_owned());
            let task = self.context.host.spawn(Box::pin(async move {
                let answer = match master.session(&*context.store).await {
                    Err(error) => Err(error),
                    Ok(session) if command == MasterCommand::Take => {
                        session.set_nx(&key, &value, Some(context.lease)).await
                    }
                    Ok(session) => session.del_if(&key, &value).await,
                };
                // a late answer is not waited for any more
                let _ = sender.send((master.server, answer));
            }));
            task.detach();
        }
        drop(sender);
        let mut votes = Votes(vec![None; self.masters.len()]);
        while let Some((master, answer)) = answers.recv().await {
            votes.0[master] = match answer {
                Ok(done) => Some(done),
                // a SET that never left did not take; a DEL that never left did not delete
                Err(SessionError::Definite(_)) if command == MasterCommand::Take => Some(false),
                Err(_) => None,
            };
            if enough(&votes) {
                break;
            }
        }
        votes
    }

    /// Deletes everywhere, until the value surely has no majority (any more) if these are the votes of its SET. `None`: a majority had it.
    async fn delete(&self, key: &str, value: &str, taken: Option<&Votes>) -> Votes {
        let gone = |votes: &Votes| {
            let is_minority = |taken: &Votes| taken.may_have_after(votes) < self.quorum();
            self.is_known(votes) && taken.is_none_or(is_minority)
        };
        self.ask(MasterCommand::Delete, key, value, gone).await
    }

    /// Returns whether so many masters answered that no majority can be left.
    fn is_known(&self, votes: &Votes) -> bool {
        votes.answered() > self.masters.len() - self.quorum()
    }

    fn hold(&mut self, lock: &str, value: String, asked: Duration) -> LockGrant {
        let watch = self.context.watch_validity(lock, self.context.valid_until(asked));
        self.held.begin(lock, value.clone(), watch);
        LockGrant::to(value, None)
    }
}

#[async_trait(?Send)]
impl LockClient for Redlock {
    async fn open(&mut self) -> LockResult<LockGrant> {
        let mut refused = String::new();
        let mut connected = 0;
        for master in &self.masters {
            match master.session(&*self.context.store).await {
                Ok(_) => connected += 1,
                Err(error) => refused = error.to_string(),
            }
        }
        if connected >= self.quorum() {
            Ok(LockGrant::default())
        } else {
            Err(LockError::refused(refused))
        }
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        let host = self.context.host.clone();
        let deadline = host.now() + Duration::from_millis(request.wait_ms);
        let (key, quorum, all) = (lock_key(&request.lock), self.quorum(), self.masters.len());
        // whether the value of an attempt may have a majority later
        let mut is_doubtful = false;
        loop {
            // a value for each attempt: a delete of the one before it may arrive late, over a connection that was given up, and would
            // delete the key of this one
            let value = random_name(&*host);
            let asked = host.now();
            let decided = |votes: &Votes| votes.yes() >= quorum || votes.no() > all - quorum;
            let votes = self.ask(MasterCommand::Take, &key, &value, decided).await;
            let valid = !self.context.is_careful() || host.now() < self.context.valid_until(asked);
            if votes.yes() >= quorum && has_defect("redlock", "all of the lease counts from the replies") {
                let asked = counted_from_reply(&self.context);
                return Ok(self.hold(&request.lock, value, asked));
            }
            if votes.yes() >= quorum && valid {
                return Ok(self.hold(&request.lock, value, asked));
            }
            let deleted = self.delete(&key, &value, Some(&votes)).await;
            is_doubtful |= votes.may_have_after(&deleted) >= quorum;
            let left = deadline.saturating_sub(host.now());
            if left.is_zero() {
                return Err(if is_doubtful {
                    LockError::Unknown("a majority did not answer".into())
                } else {
                    LockError::wait_over(request)
                });
            }
            host.sleep(self.context.poll_pause().min(left)).await;
        }
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        let value = self.held.end(lock)?;
        let deleted = self.delete(&lock_key(lock), &value, None).await;
        match (self.is_known(&deleted), deleted.yes()) {
            (true, 0) => Err(LockError::NOT_HELD),
            (true, _) => Ok(()),
            (false, _) => Err(LockError::Unknown("a majority did not answer".into())),
        }
    }

    async fn close(&mut self) {
        for (lock, hold) in self.held.end_all() {
            self.delete(&lock_key(&lock), &hold.known, None).await;
        }
    }
}
