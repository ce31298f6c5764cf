//! Looks at the locks of a NATS cluster: the last message of each key of the bucket, by the server that leads its stream.
//!
//! A leader that was cut off from the others answers as before until it learns of it, which takes seconds. So every server is
//! queried by a connection of its own, and the answer with the newest message counts. The number of that message is kept while no
//! server answers. A message that ends by its age leaves no trace: the next look does not have it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use harness_workloads::nats::api::{self, AgingMessage, BucketState, StreamAnswer};
use harness_workloads::nats::{KeyMessage, NatsError, NatsRequest, read_value};

use super::{ServerConnection, bucket, connect, key_in, lock_at};
use crate::backends::lock_keys::LockKeys;
use crate::backends::owners::Contender;
use crate::backends::polled::{HeldLock, LockLook, LockTable, OpenedTable};
use crate::cluster::{BoxFuture, EndpointsReceiver, ServerAccess};

/// The time of a server's answer before a look ignores it: less than the allowed lateness of a look.
const ANSWERS: Duration = Duration::from_millis(60);

/// The time between two looks from which a message may be much younger than the first of them.
const OUTAGE: Duration = Duration::from_millis(100);

/// Opens looks at servers, each of which is queried.
pub fn open(endpoints: EndpointsReceiver, keys: LockKeys) -> OpenedTable {
    Box::pin(async move {
        let bucket = bucket(keys.pattern.before())?.to_owned();
        let table = NatsLooks {
            endpoints,
            bucket: WatchedBucket {
                stream: api::stream_of(&bucket),
                name: bucket,
                keys,
            },
            servers: Vec::new(),
            known: KnownBucket::default(),
        };
        Ok(Box::new(table) as Box<dyn LockTable>)
    })
}

struct NatsLooks {
    endpoints: EndpointsReceiver,
    bucket: WatchedBucket,
    servers: Vec<AskedServer>,
    known: KnownBucket,
}

/// The bucket with the locks, which may have other keys, too.
struct WatchedBucket {
    name: String,
    stream: String,
    keys: LockKeys,
}

impl WatchedBucket {
    /// Returns the locks that have messages, each with the request for its last one.
    fn locks(&self, state: &BucketState) -> (Vec<String>, Vec<NatsRequest>) {
        let locks = state.subjects.keys().filter_map(|subject| {
            let lock = lock_at(&self.keys, &self.name, subject)?;
            Some((lock, api::last_message(&self.name, key_in(&self.name, subject)?)))
        });
        locks.unzip()
    }
}

/// The result of the previous look.
#[derive(Default)]
struct KnownBucket {
    state: BucketState,
    /// The held locks, each with its message.
    held: BTreeMap<String, (KeyMessage, HeldLock)>,
    /// The time of its begin, in nanoseconds.
    began: u64,
}

/// A server, and the connection to it if there is one.
struct AskedServer {
    access: ServerAccess,
    connection: Option<ServerConnection>,
}

/// A server's view of the bucket.
struct BucketView {
    /// The age at which messages end, in nanoseconds.
    max_age: u64,
    state: BucketState,
    /// The messages by lock; `None` if they are those of the previous look.
    messages: Option<BTreeMap<String, AgingMessage>>,
}

impl AskedServer {
    /// Returns the view, or `None` if the server does not answer, or knows no leader.
    async fn view(&mut self, bucket: &WatchedBucket, known: &BucketState) -> Option<BucketView> {
        // a server that does not answer in time loses its connection
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(&self.access).await.ok()?,
        };
        let view = view_over(&mut connection, bucket, known).await.ok()?;
        self.connection = Some(connection);
        view
    }
}

/// Returns the view, or `None` if the server knows no leader. The error is that of a lost connection.
async fn view_over(
    connection: &mut ServerConnection,
    bucket: &WatchedBucket,
    known: &BucketState,
) -> Result<Option<BucketView>, NatsError> {
    let reply = connection.ask(&api::stream_state(&bucket.stream)).await?;
    let answer = match api::answer::<StreamAnswer>(&reply) {
        Ok(answer) => answer,
        // no client has made the bucket
        Err(error) if error.is_no_stream() => {
            return Ok(Some(BucketView {
                max_age: 0,
                state: BucketState::default(),
                messages: Some(BTreeMap::new()),
            }));
        }
        Err(_) => return Ok(None),
    };
    let mut messages = None;
    if answer.state != *known {
        let (locks, asked) = bucket.locks(&answer.state);
        let replies = connection.ask_all(&asked).await?;
        let known: Result<Vec<_>, _> = replies.iter().map(api::aging_message).collect();
        let Ok(known) = known else { return Ok(None) };
        let there = locks.into_iter().zip(known);
        messages = Some(there.filter_map(|(lock, message)| Some((lock, message?))).collect());
    }
    Ok(Some(BucketView {
        max_age: answer.config.max_age,
        state: answer.state,
        messages,
    }))
}

impl NatsLooks {
    async fn ask(&mut self) -> Result<LockLook, String> {
        let clock = self.endpoints.borrow().clock();
        let began = clock.now_ns();
        self.follow();
        let (bucket, state) = (&self.bucket, &self.known.state);
        let asked = self.servers.iter_mut().map(|server| {
            let view = server.view(bucket, state);
            async move { clock.within(ANSWERS, view).await.flatten() }
        });
        let views = join_all(asked).await.into_iter().flatten().collect();
        let newest = self.known.newest(views, self.servers.len());
        if newest.is_err() {
            // servers that lost writes issue their numbers again: equal states may have other messages
            self.known.state.subjects.clear();
        }
        self.see(newest?, began);
        let held = self.known.held.iter();
        Ok(LockLook {
            now_ms: milliseconds(clock.now_ns()),
            held: held.map(|(lock, (_, held))| (lock.clone(), held.clone())).collect(),
            ..LockLook::default()
        })
    }

    /// Replaces the servers whose addresses changed.
    fn follow(&mut self) {
        let accesses = self.endpoints.borrow().accesses();
        self.servers.truncate(accesses.len());
        for (place, access) in accesses.into_iter().enumerate() {
            if self.servers.get(place).map(|server| server.access.address) != Some(access.address) {
                self.servers.truncate(place);
                self.servers.push(AskedServer {
                    access,
                    connection: None,
                });
            }
        }
    }

    /// Stores the view of a look that began then.
    fn see(&mut self, view: BucketView, began: u64) {
        let before = std::mem::take(&mut self.known);
        let max_age = Some(view.max_age).filter(|age| *age > 0).map(Duration::from_nanos);
        let held = match view.messages {
            None => before.held,
            Some(messages) => {
                let there = messages.into_iter().filter(|(_, aging)| !aging.message.deleted);
                let held = there.map(|(lock, aging)| {
                    let held = before.holder((&lock, &aging), (max_age, began), self.bucket.keys.repeats);
                    (lock, (aging.message, held))
                });
                held.collect()
            }
        };
        self.known = KnownBucket {
            state: view.state,
            held,
            began,
        };
    }
}

impl KnownBucket {
    /// Returns the newest of the views, of so many servers. A view without the last known message is that of a server that was cut off,
    /// unless every server has it: then the message is lost, or the bucket was made again.
    fn newest(&self, views: Vec<BucketView>, servers: usize) -> Result<BucketView, &'static str> {
        let (all_answer, most_answer) = (views.len() == servers, views.len() > servers / 2);
        // of two views with the same last message, the one with fewer has seen another message end
        let views = views.into_iter();
        let newest = views.max_by_key(|view| (view.state.last_seq, Reverse(view.state.messages)));
        let view = newest.ok_or("no server knows a leader")?;
        if view.state.last_seq < self.state.last_seq && !all_answer {
            return Err("only servers that were cut off answer");
        }
        // the last leader, if it was cut off, has nothing newer, while the answer of the next one is late
        if view.state.last_seq == self.state.last_seq && !most_answer {
            return Err("most servers do not answer");
        }
        Ok(view)
    }

    /// Returns the holder of a lock by its message, at a look that began then. `repeats`: see [`LockKeys`].
    fn holder(
        &self,
        (lock, aging): (&str, &AgingMessage),
        (max_age, began): (Option<Duration>, u64),
        repeats: bool,
    ) -> HeldLock {
        let message = &aging.message;
        let known = self.held.get(lock);
        if let Some((_, same)) = known.filter(|(seen, _)| seen == message) {
            return same.clone();
        }
        let known = known.map(|(_, held)| &held.contender);
        let (owner, token) = self.owner_in(message, known);
        // the revision of a renewal is no token
        let renewed = known.filter(|known| repeats && known.owner.as_deref() == Some(owner));
        let first = renewed.and_then(|known| known.token);
        // it was written after the previous look began. Of two ages the shorter one may count
        let ages = max_age.into_iter().chain(aging.own_age);
        let age = ages.min().map(nanoseconds);
        let ends_ms = |written: u64| age.map_or(i64::MAX, |age| milliseconds(age.saturating_add(written)));
        // after an outage, it may be as young as the answer
        let latest = match began.saturating_sub(self.began) > nanoseconds(OUTAGE) {
            true => began.saturating_add(nanoseconds(ANSWERS)),
            false => self.began,
        };
        HeldLock {
            contender: Contender {
                owner: Some(owner.to_owned()),
                token: token.or(first).or(Some(message.revision)),
            },
            ends_ms: Some((ends_ms(self.began), ends_ms(latest))),
        }
    }

    /// Returns the owner in a message, and the token if its value ends with one: an earlier revision, by which the known owner
    /// took the lock, or one after the previous look. Another number is a part of the owner's name.
    fn owner_in<'m>(&self, message: &'m KeyMessage, known: Option<&Contender>) -> (&'m str, Option<u64>) {
        let (owner, token) = read_value(&message.value);
        let is_known = known.is_some_and(|known| known.owner.as_deref() == Some(owner));
        let is_token = |token: &u64| *token < message.revision && (is_known || *token > self.state.last_seq);
        match token.filter(is_token) {
            Some(token) => (owner, Some(token)),
            None => (message.value.as_str(), None),
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn milliseconds(ns: u64) -> i64 {
    (ns / 1_000_000) as i64
}

impl LockTable for NatsLooks {
    fn look(&mut self) -> BoxFuture<'_, Result<LockLook, String>> {
        Box::pin(self.ask())
    }

    fn connects_again(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;

    use super::*;
    use crate::cluster::Endpoints;

    const LEASE: Option<Duration> = Some(Duration::from_millis(100));

    /// The result of the next look at a lock, after one that began then.
    struct NextLook {
        before: KnownBucket,
        max_age: Option<Duration>,
        repeats: bool,
    }

    impl NextLook {
        /// Begins without a look.
        fn first() -> Self {
            NextLook {
                before: KnownBucket::default(),
                max_age: LEASE,
                repeats: true,
            }
        }

        /// Returns the owner, the token, and the end in milliseconds.
        fn shows(&mut self, revision: u64, value: &str) -> (String, Option<u64>, Option<i64>) {
            self.shows_aging(revision, value, None)
        }

        fn shows_aging(
            &mut self,
            revision: u64,
            value: &str,
            own_age: Option<Duration>,
        ) -> (String, Option<u64>, Option<i64>) {
            let message = KeyMessage {
                revision,
                value: value.into(),
                deleted: false,
            };
            let aging = AgingMessage { message, own_age };
            let began = self.before.began + 10_000_000;
            let held = self.before.holder(("l0", &aging), (self.max_age, began), self.repeats);
            let shown = (
                held.contender.owner.clone().unwrap(),
                held.contender.token,
                held.ends_ms.map(|(earliest, _)| earliest),
            );
            self.before.held.insert("l0".into(), (aging.message, held));
            self.before.state.last_seq = revision;
            self.before.began = began;
            shown
        }
    }

    fn shown(owner: &str, token: u64, ends_ms: i64) -> (String, Option<u64>, Option<i64>) {
        (owner.into(), Some(token), Some(ends_ms))
    }

    #[test]
    fn a_renewal_lengthens_a_lease_and_is_no_new_grant() {
        let mut look = NextLook::first();
        assert_eq!(look.shows(4, "a"), shown("a", 4, 100));
        assert_eq!(look.shows(4, "a"), shown("a", 4, 100));
        assert_eq!(look.shows(5, "a 4"), shown("a", 4, 120));
        assert_eq!(look.shows(6, "b"), shown("b", 6, 130));
        // a library that writes its own name again
        assert_eq!(look.shows(7, "b"), shown("b", 6, 140));
        assert_eq!(
            NextLook::first().shows(5, "a 4"),
            shown("a", 4, 100),
            "it was not seen before"
        );
    }

    #[test]
    fn what_is_not_renewed_and_written_again_is_taken_again() {
        let mut look = NextLook::first();
        look.repeats = false;
        assert_eq!(look.shows(4, "host"), shown("host", 4, 100));
        assert_eq!(look.shows(6, "host"), shown("host", 6, 110));
    }

    #[test]
    fn a_number_that_is_no_earlier_revision_belongs_to_the_name() {
        let mut look = NextLook::first();
        assert_eq!(look.shows(40, "job"), shown("job", 40, 100));
        for (revision, value) in [(41, "host 4711"), (42, "worker 3"), (43, "worker 4"), (44, "worker 4")] {
            assert_eq!(look.shows(revision, value).0, value);
        }
        // taken and renewed since the previous look
        assert_eq!(look.shows(50, "a 46"), shown("a", 46, 150));
    }

    /// A look that forgets the last known message takes the number in a name for a token, and the state of a server that was cut off for
    /// the present one.
    #[test]
    fn a_look_after_an_outage_is_compared_with_the_one_before_it() {
        let mut look = NextLook::first();
        assert_eq!(look.shows(40, "job"), shown("job", 40, 100));
        assert_eq!(look.shows(98, "5eed 3"), shown("5eed 3", 98, 110));
        let view = |last_seq| BucketView {
            max_age: 0,
            state: BucketState {
                last_seq,
                ..BucketState::default()
            },
            messages: None,
        };
        let newest = |views: &[u64]| {
            let newest = look.before.newest(views.iter().map(|last| view(*last)).collect(), 3);
            newest.map(|view| view.state.last_seq)
        };
        newest(&[]).unwrap_err();
        newest(&[97]).unwrap_err();
        newest(&[0, 97]).unwrap_err();
        newest(&[98]).unwrap_err();
        assert_eq!(newest(&[97, 98]), Ok(98));
        assert_eq!(newest(&[120]), Ok(120));
        assert_eq!(newest(&[97, 96, 97]), Ok(97), "the last message is lost");
        assert_eq!(newest(&[0, 0, 0]), Ok(0), "the bucket was removed");
        assert_eq!(look.shows(120, "beef 1"), shown("beef 1", 120, 120));
    }

    #[tokio::test]
    async fn the_last_message_is_known_through_an_outage() {
        // no server is there
        let (_endpoints, endpoints) = watch::channel(Endpoints::new(vec![([127, 0, 0, 1], 1).into()], None));
        let mut looks = NatsLooks {
            endpoints,
            bucket: WatchedBucket {
                name: api::BUCKET.into(),
                stream: api::stream_of(api::BUCKET),
                keys: LockKeys::default_of(&super::super::BACKEND),
            },
            servers: Vec::new(),
            known: KnownBucket::default(),
        };
        looks.known.state.last_seq = 98;
        looks.look().await.unwrap_err();
        assert!(looks.connects_again() && looks.known.state.last_seq == 98);
    }

    #[test]
    fn a_revision_that_is_issued_again_is_another_message() {
        let mut look = NextLook::first();
        assert_eq!(look.shows(98, "a"), shown("a", 98, 100));
        assert_eq!(look.shows(98, "b"), shown("b", 98, 110));
    }

    #[test]
    fn the_end_of_a_key_is_that_of_its_own_age_or_of_the_bucket_s() {
        let mut look = NextLook::first();
        let own = |ms| Some(Duration::from_millis(ms));
        assert_eq!(look.shows_aging(1, "a", own(60)), shown("a", 1, 60));
        assert_eq!(look.shows_aging(2, "b", own(500)), shown("b", 2, 110));
        look.max_age = None;
        assert_eq!(look.shows_aging(3, "c", own(500)), shown("c", 3, 520));
        assert_eq!(look.shows(4, "d"), shown("d", 4, i64::MAX));
        let never = look.shows_aging(5, "e", Some(Duration::MAX));
        assert!(never.2 > Some(1_000_000_000_000), "{never:?}");
    }

    #[test]
    fn a_key_that_was_written_in_an_outage_ends_when_it_was_written_first_or_last() {
        let message = KeyMessage {
            revision: 4,
            value: "a".into(),
            deleted: false,
        };
        let own_age = None;
        let aging = AgingMessage { message, own_age };
        let before = KnownBucket::default();
        let ends_ms = |began| before.holder(("l0", &aging), (LEASE, began), true).ends_ms;
        assert_eq!(ends_ms(10_000_000), Some((100, 100)));
        assert_eq!(ends_ms(3_000_000_000), Some((100, 3_160)));
    }

    #[test]
    fn other_keys_of_the_bucket_are_not_asked_for() {
        let bucket = WatchedBucket {
            name: "jobs".into(),
            stream: "KV_jobs".into(),
            keys: LockKeys {
                pattern: "jobs/locks.{lock}".parse().unwrap(),
                ..LockKeys::default_of(&super::super::BACKEND)
            },
        };
        let subjects = [
            "$KV.jobs.locks.l0",
            "$KV.jobs.locks.l0.queue",
            "$KV.jobs.l1",
            "$KV.jobs.locks.l12",
        ];
        let state = BucketState {
            subjects: subjects.map(|subject| (subject.to_owned(), 1)).into(),
            ..BucketState::default()
        };
        let (locks, asked) = bucket.locks(&state);
        assert_eq!(locks, ["l0", "l12"]);
        assert!(String::from_utf8_lossy(&asked[1].payload).contains("$KV.jobs.locks.l12\""));
    }
}
