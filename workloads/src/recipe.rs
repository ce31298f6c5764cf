//! The lock recipes ([`Recipe`]), the context of their clients ([`RecipeContext`]), and the options that every recipe takes.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;
use std::time::Duration;

use crate::backend_id::BackendId;
use crate::client::{LockClient, SignalSink};
use crate::contract::{Contract, IssuedBy, Wakeup};
use crate::defects::has_defect;
use crate::host::{RecipeHost, Task, within};
use crate::reentrant::Reentrant;
use crate::session::SessionError;
use crate::session::etcd::EtcdSession;
use crate::session::nats::NatsServers;
use crate::session::redis::{CompareBy, RedisConnect};
use crate::session::sql::SqlConnect;
use crate::session::zk::ZkConnect;

/// The reaction of a client that can no longer be sure that it holds a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// It no longer believes that it holds the lock, and raises `lost`.
    #[default]
    Careful,
    /// It goes on until it releases, as the usual textbook code does.
    Naive,
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "careful" => Ok(Policy::Careful),
            "naive" => Ok(Policy::Naive),
            _ => Err(format!("unknown holder {text:?}; expected \"careful\" or \"naive\"")),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Careful => "careful",
            Policy::Naive => "naive",
        })
    }
}

/// A lock implementation, with its promises.
#[derive(Debug)]
pub struct Recipe {
    pub name: &'static str,
    pub backend: BackendId,
    /// One line for lists and help, without a period.
    pub summary: &'static str,
    /// Whether the policies careful and naive differ; not so where nothing expires.
    pub policies: bool,
    /// Whether `--guid off` has an effect.
    pub guid: bool,
    pub wakeup: Wakeup,
    /// Whether it can be taken for reading, together with other readers.
    pub modes: bool,
    /// Whether a grant comes with a fencing token.
    pub tokens: bool,
    /// Whether waiters are promised their turn in the order they came.
    pub fifo: bool,
    /// The number of servers that it takes without an option, where that differs from the backend's default: independent masters.
    pub servers: Option<u32>,
    /// The first version of its store, major and minor, that has its commands, where not every one in use does.
    pub since: Option<(u32, u32)>,
    /// Whether the lock expires by itself when its holder is silent for a lease.
    pub lease: bool,
    /// Whether the lease is renewed while the lock is held.
    pub renews: bool,
    /// Whether its user extends the lease, and knows by itself how long that lasts.
    pub extends: bool,
    /// Whether times of the wall clocks of several clients are compared.
    pub wall_clock: bool,
    /// The time after which a waiter asks again; zero where it does not poll.
    pub interval: Duration,
    pub constructor: Constructor,
}

impl Recipe {
    /// Makes a recipe with the values that most recipes have in common; a recipe file changes those that differ.
    pub(crate) const fn new(name: &'static str, summary: &'static str, constructor: Constructor) -> Self {
        Recipe {
            name,
            backend: constructor.backend(),
            summary,
            policies: true,
            guid: false,
            wakeup: Wakeup::Notified,
            modes: false,
            tokens: true,
            fifo: true,
            servers: None,
            since: None,
            lease: true,
            renews: true,
            extends: false,
            wall_clock: false,
            interval: Duration::ZERO,
            constructor,
        }
    }
}

/// Makes a client of a recipe, for each kind of session.
#[derive(Debug, Clone, Copy)]
pub enum Constructor {
    Zk(fn(ZkContext) -> Box<dyn LockClient>),
    Etcd(fn(EtcdContext) -> Box<dyn LockClient>),
    Redis(fn(RedisContext) -> Box<dyn LockClient>, CompareBy),
    Postgres(fn(SqlContext) -> Box<dyn LockClient>),
    Mariadb(fn(SqlContext) -> Box<dyn LockClient>),
    Nats(fn(NatsContext) -> Box<dyn LockClient>),
}

impl Constructor {
    const fn backend(self) -> BackendId {
        match self {
            Constructor::Zk(_) => BackendId::Zk,
            Constructor::Etcd(_) => BackendId::Etcd,
            Constructor::Redis(_, CompareBy::Script) => BackendId::Redis,
            Constructor::Redis(_, CompareBy::Command) => BackendId::Valkey,
            Constructor::Postgres(_) => BackendId::Postgres,
            Constructor::Mariadb(_) => BackendId::Mariadb,
            Constructor::Nats(_) => BackendId::Nats,
        }
    }
}

/// A polling waiter pauses for half the interval and up to this much of it more, so that waiters do not fall into step.
const JITTER_PERCENT: u64 = 100;
/// The part of a lease in which a careful client believes without a renewal, in percent. The rest is for clocks that differ, and for the
/// application to stop in time.
pub(crate) const VALIDITY: u32 = 85;
/// The number of renewals in the time of a lease.
pub(crate) const RENEWALS_A_LEASE: u32 = 3;

/// The contexts of recipes, by the kind of session. A client shares its own with its tasks.
pub type ZkContext = Rc<RecipeContext<dyn ZkConnect>>;
pub type EtcdContext = Rc<RecipeContext<dyn EtcdSession>>;
pub type RedisContext = Rc<RecipeContext<dyn RedisConnect>>;
pub type SqlContext = Rc<RecipeContext<dyn SqlConnect>>;
pub type NatsContext = Rc<RecipeContext<NatsServers>>;

/// The context of a recipe's client: a way to its store, and the machine it runs on.
pub struct RecipeContext<C: ?Sized> {
    pub store: Rc<C>,
    pub host: Rc<dyn RecipeHost>,
    pub signals: SignalSink,
    /// Session timeout or time to live to ask for.
    pub lease: Duration,
    pub options: RecipeOptions,
}

impl<C: ?Sized> RecipeContext<C> {
    pub(crate) fn is_careful(&self) -> bool {
        self.options.policy == Policy::Careful
    }

    /// Returns until when a careful client believes in a lease that was asked for at `asked`.
    pub(crate) fn valid_until(&self, asked: Duration) -> Duration {
        let late = has_defect("redis-set-px-lua", "doubt comes after the lease");
        asked + self.lease * if late { 150 } else { VALIDITY } / 100
    }

    /// Returns the pause before a polling waiter asks again: 50 to 150 percent of the interval, at random.
    pub(crate) fn poll_pause(&self) -> Duration {
        let interval = self.options.interval;
        let jitter = u32::try_from(self.host.random() % (JITTER_PERCENT + 1)).expect("a percentage");
        interval / 2 + interval * jitter / 100
    }

    /// Raises `lost` for a lock of a careful client when the host's monotonic clock shows `end`, unless the task is dropped before.
    pub(crate) fn watch_validity(&self, lock: &str, end: Duration) -> Option<Task> {
        let (host, signals, lock) = (self.host.clone(), self.signals.clone(), lock.to_owned());
        let watch = async move {
            host.sleep(end.saturating_sub(host.now())).await;
            signals.lost(&lock, "validity ended");
        };
        self.is_careful().then(|| self.host.spawn(Box::pin(watch)))
    }

    /// Renews a lease that was asked for at `asked`, again and again; returns with the cause when it is not sure any more.
    ///
    /// `renew` renews it once, before the given time is over, and answers when it asked for that, or why the lease is the client's no
    /// longer. It is called again `pause` after an error: a renewal that arrives twice only lengthens the client's own lease.
    pub(crate) async fn renew_until_unsure(
        &self,
        mut asked: Duration,
        pause: Duration,
        mut renew: impl AsyncFnMut(Duration) -> Result<Result<Duration, &'static str>, SessionError>,
    ) -> &'static str {
        let host = &*self.host;
        let gives_up = has_defect("redis-watchdog", "an error ends the renewal");
        loop {
            let end = self.valid_until(asked);
            let due = (asked + self.lease / RENEWALS_A_LEASE).min(end);
            host.sleep(due.saturating_sub(host.now())).await;
            let renewed = async {
                loop {
                    match renew(end).await {
                        Ok(renewed) => return renewed,
                        Err(_) if gives_up => std::future::pending().await,
                        Err(_) => host.sleep(pause).await,
                    }
                }
            };
            let left = match gives_up {
                true => Duration::MAX / 2,
                false => end.saturating_sub(host.now()),
            };
            match within(host, left, renewed).await {
                Some(Ok(renewed_at)) => asked = renewed_at,
                Some(Err(cause)) => return cause,
                None => return "lease ran out",
            }
        }
    }
}

/// A recipe with the options that the user chose.
#[derive(Debug, Clone, Copy)]
pub struct RecipeOptions {
    pub recipe: &'static Recipe,
    pub policy: Policy,
    /// Whether a node's name carries a GUID, so that a create whose reply was lost is found again.
    pub guid: bool,
    /// The time after which a waiter asks again, where it polls.
    pub interval: Duration,
    /// Whether a client may take a lock again that it already holds.
    pub reentrant: bool,
}

impl RecipeOptions {
    /// Returns the defaults of a recipe.
    pub const fn of(recipe: &'static Recipe) -> Self {
        RecipeOptions {
            recipe,
            policy: Policy::Careful,
            guid: true,
            interval: recipe.interval,
            reentrant: false,
        }
    }

    /// Returns the promises of a client of this recipe. Its keys are those that the observers look for by default.
    pub fn contract(self) -> Contract {
        let recipe = self.recipe;
        Contract {
            lease: Some(recipe.lease),
            renews: Some(recipe.lease && recipe.renews),
            extends: recipe.extends.then_some(true),
            fifo: Some(recipe.fifo),
            read: Some(recipe.modes),
            reentrant: Some(self.reentrant),
            tries: Some(true),
            wakes: Some(recipe.wakeup),
            owner: Some(IssuedBy::Server),
            token: Some(if recipe.tokens {
                IssuedBy::Server
            } else {
                IssuedBy::None
            }),
            wall_clock: Some(recipe.wall_clock),
            ..Contract::default()
        }
    }

    /// Makes a client of this recipe for the given store, which may be a fake one.
    pub fn build<C: ?Sized>(
        self,
        make: fn(Rc<RecipeContext<C>>) -> Box<dyn LockClient>,
        store: Rc<C>,
        signals: SignalSink,
        lease: Duration,
    ) -> Box<dyn LockClient> {
        let host = signals.host().clone();
        let client = make(Rc::new(RecipeContext {
            store,
            host,
            signals: signals.clone(),
            lease,
            options: self,
        }));
        if self.reentrant {
            Box::new(Reentrant::new(client, &signals))
        } else {
            client
        }
    }
}
