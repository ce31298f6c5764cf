//! A look at the locks of a NATS cluster: the last message of each key of the bucket, by the server that leads its stream.
//!
//! A leader that was cut off from the others answers as before until it knows of it, which takes seconds. So every server is asked by a
//! connection of its own, and the answer with the newest message counts. A message that ends by its age leaves nothing: it is not
//! there at the next look.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use harness_workloads::Login;
use harness_workloads::nats::api::{self, BucketState, JetStreamError, StreamAnswer};
use harness_workloads::nats::{KeyMessage, NatsReply, read_value};

use super::{ServerConnection, bucket, connect, key_in, lock_at};
use crate::backends::lock_keys::LockKeys;
use crate::backends::owners::Contender;
use crate::backends::polled::{HeldLock, LockLook, LockTable, OpenedTable};
use crate::cluster::{BoxFuture, EndpointsReceiver, ReachedServers, ServerAccess};

/// How long a server may take to answer before a look does without it: less than what a look may be late by.
const ANSWERS: Duration = Duration::from_millis(60);

/// Opens looks at servers, each of which is asked, whichever is named.
pub fn opening(
    endpoints: EndpointsReceiver,
    reach: ReachedServers,
) -> impl Fn(ServerAccess, LockKeys) -> OpenedTable + Send + Sync + 'static {
    move |_, keys| {
        let (endpoints, reach) = (endpoints.clone(), reach.clone());
        Box::pin(async move {
            let bucket = bucket(keys.pattern.before())?.to_owned();
            let table = NatsLooks {
                endpoints,
                reach,
                stream: api::stream_of(&bucket),
                bucket,
                keys,
                servers: Vec::new(),
                known: KnownBucket::default(),
            };
            Ok(Box::new(table) as Box<dyn LockTable>)
        })
    }
}

struct NatsLooks {
    endpoints: EndpointsReceiver,
    reach: ReachedServers,
    bucket: String,
    stream: String,
    keys: LockKeys,
    servers: Vec<AskedServer>,
    known: KnownBucket,
}

/// What the look before showed.
#[derive(Default)]
struct KnownBucket {
    state: BucketState,
    /// By lock, each with its revision.
    held: BTreeMap<String, (u64, HeldLock)>,
    /// When it began, in nanoseconds.
    began: u64,
}

/// A server, and the connection to it where there is one.
struct AskedServer {
    address: SocketAddr,
    connection: Option<ServerConnection>,
}

/// What a server says of the bucket.
struct BucketView {
    /// In nanoseconds.
    max_age: u64,
    state: BucketState,
    /// By subject; `None` where they are those of the look before.
    messages: Option<BTreeMap<String, KeyMessage>>,
}

impl AskedServer {
    /// `None`: it does not answer, or knows no leader.
    async fn view(
        &mut self,
        reach: &ReachedServers,
        login: Option<&Login>,
        looks: (&str, &str),
        known: &BucketState,
    ) -> Option<BucketView> {
        // one that does not answer in time is left
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(reach, self.address, login).await.ok()?,
        };
        let view = view_over(&mut connection, looks, known).await;
        let (connection, view) = view.map_or((None, None), |view| (Some(connection), view.ok()));
        self.connection = connection;
        view
    }
}

/// `None`: the connection is lost.
async fn view_over(
    connection: &mut ServerConnection,
    (bucket, stream): (&str, &str),
    known: &BucketState,
) -> Option<Result<BucketView, JetStreamError>> {
    let reply = connection.ask(&api::stream_state(stream)).await.ok()?;
    let answer = match api::answer::<StreamAnswer>(&reply) {
        Ok(answer) => answer,
        // no client has made it
        Err(error) if error.is_no_stream() => {
            return Some(Ok(BucketView {
                max_age: 0,
                state: BucketState::default(),
                messages: Some(BTreeMap::new()),
            }));
        }
        Err(error) => return Some(Err(error)),
    };
    let messages = match answer.state == *known {
        true => None,
        false => {
            let subjects = answer.state.subjects.keys();
            let keys = subjects.filter_map(|subject| Some((subject, key_in(bucket, subject)?)));
            let asked = keys.map(|(subject, key)| (subject, api::last_message(bucket, key)));
            let (subjects, asked): (Vec<_>, Vec<_>) = asked.unzip();
            let replies = connection.ask_all(&asked).await.ok()?;
            match messages_of(subjects, &replies) {
                Ok(messages) => Some(messages),
                Err(error) => return Some(Err(error)),
            }
        }
    };
    Some(Ok(BucketView {
        max_age: answer.config.max_age,
        state: answer.state,
        messages,
    }))
}

/// The messages that are there, by subject.
fn messages_of(subjects: Vec<&String>, replies: &[NatsReply]) -> Result<BTreeMap<String, KeyMessage>, JetStreamError> {
    let mut messages = BTreeMap::new();
    for (subject, reply) in subjects.into_iter().zip(replies) {
        if let Some(message) = api::message(reply)? {
            messages.insert(subject.clone(), message);
        }
    }
    Ok(messages)
}

impl NatsLooks {
    async fn ask(&mut self) -> Result<LockLook, String> {
        let clock = self.reach.clock;
        let began = clock.now_ns();
        let login = self.follow();
        let (reach, looks) = (&self.reach, (&*self.bucket, &*self.stream));
        let state = &self.known.state;
        let asked = self.servers.iter_mut().map(|server| {
            let view = server.view(reach, login.as_deref(), looks, state);
            async move { clock.within(ANSWERS, view).await.flatten() }
        });
        let views = join_all(asked).await.into_iter().flatten();
        // of two with the same last message, one has seen another end
        let newest = views.max_by_key(|view| (view.state.last_seq, Reverse(view.state.messages)));
        let view = newest.ok_or("no server knows a leader")?;
        let is_older = view.state.last_seq < self.known.state.last_seq;
        if is_older && view.state != BucketState::default() {
            return Err("only servers that were cut off answer".to_owned());
        }
        self.see(view, began);
        let held = self.known.held.iter();
        Ok(LockLook {
            now_ms: milliseconds(clock.now_ns()),
            held: held.map(|(lock, (_, held))| (lock.clone(), held.clone())).collect(),
            ..LockLook::default()
        })
    }

    /// Follows servers that moved; returns who logs in.
    fn follow(&mut self) -> Option<std::sync::Arc<Login>> {
        let endpoints = self.endpoints.borrow();
        let addresses = endpoints.nodes();
        self.servers.truncate(addresses.len());
        for (place, address) in addresses.iter().enumerate() {
            if self.servers.get(place).map(|server| server.address) != Some(*address) {
                let server = AskedServer {
                    address: *address,
                    connection: None,
                };
                self.servers.truncate(place);
                self.servers.push(server);
            }
        }
        endpoints.login()
    }

    /// Takes over what a look that began then shows.
    fn see(&mut self, view: BucketView, began: u64) {
        let before = std::mem::take(&mut self.known);
        // it was written after the look before began
        let ends_ms = match view.max_age {
            0 => i64::MAX,
            age => milliseconds(before.began.saturating_add(age)),
        };
        let held = match view.messages {
            None => before.held,
            Some(messages) => messages
                .into_iter()
                .filter(|(_, message)| !message.deleted)
                .filter_map(|(subject, message)| {
                    let lock = lock_at(&self.keys, &self.bucket, &subject)?;
                    let held = seen(&message, before.held.get(&lock), ends_ms);
                    Some((lock, (message.revision, held)))
                })
                .collect(),
        };
        self.known = KnownBucket {
            state: view.state,
            held,
            began,
        };
    }
}

/// Who holds a lock by its message, where `before` is what the look before showed of it.
fn seen(message: &KeyMessage, before: Option<&(u64, HeldLock)>, ends_ms: i64) -> HeldLock {
    let (owner, token) = read_value(&message.value);
    let known = before.filter(|(_, held)| held.contender.owner.as_deref() == Some(owner));
    // the revision of a renewal is no token
    let first = known.and_then(|(_, held)| held.contender.token);
    let ends_ms = match known {
        Some((revision, held)) if *revision == message.revision => held.ends_ms,
        _ => Some(ends_ms),
    };
    let contender = Contender {
        owner: Some(owner.to_owned()),
        token: token.or(first).or(Some(message.revision)),
    };
    HeldLock { contender, ends_ms }
}

fn milliseconds(ns: u64) -> i64 {
    (ns / 1_000_000) as i64
}

impl LockTable for NatsLooks {
    fn look(&mut self) -> BoxFuture<'_, Result<LockLook, String>> {
        Box::pin(self.ask())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(revision: u64, value: &str) -> KeyMessage {
        KeyMessage {
            revision,
            value: value.into(),
            deleted: false,
        }
    }

    fn shown(held: &HeldLock) -> (&str, Option<u64>, Option<i64>) {
        (
            held.contender.owner.as_deref().unwrap(),
            held.contender.token,
            held.ends_ms,
        )
    }

    #[test]
    fn a_renewal_lengthens_a_lease_and_is_no_new_grant() {
        let taken = seen(&message(4, "a"), None, 100);
        assert_eq!(shown(&taken), ("a", Some(4), Some(100)));
        let same = seen(&message(4, "a"), Some(&(4, taken.clone())), 120);
        assert_eq!(shown(&same), ("a", Some(4), Some(100)));
        let renewed = seen(&message(5, "a 4"), Some(&(4, taken.clone())), 130);
        assert_eq!(shown(&renewed), ("a", Some(4), Some(130)));
        // a library that writes its own name again
        let rewritten = seen(&message(5, "a"), Some(&(4, taken.clone())), 130);
        assert_eq!(shown(&rewritten), ("a", Some(4), Some(130)));
        let first_seen_late = seen(&message(5, "a 4"), None, 130);
        assert_eq!(shown(&first_seen_late), ("a", Some(4), Some(130)));
        let next = seen(&message(6, "b"), Some(&(4, taken)), 140);
        assert_eq!(shown(&next), ("b", Some(6), Some(140)));
    }
}
