//! Recipes on real servers, without a run: each excludes, hands over, and a careful client that is cut off raises `lost` in time.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::{Behaviour, LinkControl, Proxy};
use harness_workloads::protocol::{AcquireRequest, LockSignal, LockSignalKind, OpenRequest};
use harness_workloads::{BackendId, LockClient, LockError, Policy, RecipeHost, RecipeOptions, SignalSink, TokioHost};
use tokio::task::LocalSet;

use crate::command::tests;
use crate::machine::{LIMIT, has_no_valkey, plain_servers, serving};

const LEASE: Duration = Duration::from_millis(2000);
/// Number of clients that contend for one lock, and of holds by each.
const CLIENTS: u32 = 4;
const HOLDS: u32 = 10;
/// Calls of these clients to which a busy server may not answer in time.
const SILENCES: u32 = 10;

struct Machine {
    host: Rc<dyn RecipeHost>,
    proxy: Proxy,
    servers: Vec<SocketAddr>,
}

impl Machine {
    fn client(
        &self,
        options: RecipeOptions,
        servers: &[SocketAddr],
        signals: &Rc<RefCell<Vec<LockSignal>>>,
    ) -> Box<dyn LockClient> {
        let signals = signals.clone();
        let out = Rc::new(move |signal| signals.borrow_mut().push(signal));
        let endpoints = servers.iter().map(SocketAddr::to_string).collect();
        let open = OpenRequest::plain(options.recipe.backend.name(), endpoints, LEASE);
        options
            .client(&open, SignalSink::new(1, self.host.clone(), out))
            .unwrap()
    }
}

/// Runs a test with this number of servers of a backend.
fn on(backend: BackendId, nodes: u32, test: impl AsyncFnOnce(&Machine)) {
    let logs = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let cluster = serving(&plain_servers(backend, nodes, LEASE, logs.path())).await;
        let machine = Machine {
            host: TokioHost::shared(),
            proxy: Proxy::start().expect("a thread"),
            servers: cluster.nodes.iter().map(|node| node.address).collect(),
        };
        test(&machine).await;
        cluster.stop().await;
    });
    runtime.shutdown_background();
}

fn wait(lock: &str, wait_ms: u64) -> AcquireRequest {
    AcquireRequest {
        lock: lock.into(),
        wait_ms,
        ..AcquireRequest::default()
    }
}

fn recipes(backend: BackendId) -> impl Iterator<Item = RecipeOptions> {
    backend.recipes().iter().map(|recipe| RecipeOptions {
        interval: Duration::from_millis(20),
        ..RecipeOptions::of(recipe)
    })
}

/// Opens a session, with retries: a new or busy server may not answer the first call in time.
async fn open(machine: &Machine, client: &mut dyn LockClient) {
    let began = machine.host.now();
    while let Err(error) = client.open().await {
        let is_silent = matches!(error, LockError::Unknown(_));
        assert!(is_silent && machine.host.now() - began < LIMIT, "{error:?}");
    }
}

/// Checks that clients take turns: never two inside, tokens that grow, and no `lost`.
async fn excludes(machine: &Machine, options: RecipeOptions) {
    let name = options.recipe.name;
    let signals = Rc::default();
    let (inside, last_token, grants, silences) = (Cell::new(0), Cell::new(0), Cell::new(0), Cell::new(0));
    let turns = async |number: u32| {
        let opened = async || {
            let mut lock = machine.client(options, &machine.servers, &signals);
            open(machine, &mut *lock).await;
            lock
        };
        // a grant that it made all the same ends with its session or its lease
        let is_silent = |error: &LockError| {
            let silent = matches!(error, LockError::Unknown(_)) && silences.get() < SILENCES;
            silences.set(silences.get() + u32::from(silent));
            silent
        };
        let mut lock = opened().await;
        for hold in 0..HOLDS {
            let mut got = lock.acquire(&wait(name, 20_000)).await;
            while got.as_ref().is_err_and(is_silent) {
                lock.close().await;
                lock = opened().await;
                got = lock.acquire(&wait(name, 20_000)).await;
            }
            let grant = got.unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert_eq!(inside.replace(inside.get() + 1), 0, "{name}: two inside");
            assert_eq!(grant.token.is_some(), options.recipe.tokens, "{name}");
            let token = grant.token.unwrap_or(last_token.get() + 1);
            assert!(last_token.replace(token) < token, "{name}: tokens grow");
            tokio::time::sleep(Duration::from_millis(u64::from((number + hold) % 3))).await;
            inside.set(inside.get() - 1);
            grants.set(grants.get() + 1);
            if let Err(error) = lock.release(name).await {
                assert!(is_silent(&error), "{name}: {error:?}");
                lock.close().await;
                lock = opened().await;
            }
        }
        assert_eq!(lock.release(name).await, Err(LockError::NOT_HELD), "{name}");
        lock.close().await;
    };
    tokio::join!(turns(0), turns(1), turns(2), turns(3));
    assert_eq!(grants.get(), CLIENTS * HOLDS);
    assert!(
        signals.borrow().iter().all(|signal| signal.f == LockSignalKind::Woken),
        "{name}: {:?}",
        signals.borrow()
    );
}

/// Checks that a try-lock and a wait both end without the lock while it is held, and that a freed lock is had at once.
async fn gives_up(machine: &Machine, options: RecipeOptions) {
    let (name, lock) = (options.recipe.name, format!("{}-held", options.recipe.name));
    let signals = Rc::default();
    let mut holder = machine.client(options, &machine.servers, &signals);
    let mut other = machine.client(options, &machine.servers, &signals);
    acquired(machine, &mut *holder, &wait(&lock, 0)).await;
    assert_eq!(other.acquire(&wait(&lock, 0)).await, Err(LockError::BUSY), "{name}");
    assert_eq!(
        other.acquire(&wait(&lock, 100)).await,
        Err(LockError::TIMEOUT),
        "{name}"
    );
    holder.release(&lock).await.unwrap();
    other.acquire(&wait(&lock, 5000)).await.unwrap();
    other.release(&lock).await.unwrap();
    holder.close().await;
    other.close().await;
}

/// Acquires, and retries as long as a busy server does not answer in time.
async fn acquired(machine: &Machine, client: &mut dyn LockClient, request: &AcquireRequest) {
    let began = machine.host.now();
    while let Err(why) = client.acquire(request).await {
        assert!(machine.host.now() - began < LIMIT, "{request:?}: {why:?}");
    }
}

/// Asserts that a careful holder whose links are stalled raises `lost` before the end of its lease, and that it works
/// again after the heal.
async fn raises_lost_in_a_partition(machine: &Machine, options: RecipeOptions) {
    let name = options.recipe.name;
    let is_naive = options.policy == Policy::Naive;
    let lock = format!("{name}-cut-{}", if is_naive { "naive" } else { "careful" });
    let link = |server: &SocketAddr| machine.proxy.link("c1->n1".into(), *server, 1).unwrap();
    let links: Vec<_> = machine.servers.iter().map(link).collect();
    let listening: Vec<_> = links.iter().map(|link| link.listen()).collect();
    let signals: Rc<RefCell<Vec<LockSignal>>> = Rc::default();
    let mut holder = machine.client(options, &listening, &signals);
    open(machine, &mut *holder).await;
    acquired(machine, &mut *holder, &wait(&lock, 1000)).await;
    links.iter().for_each(|link| link.apply(1, Behaviour::STALL));
    tokio::time::sleep(LEASE * 85 / 100).await;
    // where this thread is woken late, so is the client on it
    let woke = machine.host.now();
    tokio::time::sleep(LEASE * 65 / 100).await;
    let lost = signals.borrow().clone();
    if is_naive {
        assert!(lost.is_empty(), "{name}: {lost:?}");
    } else {
        assert_eq!(lost.len(), 1, "{name}: {lost:?}");
        assert!(Duration::from_nanos(lost[0].at) < woke + LEASE / 10, "{name}: {lost:?}");
    }
    links.iter().for_each(|link| link.heal(1));
    let _ = holder.release(&lock).await;
    acquired(machine, &mut *holder, &wait(&lock, 1000)).await;
    holder.release(&lock).await.unwrap();
    holder.close().await;
}

/// Returns the recipes that the catalogue does not call broken.
fn unbroken(backend: BackendId) -> impl Iterator<Item = RecipeOptions> {
    recipes(backend).filter(|options| !options.recipe.summary.starts_with("broken"))
}

fn all_work(backend: BackendId, nodes: u32, recipes: impl Iterator<Item = RecipeOptions>) {
    on(backend, nodes, async |machine| {
        for options in recipes {
            excludes(machine, options).await;
            gives_up(machine, options).await;
        }
    });
}

tests! {
    all_work:
        every_zookeeper_recipe_excludes_on_a_real_ensemble(BackendId::Zk, 3, recipes(BackendId::Zk))
        every_etcd_recipe_excludes_on_a_real_cluster(BackendId::Etcd, 3, recipes(BackendId::Etcd))
        every_redis_recipe_excludes_on_real_servers(BackendId::Redis, 5, recipes(BackendId::Redis))
        every_postgres_recipe_that_is_not_broken_excludes_on_a_real_server(BackendId::Postgres, 1, unbroken(BackendId::Postgres))
        every_mariadb_recipe_that_is_not_broken_excludes_on_a_real_server(BackendId::Mariadb, 1, unbroken(BackendId::Mariadb))
        every_nats_recipe_that_is_not_broken_excludes_on_a_real_server(BackendId::Nats, 1, unbroken(BackendId::Nats))
}

#[test]
fn every_recipe_of_redis_and_valkey_excludes_on_real_servers_of_valkey() {
    if !has_no_valkey() {
        let both = [BackendId::Redis, BackendId::Valkey].into_iter();
        all_work(BackendId::Valkey, 5, both.flat_map(recipes));
    }
}

#[test]
fn a_careful_client_that_is_cut_off_raises_lost_in_time_and_a_naive_one_does_not() {
    let each = [
        ("zk-predecessor-watch", 3),
        ("etcd-mutex", 3),
        ("redis-set-px-lua", 1),
        ("pg-row-lease", 1),
        ("mysql-row-lease", 1),
        ("nats-key-revision", 1),
    ];
    let both = |recipe: &str, nodes: u32| {
        let careful = RecipeOptions::named(recipe).unwrap();
        let naive = RecipeOptions {
            policy: Policy::Naive,
            ..careful
        };
        on(careful.recipe.backend, nodes, async |machine| {
            tokio::join!(
                raises_lost_in_a_partition(machine, careful),
                raises_lost_in_a_partition(machine, naive)
            );
        });
    };
    std::thread::scope(|scope| {
        for (recipe, nodes) in each {
            scope.spawn(move || both(recipe, nodes));
        }
    });
}
