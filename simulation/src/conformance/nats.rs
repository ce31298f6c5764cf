//! Random scripts for NATS: three clients on two keys of the bucket.

use std::rc::Rc;
use std::time::Duration;

use harness_workloads::nats::{KeyMessage, NatsServers, NatsSession};
use harness_workloads::{RecipeHost, SessionError, TokioHost};

use super::servers::{nats, open_request};
use super::{
    CLIENTS, STEPS, SeenNumbers, answered, assert_same_answers, draws, in_real_time, kinds, plain, transcripts,
};
use crate::World;
use crate::nats::{NatsRoutes, SimulatedNats};
use crate::network::SimulatedLink;

/// Long: calls must not time out on a busy machine.
const LEASE: Duration = Duration::from_secs(60);
/// The age of messages, longer than the steps before and after the wait take, and how long a script waits until they surely ended.
const AGE: Duration = Duration::from_secs(6);
const WAIT: Duration = Duration::from_millis(6600);
const A_MOMENT: Duration = Duration::from_millis(20);

const MUTANTS: [&str; 6] = [
    "nats: a write is not compared",
    "nats: a removed message stays",
    "nats: a purge of nothing counts",
    "nats: a delete marker is no message",
    "nats: messages stay past their age",
    "nats: a bucket with another age is the same",
];

#[derive(Debug, Clone, Copy)]
struct NatsStep {
    client: usize,
    key: usize,
    /// The number of revisions by which that of the step precedes the last one.
    back: usize,
    what: NatsStepKind,
}

kinds! {
    NatsStepKind:
    Make 1,
    // with another age
    MakeOther 1,
    Read 3, Create 3,
    // over a revision of this script, which may be over, or of the other key
    Update 2,
    Put 1, Mark 1, Remove 1, Purge 1, Reconnect 1,
    // until all messages have ended; once in a script
    Wait 0,
}

fn script(number: u64) -> Vec<NatsStep> {
    let mut draw = draws(number, "conformance nats");
    let kinds = NatsStepKind::drawn();
    let waits_at = draw(STEPS);
    let steps = (0..STEPS).map(|place| NatsStep {
        client: draw(CLIENTS),
        key: draw(2),
        // most often the last one
        back: [0, 0, 0, 1, 2][draw(5)],
        what: match kinds[draw(kinds.len())] {
            _ if place == waits_at => NatsStepKind::Wait,
            what => what,
        },
    });
    steps.collect()
}

/// The sessions of a script.
struct NatsStand {
    host: Rc<dyn RecipeHost>,
    store: Rc<NatsServers>,
    sessions: Vec<Rc<NatsSession>>,
    /// The revisions of the script's own messages.
    revisions: SeenNumbers<u64>,
    prefix: String,
}

impl NatsStand {
    /// Runs the script of this number.
    async fn run(host: Rc<dyn RecipeHost>, store: Rc<NatsServers>, number: u64) -> Vec<String> {
        let mut sessions = Vec::new();
        for _ in 0..CLIENTS {
            sessions.push(store.connect().await.unwrap());
        }
        // servers refuse some of the creates that come at once, for a moment
        loop {
            match sessions[0].make_bucket(AGE).await {
                Err(SessionError::Indefinite(_)) => host.sleep(A_MOMENT).await,
                made => break made.unwrap(),
            }
        }
        let mut stand = NatsStand {
            host,
            store,
            sessions,
            revisions: SeenNumbers::default(),
            prefix: format!("s{number}"),
        };
        answered(script(number), async |step| stand.step(step).await).await
    }

    async fn step(&mut self, step: &NatsStep) -> String {
        let key = format!("{}k{}", self.prefix, step.key);
        let value = format!("v{}", step.back);
        let session = self.sessions[step.client].clone();
        // no message has the last one
        let earlier = self.revisions.0.iter().rev().nth(step.back);
        let revision = earlier.copied().unwrap_or(u64::MAX / 2);
        match step.what {
            NatsStepKind::Make => plain(session.make_bucket(AGE).await),
            NatsStepKind::MakeOther => plain(session.make_bucket(LEASE).await),
            NatsStepKind::Read => {
                let read = session.read(&key).await;
                plain(read.map(|message| message.map(|message| self.shown(message))))
            }
            NatsStepKind::Create => self.put(&session, &key, &value, Some(0)).await,
            NatsStepKind::Update => self.put(&session, &key, &value, Some(revision)).await,
            NatsStepKind::Put => self.put(&session, &key, &value, None).await,
            NatsStepKind::Mark => plain(session.mark_deleted(&key, revision).await),
            NatsStepKind::Remove => plain(session.remove(revision).await),
            NatsStepKind::Purge => plain(session.purge(&key).await),
            NatsStepKind::Reconnect => {
                self.sessions[step.client] = self.store.connect().await.unwrap();
                session.is_broken().to_string()
            }
            NatsStepKind::Wait => {
                self.host.sleep(WAIT).await;
                "waited".into()
            }
        }
    }

    async fn put(&mut self, session: &NatsSession, key: &str, value: &str, last: Option<u64>) -> String {
        let put = session.put(key, value, last).await;
        plain(put.map(|revision| revision.map(|revision| self.revisions.ranked(revision))))
    }

    fn shown(&mut self, message: KeyMessage) -> String {
        let KeyMessage {
            revision,
            value,
            deleted,
        } = message;
        format!("{} {value:?} {deleted}", self.revisions.ranked(revision))
    }
}

fn on_the_model(number: u64) -> Vec<String> {
    World::run(number, async |world: World| {
        let nats = SimulatedNats::start(world, 1);
        let process = world.process("c0");
        let store = NatsRoutes::to(nats, SimulatedLink::of_client(world, 0, 1), process, LEASE);
        NatsStand::run(process.host(), Rc::new(store), number).await
    })
}

/// Returns the answers of a real server to these scripts; `None`: there is no NATS here.
fn on_a_real_server(numbers: &[u64]) -> Option<Vec<Vec<String>>> {
    in_real_time(async {
        let server = nats().await?;
        let open = open_request("nats", &[server.address], LEASE);
        let host = TokioHost::shared();
        let run = |number| {
            let store = NatsServers::new(&open, None, host.clone());
            NatsStand::run(host.clone(), Rc::new(store), number)
        };
        Some(transcripts(numbers, run).await)
    })
}

#[test]
fn random_scripts_have_the_same_answers_on_the_model_and_on_a_real_nats() {
    assert_same_answers(on_a_real_server, on_the_model, &MUTANTS);
}
