//! Random scripts for Redis and Valkey: three clients on two keys of a master, and one client of its replica.

use std::rc::Rc;
use std::time::Duration;

use harness_workloads::redis::{CompareBy, RedisConnect, RedisServers, RedisSession, Subscription};
use harness_workloads::{RecipeHost, TokioHost, within};

use super::servers::{open_request, redis, redis_says};
use super::{CLIENTS, STEPS, answered, assert_same_answers, draws, in_real_time, kinds, plain, transcripts};
use crate::World;
use crate::network::SimulatedLink;
use crate::redis::{RedisRoutes, SimulatedRedis};

/// Long: calls must not time out on a busy machine.
const LEASE: Duration = Duration::from_secs(60);
/// A time to live that ends in a script, and how long a script waits until it surely has.
const SHORT: Duration = Duration::from_millis(1500);
const WAIT: Duration = Duration::from_millis(2000);
const LONG: Duration = Duration::from_secs(600);
/// The time until a replica has the data of its master, and no message of a channel is under way.
const SETTLE: Duration = Duration::from_millis(250);

const MUTANTS: [&str; 8] = [
    "redis: NX is ignored",
    "redis: PX is ignored",
    "redis: GETSET keeps the time to live",
    "redis: PEXPIRE changes nothing",
    "redis: DEL of nothing counts",
    "redis: a script does not compare",
    "redis: nothing is published",
    "redis: a replica takes writes",
];

/// Mutants of the commands by which a client of Valkey compares.
const MUTANTS_OF_VALKEY: [&str; 2] = ["valkey: SET IFEQ does not compare", "valkey: DELIFEQ does not compare"];

/// One step of a script; `client` is a number below [`CLIENTS`].
#[derive(Debug, Clone, Copy)]
struct ScriptStep {
    client: usize,
    key: usize,
    value: usize,
    ttl: Option<Duration>,
    what: ScriptStepKind,
}

kinds! {
    ScriptStepKind:
    SetNx 2, Get 1, GetSet 1, Expire 1, Del 1, DelIf 1, DelIfAndPublish 1, ExpireIf 1, Subscribe 1, Reconnect 1,
    // the same as a client of the replica: writes are refused, reads are a log behind; one in two of its writes is the last of these
    ReplicaGet 1, ReplicaSetNx 1, ReplicaDelIf 0,
    // until short times to live have ended; once in a script
    Wait 0,
}

fn script(number: u64) -> Vec<ScriptStep> {
    let mut draw = draws(number, "conformance redis");
    let kinds = ScriptStepKind::drawn();
    let waits_at = draw(STEPS);
    let steps = (0..STEPS).map(|place| ScriptStep {
        client: draw(CLIENTS),
        key: draw(2),
        value: draw(3),
        ttl: [None, Some(SHORT), Some(LONG)][draw(3)],
        what: match kinds[draw(kinds.len())] {
            _ if place == waits_at => ScriptStepKind::Wait,
            ScriptStepKind::ReplicaSetNx if draw(2) == 0 => ScriptStepKind::ReplicaDelIf,
            what => what,
        },
    });
    steps.collect()
}

/// The sessions and subscriptions of a script.
struct Stand {
    host: Rc<dyn RecipeHost>,
    /// The master and its replica.
    store: Rc<dyn RedisConnect>,
    sessions: Vec<Rc<dyn RedisSession>>,
    replica: Rc<dyn RedisSession>,
    subscriptions: Vec<Option<Box<dyn Subscription>>>,
    prefix: String,
}

impl Stand {
    /// Runs the script of this number.
    async fn run(host: Rc<dyn RecipeHost>, store: Rc<dyn RedisConnect>, number: u64) -> Vec<String> {
        let mut sessions = Vec::new();
        for _ in 0..CLIENTS {
            sessions.push(store.connect(0).await.unwrap());
        }
        let mut stand = Stand {
            host,
            sessions,
            replica: store.connect(1).await.unwrap(),
            store,
            subscriptions: (0..CLIENTS).map(|_| None).collect(),
            prefix: format!("s{number}"),
        };
        let mut transcript = answered(script(number), async |step| stand.step(step).await).await;
        for (client, subscription) in stand.subscriptions.iter_mut().enumerate() {
            let Some(subscription) = subscription else { continue };
            while let Some(message) = within(&*stand.host, SETTLE, subscription.next()).await {
                transcript.push(format!("client {client} heard {message:?}"));
            }
        }
        transcript
    }

    async fn step(&mut self, step: &ScriptStep) -> String {
        let (key, value) = (format!("{}k{}", self.prefix, step.key), format!("v{}", step.value));
        let channel = format!("{}c{}", self.prefix, step.key);
        let session = self.sessions[step.client].clone();
        let ttl = step.ttl.unwrap_or(LONG);
        match step.what {
            ScriptStepKind::SetNx => plain(session.set_nx(&key, &value, step.ttl).await),
            ScriptStepKind::Get => plain(session.get(&key).await),
            ScriptStepKind::GetSet => plain(session.get_set(&key, &value).await),
            ScriptStepKind::Expire => plain(session.expire(&key, ttl).await),
            ScriptStepKind::Del => plain(session.del(&key).await),
            ScriptStepKind::DelIf => plain(session.del_if(&key, &value).await),
            ScriptStepKind::DelIfAndPublish => plain(session.del_if_and_publish(&key, &value, &channel).await),
            ScriptStepKind::ExpireIf => plain(session.expire_if(&key, &value, ttl).await),
            ScriptStepKind::Subscribe => {
                let subscribed = session.subscribe(&channel).await;
                let answer = plain(subscribed.as_ref().map(|_| ()).map_err(Clone::clone));
                // messages to an earlier one are thrown away
                self.subscriptions[step.client] = subscribed.ok();
                answer
            }
            ScriptStepKind::Reconnect => {
                self.sessions[step.client] = self.store.connect(0).await.unwrap();
                session.is_broken().to_string()
            }
            ScriptStepKind::Wait => {
                self.host.sleep(WAIT).await;
                "waited".into()
            }
            ScriptStepKind::ReplicaGet => {
                self.host.sleep(SETTLE).await;
                plain(self.replica.get(&key).await)
            }
            ScriptStepKind::ReplicaSetNx => {
                let answer = plain(self.replica.set_nx(&key, &value, step.ttl).await);
                format!("{answer}, broken: {}", self.replica.is_broken())
            }
            ScriptStepKind::ReplicaDelIf => {
                self.host.sleep(SETTLE).await;
                plain(self.replica.del_if(&key, &value).await)
            }
        }
    }
}

fn on_the_model(number: u64, compare: CompareBy) -> Vec<String> {
    World::run(number, async |world: World| {
        let servers = SimulatedRedis::start(world, 2);
        servers.follow(1, 0);
        world.sleep(SETTLE).await;
        let links = SimulatedLink::of_client(world, 0, 2);
        let process = world.process("c0");
        let store = RedisRoutes::new(servers, links, process, LEASE, compare);
        Stand::run(process.host(), Rc::new(store), number).await
    })
}

/// Returns the answers of a real master and a real replica to these scripts; `None`: their program is not here.
fn on_real_servers(numbers: &[u64], compare: CompareBy) -> Option<Vec<Vec<String>>> {
    in_real_time(async {
        let program = match compare {
            CompareBy::Script => "redis-server",
            CompareBy::Command => "valkey-server",
        };
        let master = redis(program, None).await?;
        let replica = redis(program, Some(master.address)).await?;
        // that came with the whole data; of what is written next, the master sends nothing for up to a second
        master
            .until_ready(|stream| redis_says(stream, "SET in-step still", "OK"))
            .await;
        replica
            .until_ready(|stream| redis_says(stream, "GET in-step", "still"))
            .await;
        let open = open_request("redis", &[master.address, replica.address], LEASE);
        let host = TokioHost::shared();
        let run = |number| {
            let store = RedisServers::new(&open, None, compare).unwrap();
            Stand::run(host.clone(), Rc::new(store), number)
        };
        Some(transcripts(numbers, run).await)
    })
}

#[test]
fn random_scripts_have_the_same_answers_on_the_model_and_on_a_real_redis() {
    let by = CompareBy::Script;
    assert_same_answers(
        |numbers| on_real_servers(numbers, by),
        |number| on_the_model(number, by),
        &MUTANTS,
    );
}

#[test]
fn random_scripts_have_the_same_answers_on_the_model_and_on_a_real_valkey() {
    let by = CompareBy::Command;
    assert_same_answers(
        |numbers| on_real_servers(numbers, by),
        |number| on_the_model(number, by),
        &MUTANTS_OF_VALKEY,
    );
}
