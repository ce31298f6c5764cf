//! `harness client-check` with real servers and without faults: acquire, try, wait, release, close, kill, expiry.

mod endings;
mod extensions;

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use harness_checkers::history::event::Fields;
use harness_workloads::IssuedBy;

use super::checked_client::{CheckRefusal, CheckedClient, ReportedGrant, TimedAnswer};
use super::{CheckGround, ClientCheck, contract, in_words, malformed};
use crate::backends::observer::{ObservationLog, ObservationSink};
use crate::clock::GroundClock;
use crate::run::observer::of_observer;
use crate::run::terms::Terms;

/// Time for a try or a wait that must end without the lock.
const SHORT: Duration = Duration::from_millis(400);
/// The number of measurements of an operation's time.
const MEASURED: usize = 200;

/// The grants that the observer saw, with their locks.
#[derive(Default)]
struct SeenGrants(Mutex<Vec<(String, ReportedGrant)>>);

impl ObservationSink for SeenGrants {
    fn signal(&self, name: &'static str, fields: Fields<'_>, _: u64) {
        if name == "granted" {
            let grant = ReportedGrant {
                token: fields.token,
                owner: fields.owner.map(str::to_owned),
            };
            let lock = fields.lock.unwrap_or_default().to_owned();
            self.seen().push((lock, grant));
        }
    }
}

impl SeenGrants {
    fn seen(&self) -> MutexGuard<'_, Vec<(String, ReportedGrant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last grant of a lock.
    fn last_of(&self, lock: &str) -> Option<ReportedGrant> {
        let seen = self.seen();
        let mut of_lock = seen.iter().rev().filter(|(seen, _)| seen == lock);
        of_lock.next().map(|(_, grant)| grant.clone())
    }
}

/// Two clients at the same servers.
struct Pair<'a> {
    check: &'a ClientCheck,
    ground: &'a CheckGround,
    terms: Terms,
    seen: Arc<SeenGrants>,
    a: CheckedClient,
    b: CheckedClient,
    /// A request without an answer was reported: later answers are not judged.
    silence_told: AtomicBool,
}

/// Checks with servers. The error is the observer's.
pub async fn check(check: &ClientCheck, ground: &CheckGround) -> Result<(), String> {
    let Some((a, b)) = opened(check, ground).await else {
        return Ok(());
    };
    let terms = match Terms::of(&check.config, a.contract.clone()) {
        Ok(terms) => terms,
        Err(why) => {
            check.wrong("the contract", why);
            return Ok(());
        }
    };
    contract::add_remarks(check, &terms, a.contract.is_some());
    let seen = Arc::new(SeenGrants::default());
    let clock = ground.place.clock;
    let log = ObservationLog::new(Arc::clone(&seen) as Arc<dyn ObservationSink>, clock);
    let observing = match &ground.observe {
        Some(observe) => {
            let observer = observe(ground.servers.clone(), terms.keys.clone()).await;
            let observer = observer.map_err(of_observer)?;
            observer(log)
        }
        None => Box::pin(std::future::pending()),
    };
    let observing = clock.spawn(observing);
    let mut pair = Pair {
        check,
        ground,
        terms,
        seen,
        a,
        b,
        silence_told: AtomicBool::new(false),
    };
    pair.play().await;
    observing.end().await;
    if !pair.is_silent() {
        malformed::check(check, ground).await;
    }
    pair.a.end().await;
    pair.b.end().await;
    Ok(())
}

async fn opened(check: &ClientCheck, ground: &CheckGround) -> Option<(CheckedClient, CheckedClient)> {
    let mut clients = Vec::new();
    for number in 0..2 {
        let step = ["open", "open of a second client"][number as usize];
        let endpoints = ground.endpoints.clone();
        let mut client = match CheckedClient::start(check, &ground.place, number, endpoints).await {
            Ok(client) => client,
            Err(why) => {
                check.wrong(step, why);
                return None;
            }
        };
        let answer = client.open().await;
        let opened = expect(answer.is_ok(), &answer, "`ok`");
        check.came_to(step, opened).then_some(())?;
        clients.push(client);
    }
    let (b, a) = (clients.pop()?, clients.pop()?);
    if a.contract != b.contract {
        let words = |client: &CheckedClient| client.contract.as_ref().map_or("none".into(), ToString::to_string);
        let seen = format!("the first client answered {}, the second {}", words(&a), words(&b));
        check.wrong("the contract", seen);
    }
    Some((a, b))
}

/// Returns the observed answer, with the right one if it is wrong.
fn expect(right: bool, answer: &TimedAnswer, should: &str) -> Result<String, String> {
    let seen = answer.in_words();
    if right {
        Ok(seen)
    } else {
        Err(format!("{seen}; expected {should}"))
    }
}

fn is_fail(answer: &TimedAnswer, word: &str) -> bool {
    matches!(&answer.answer, Err(CheckRefusal::Fail(error)) if error == word || error.starts_with(&format!("{word}:")))
}

impl Pair<'_> {
    fn lease(&self) -> Duration {
        self.check.config.lease
    }

    fn clock(&self) -> GroundClock {
        self.ground.place.clock
    }

    /// Adds a remark about a step, but none after the one about a request without an answer.
    fn remark(&self, step: &str, outcome: Result<String, String>) -> bool {
        if self.silence_told.fetch_or(self.is_silent(), Relaxed) {
            return false;
        }
        let right = self.check.came_to(step, outcome);
        if self.silence_told.load(Relaxed) {
            self.check.not_judged(
                "all that follows",
                "a client left a request without an answer, so later answers prove nothing",
            );
        }
        right
    }

    /// Adds a remark whether an answer is right.
    fn judge(&self, right: bool, step: &str, answer: &TimedAnswer, should: &str) -> bool {
        self.remark(step, expect(right, answer, should))
    }

    fn judge_ok(&self, step: &str, answer: &TimedAnswer) -> bool {
        self.judge(answer.is_ok(), step, answer, "`ok`")
    }

    fn is_silent(&self) -> bool {
        self.a.is_silent() || self.b.is_silent()
    }

    async fn play(&mut self) {
        if !self.first_grant().await {
            return;
        }
        self.taken().await;
        self.handed_over().await;
        self.two_locks().await;
        self.modes().await;
        self.expiry().await;
        self.extensions().await;
        self.closing().await;
        self.killing().await;
        self.protocol_time().await;
        if self.is_silent() {
            return;
        }
        if let Err(why) = self.b.signals() {
            self.check.wrong("the signals", why);
        }
    }

    /// Checks the acquire of `l0` by the first client, which keeps it.
    async fn first_grant(&self) -> bool {
        let answer = self.a.acquire("l0", Duration::from_secs(5), false).await;
        let step = "acquire of a free lock";
        let Ok(grant) = &answer.answer else {
            return self.judge_ok(step, &answer);
        };
        let words = format!("{}, {}", answer.in_words(), grant.in_words("none"));
        self.remark(step, Ok(words));
        self.is_as_promised(grant);
        self.is_seen(grant).await;
        true
    }

    fn is_as_promised(&self, grant: &ReportedGrant) {
        let contract = &self.terms.contract;
        for (name, issued, has) in [
            ("owner", contract.owner, grant.owner.is_some()),
            ("token", contract.token, grant.token.is_some()),
        ] {
            let promised = issued.map(|issued| issued != IssuedBy::None);
            if promised.is_some_and(|promised| promised != has) {
                let should = if has { "one came" } else { "none came" };
                let seen = format!("the contract promises otherwise: {should}");
                self.check.wrong(&format!("the {name} of a grant"), seen);
            }
        }
    }

    /// Compares a grant with the observed one.
    async fn is_seen(&self, grant: &ReportedGrant) {
        let (contract, check) = (&self.terms.contract, self.check);
        let (step, keys) = ("the lock on the servers", &self.terms.keys.pattern);
        if self.terms.promises().watched == Some(false) {
            return;
        }
        let deadline = self.clock().after(SHORT * 2);
        let seen = loop {
            match self.seen.last_of("l0") {
                None if self.clock().now_ns() < deadline => self.clock().sleep(SHORT / 40).await,
                seen => break seen,
            }
        };
        let Some(seen) = seen else {
            let (key, value) = (keys.key("l0"), self.terms.keys.value);
            let why = format!("nothing appeared at {key} ({value}) while the lock was held");
            return match contract.keys {
                Some(_) => check.wrong(step, format!("{why}: `keys` and `value` of the contract do not fit")),
                None => {
                    let hint = "name its place with `keys` and `value`, or promise `value` none";
                    check.not_judged(step, format!("{why}: {hint}"));
                }
            };
        };
        let words = format!("seen at {}, {}", keys.key("l0"), seen.in_words("unknown"));
        let differs = |issued: Option<IssuedBy>, same: bool| issued == Some(IssuedBy::Server) && !same;
        let owner = differs(
            contract.owner,
            seen.owner.is_none() || grant.owner.is_none() || seen.owner == grant.owner,
        );
        let token = differs(contract.token, seen.token == grant.token);
        let outcome = if owner || token {
            let replied = grant.in_words("none");
            Err(format!(
                "{words}; the reply says {replied}\npromise \"own\" if the client's names are not the server's"
            ))
        } else {
            Ok(words)
        };
        self.remark(step, outcome);
    }

    /// Checks the second client at a lock that is taken.
    async fn taken(&self) {
        let shared = self.terms.demand.is_shared(false);
        if shared {
            let answer = self.b.acquire("l0", Duration::from_secs(5), false).await;
            self.judge_ok("a second permit", &answer);
            self.b.release("l0").await;
            return;
        }
        if self.terms.contract.tries == Some(false) {
            let check = self.check;
            check.not_judged("a try-lock of a taken lock", "the contract promises tries=false");
        } else {
            let answer = self.b.acquire("l0", Duration::ZERO, false).await;
            let busy = is_fail(&answer, "busy");
            self.judge(busy, "a try-lock of a taken lock", &answer, "`fail` with `busy`");
            self.b.give_back(&answer, "l0").await;
        }
        let answer = self.b.acquire("l0", SHORT, false).await;
        let in_time = is_fail(&answer, "timeout") && answer.after + SHORT / 4 > SHORT;
        let should = format!("`fail` with `timeout` after {}", in_words(SHORT));
        self.judge(in_time, "a wait for a lock that stays taken", &answer, &should);
        self.b.give_back(&answer, "l0").await;
    }

    /// Checks a hand-over: the first client releases, and the second one gets the lock.
    async fn handed_over(&self) {
        let wait = Duration::from_secs(10);
        let (waited, released) = tokio::join!(self.b.acquire("l0", wait, false), async {
            self.clock().sleep(SHORT / 4).await;
            self.a.release("l0").await
        });
        self.judge_ok("release", &released);
        let got = waited.is_ok() && waited.after < wait;
        let step = "a waiter when the lock is released";
        self.judge(got, step, &waited, "`ok` soon after the release");
        let released = self.b.release("l0").await;
        self.judge_ok("release of the waiter's own hold", &released);
        let again = self.b.release("l0").await;
        let refused = is_fail(&again, "not held");
        let should = "`fail` with `not held`";
        self.judge(refused, "release of what is not held", &again, should);
        self.tokens().await;
    }

    /// Checks that tokens increase from grant to grant.
    async fn tokens(&self) {
        let mut tokens = Vec::new();
        for client in [&self.a, &self.b, &self.a] {
            let answer = client.acquire("l0", Duration::from_secs(5), false).await;
            tokens.extend(answer.answer.ok().and_then(|grant| grant.token));
            client.release("l0").await;
        }
        if !tokens.is_empty() {
            let increase = tokens.len() == 3 && tokens.is_sorted_by(|one, next| one < next);
            let seen = format!("{tokens:?} of three grants, one after the other");
            let should = || format!("{seen}; a token is larger than all before it, and comes with every grant");
            self.remark("tokens", if increase { Ok(seen.clone()) } else { Err(should()) });
        }
    }

    async fn two_locks(&self) {
        let (one, other) = tokio::join!(
            self.a.acquire("l1", Duration::from_secs(5), false),
            self.b.acquire("l2", Duration::from_secs(5), false)
        );
        let outcome = expect(one.is_ok(), &one, "`ok`").and(expect(other.is_ok(), &other, "`ok`"));
        self.remark("two locks at once", outcome);
        self.a.release("l1").await;
        self.b.release("l2").await;
    }

    /// Checks reads together, and nested holds, if the contract promises them.
    async fn modes(&self) {
        let wait = Duration::from_secs(5);
        if self.terms.contract.read == Some(true) {
            let reader = self.a.acquire("l0", wait, true).await;
            let second = self.b.acquire("l0", wait, true).await;
            let both = reader.is_ok() && second.is_ok();
            self.judge(both, "two readers", &second, "`ok`, together");
            self.b.release("l0").await;
            let writer = self.b.acquire("l0", SHORT, false).await;
            let step = "a writer while there is a reader";
            self.judge(!writer.is_ok(), step, &writer, "no `ok`");
            self.b.give_back(&writer, "l0").await;
            self.a.release("l0").await;
        }
        if self.terms.contract.reentrant == Some(true) {
            self.a.acquire("l0", wait, false).await;
            let again = self.a.acquire("l0", wait, false).await;
            self.judge_ok("acquire by its holder", &again);
            self.a.release("l0").await;
            let other = self.b.acquire("l0", SHORT, false).await;
            let step = "another client after one release of two";
            self.judge(!other.is_ok(), step, &other, "no `ok`");
            self.b.give_back(&other, "l0").await;
            self.a.release("l0").await;
        }
    }

    /// Measures the time of a request and its reply without the servers.
    async fn protocol_time(&self) {
        if self.clock().is_virtual() {
            // where computation takes no time
            return;
        }
        let mut times = Vec::with_capacity(MEASURED);
        for _ in 0..MEASURED {
            let answer = self.b.release("l0").await;
            if matches!(answer.answer, Err(CheckRefusal::None(_))) {
                return;
            }
            times.push(answer.after);
        }
        times.sort_unstable();
        let median = times[MEASURED / 2].as_micros();
        let seen = format!("{median} µs, the median of {MEASURED} releases without a hold, with the client's own work");
        self.check.right("time of an operation", seen);
    }
}
