//! Random scripts for etcd: three clients with a lease each, on the keys of one prefix, and on the lock and election services.

use std::rc::Rc;
use std::time::Duration;

use harness_workloads::etcd::{EtcdKey, EtcdServers, EtcdSession, EtcdWatch, Leader, Listing};
use harness_workloads::{RecipeHost, SessionError, TokioHost, within};

use super::servers::{etcd, open_request};
use super::{
    CLIENTS, STEPS, SeenNumbers, answered, assert_same_answers, draws, in_real_time, kinds, plain, transcripts,
};
use crate::World;
use crate::etcd::SimulatedEtcd;
use crate::network::SimulatedLink;

/// Long: calls must not time out on a busy machine.
const LEASE: Duration = Duration::from_secs(60);
/// A lease that ends in a script, and how long a script waits until it surely has: its time, and a look every half second.
const SHORT: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_millis(3500);
/// The time until no event is under way: one look of the loop for watches that ask for the past, and more.
const SETTLE: Duration = Duration::from_millis(400);
/// The time for which a script waits for a lock that another client may have.
const LOCK_WAIT: Duration = Duration::from_millis(500);

const MUTANTS: [&str; 9] = [
    "etcd: a key is created that exists",
    "etcd: keys outlive their lease",
    "etcd: a lease that is gone can be used",
    "etcd: the lease of a key is not compared",
    "etcd: keys are listed by name",
    "etcd: a watch forgets the past",
    "etcd: the lock service does not wait",
    "etcd: the lock service forgets a client that has gone",
    "etcd: resigning does not compare",
];

#[derive(Debug, Clone, Copy)]
struct EtcdStep {
    client: usize,
    /// One of three keys, and the lease that the step is about: of this client or of another.
    key: usize,
    other: usize,
    what: EtcdStepKind,
}

kinds! {
    EtcdStepKind:
    // another lease for the client, long or short
    Grant 2, GrantShort 0,
    KeepAlive 2, Revoke 1, Create 3,
    // under the lease of another client, which may be gone
    CreateUnder 1,
    Get 1, List 1, Delete 1, DeleteOwned 1,
    // from the next revision on, and from the revision of an earlier answer on
    Watch 1, WatchPast 1,
    Lock 2, Unlock 1, Campaign 2, CampaignAnew 1, Resign 3,
    // as a client that was elected earlier, of whichever lease
    ResignEarlier 2,
    Look 1,
    // until short leases have ended; once in a script
    Wait 0,
}

/// The first ones that are drawn, which take no time.
const OF_STORE: usize = 14;

/// Steps in which a short lease may be taken: they take no time, and a wait follows them.
const BEFORE_WAIT: usize = 6;

fn script(number: u64) -> Vec<EtcdStep> {
    let mut draw = draws(number, "conformance etcd");
    let kinds = EtcdStepKind::drawn();
    let waits_at = BEFORE_WAIT + draw(STEPS - BEFORE_WAIT);
    let steps = (0..STEPS).map(|place| {
        let is_before = (waits_at - BEFORE_WAIT..waits_at).contains(&place);
        EtcdStep {
            client: draw(CLIENTS),
            key: draw(3),
            other: draw(CLIENTS),
            what: match kinds[draw(if is_before { OF_STORE } else { kinds.len() })] {
                _ if place == waits_at => EtcdStepKind::Wait,
                EtcdStepKind::Grant if is_before => EtcdStepKind::GrantShort,
                what => what,
            },
        }
    });
    steps.collect()
}

/// The session of all clients of a script, and their leases and watches.
struct EtcdStand {
    host: Rc<dyn RecipeHost>,
    session: Rc<dyn EtcdSession>,
    /// The lease of each client.
    leases: Vec<i64>,
    /// All leases there were: an id differs from run to run, its place here does not.
    ids: Vec<i64>,
    /// The answer to each client's election.
    leaders: Vec<Option<Leader>>,
    /// The answers to all elections so far.
    elected: Vec<Leader>,
    locked: Vec<Option<String>>,
    watches: Vec<Box<dyn EtcdWatch>>,
    /// The revision of the store after the script's own last change, and of an earlier answer.
    revision: i64,
    earlier: i64,
    /// The revisions of the script's own keys.
    revisions: SeenNumbers<i64>,
    prefix: String,
}

impl EtcdStand {
    /// Runs the script of this number.
    async fn run(host: Rc<dyn RecipeHost>, session: Rc<dyn EtcdSession>, number: u64) -> Vec<String> {
        let mut stand = EtcdStand {
            host,
            session,
            leases: vec![0; CLIENTS],
            ids: Vec::new(),
            leaders: vec![None; CLIENTS],
            elected: Vec::new(),
            locked: vec![None; CLIENTS],
            watches: Vec::new(),
            revision: 0,
            earlier: 0,
            revisions: SeenNumbers::default(),
            prefix: format!("s{number}"),
        };
        for client in 0..CLIENTS {
            stand.grant(client, LEASE).await;
        }
        let mut transcript = answered(script(number), async |step| stand.step(step).await).await;
        transcript.push(stand.look().await);
        transcript
    }

    async fn grant(&mut self, client: usize, ttl: Duration) -> String {
        let granted = self.session.grant_lease(ttl).await;
        if let Ok(lease) = &granted {
            self.leases[client] = lease.id;
            self.ids.push(lease.id);
        }
        plain(granted.map(|lease| lease.ttl))
    }

    async fn step(&mut self, step: &EtcdStep) -> String {
        let session = self.session.clone();
        let lease = self.leases[step.client];
        // in the order of their names and of their creation they are not the same
        let key = format!("{}/{}", self.prefix, ["m", "a", "z"][step.key]);
        match step.what {
            EtcdStepKind::Grant => self.grant(step.client, LEASE).await,
            EtcdStepKind::GrantShort => self.grant(step.client, SHORT).await,
            EtcdStepKind::KeepAlive => plain(session.keep_alive(lease).await),
            EtcdStepKind::Revoke => plain(session.revoke_lease(self.leases[step.other]).await),
            EtcdStepKind::Create => self.create(&*session, &key, lease).await,
            EtcdStepKind::CreateUnder => {
                let place = step.key * 7 + step.other;
                let lease = self.ids[place % self.ids.len()];
                self.create(&*session, &key, lease).await
            }
            EtcdStepKind::Get => {
                let found = session.get(&key).await;
                self.keys(found.map(|found| found.into_iter().collect()))
            }
            EtcdStepKind::List => {
                let listed = session.list(&format!("{}/", self.prefix)).await;
                if let Ok(Listing { revision, .. }) = &listed {
                    (self.earlier, self.revision) = (self.revision, *revision);
                }
                self.keys(listed.map(|listing| listing.keys))
            }
            EtcdStepKind::Delete => plain(session.delete(&key).await),
            EtcdStepKind::DeleteOwned => plain(session.delete_owned(&key, self.leases[step.other]).await),
            EtcdStepKind::Watch | EtcdStepKind::WatchPast => self.watch(&*session, &key, step.what).await,
            EtcdStepKind::Wait => {
                self.host.sleep(WAIT).await;
                "waited".into()
            }
            EtcdStepKind::Look => self.look().await,
            _ => self.service(&*session, step).await,
        }
    }

    /// Takes a step with the lock or the election service.
    async fn service(&mut self, session: &dyn EtcdSession, step: &EtcdStep) -> String {
        let lease = self.leases[step.client];
        let (lock, election) = (format!("{}/lock", self.prefix), format!("{}/election", self.prefix));
        match step.what {
            EtcdStepKind::Lock => {
                let locked = session.lock(&lock, lease, LOCK_WAIT).await;
                // until the server knows that nobody waits
                self.host.sleep(SETTLE).await;
                self.locked[step.client] = locked.as_ref().ok().cloned();
                plain(locked.map(|key| self.named(&key)))
            }
            EtcdStepKind::Unlock => match self.locked[step.client].take() {
                Some(key) => plain(session.unlock(&key).await),
                None => "has none".into(),
            },
            EtcdStepKind::Campaign | EtcdStepKind::CampaignAnew => {
                let value = format!("v{}", step.key % 2);
                let elected = session.campaign(&election, &value, lease, LOCK_WAIT).await;
                self.host.sleep(SETTLE).await;
                if let Ok(leader) = &elected {
                    self.leaders[step.client] = Some(leader.clone());
                    self.elected.push(leader.clone());
                }
                plain(elected.map(|leader| (self.named(&leader.key), self.revisions.ranked(leader.revision))))
            }
            EtcdStepKind::Resign => match self.leaders[step.client].take() {
                Some(leader) => plain(session.resign(&leader).await),
                None => "has none".into(),
            },
            EtcdStepKind::ResignEarlier => match self.elected.get(step.key % self.elected.len().max(1)) {
                Some(leader) => plain(session.resign(leader).await),
                None => "has none".into(),
            },
            other => unreachable!("{other:?} is no step with a service"),
        }
    }

    async fn create(&mut self, session: &dyn EtcdSession, key: &str, lease: i64) -> String {
        match session.create(key, "v", lease).await {
            Ok(created) => {
                (self.earlier, self.revision) = (self.revision, created.revision);
                let is_new = created.revision >= created.key.mod_revision;
                let key = self.keys(Ok(vec![created.key]));
                format!("{key} {is_new}")
            }
            Err(error) => plain::<()>(Err(error)),
        }
    }

    async fn watch(&mut self, session: &dyn EtcdSession, key: &str, what: EtcdStepKind) -> String {
        let from = match what {
            EtcdStepKind::Watch => self.revision,
            _ => self.earlier,
        } + 1;
        let watching = session.watch(key, from).await;
        plain(watching.map(|watch| self.watches.push(watch)))
    }

    /// Returns the events that the watches received.
    async fn look(&mut self) -> String {
        self.host.sleep(SETTLE).await;
        let mut heard = Vec::new();
        for (number, watch) in self.watches.iter_mut().enumerate() {
            while let Some(events) = within(&*self.host, Duration::from_millis(1), watch.next()).await {
                let Ok(events) = events else {
                    heard.push(format!("watch {number}: over"));
                    break;
                };
                heard.extend(events.iter().map(|deleted| format!("watch {number}: {deleted}")));
            }
        }
        heard.join(", ")
    }

    /// Returns keys without the parts that differ from run to run: with the place of their lease, and the order of their revisions.
    fn keys(&mut self, keys: Result<Vec<EtcdKey>, SessionError>) -> String {
        let keys = keys.map(|keys| {
            let key = |key: EtcdKey| {
                let created = self.revisions.ranked(key.create_revision);
                let modified = self.revisions.ranked(key.mod_revision);
                let owner = self.ids.iter().position(|id| *id == key.lease);
                let name = self.named(&key.name);
                format!("{name} {:?} of {owner:?}, {created} {modified}", key.value)
            };
            keys.into_iter().map(key).collect::<Vec<_>>()
        });
        plain(keys)
    }

    /// Returns the name of a service's key, whose end is its lease.
    fn named(&self, key: &str) -> String {
        let Some((head, lease)) = key.rsplit_once('/') else {
            return key.to_owned();
        };
        let id = i64::from_str_radix(lease, 16).ok();
        match self.ids.iter().position(|known| Some(*known) == id) {
            Some(place) => format!("{head}/lease {place}"),
            None => key.to_owned(),
        }
    }
}

fn on_the_model(number: u64) -> Vec<String> {
    World::run(number, async |world: World| {
        let etcd = SimulatedEtcd::start(world, 1);
        let process = world.process("c0");
        let session = etcd.session(SimulatedLink::of_client(world, 0, 1), process, LEASE);
        EtcdStand::run(process.host(), Rc::new(session), number).await
    })
}

/// Returns the answers of a real server to these scripts; `None`: there is no etcd here.
fn on_a_real_server(numbers: &[u64]) -> Option<Vec<Vec<String>>> {
    in_real_time(async {
        let server = etcd().await?;
        let open = open_request("etcd", &[server.address], LEASE);
        let host = TokioHost::shared();
        let run = |number| {
            let session = EtcdServers::new(&open, None, host.clone()).unwrap();
            EtcdStand::run(host.clone(), Rc::new(session), number)
        };
        Some(transcripts(numbers, run).await)
    })
}

#[test]
fn random_scripts_have_the_same_answers_on_the_model_and_on_a_real_etcd() {
    assert_same_answers(on_a_real_server, on_the_model, &MUTANTS);
}
