//! Observes the master that sentinels chose, whichever server that is, by [`RedisObserver`]; and says when a grant may have been
//! given elsewhere: a master that was cut off or stopped goes on granting until the sentinels reach it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::connection::RespConnection;
use super::keyspace::RedisServerKeyspaces;
use super::observer::RedisObserver;
use super::resp::RespValue;
use super::sentinel::SERVERS;
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, Observer};
use crate::cluster::{BoxFuture, Endpoints, EndpointsReceiver, ServerAccess};

/// Between two questions to all servers.
const EVERY: Duration = Duration::from_millis(40);
/// A server that takes longer to answer is silent.
const SILENT: Duration = Duration::from_millis(150);
/// The source that is out of sight where a grant may have been given elsewhere, in the history.
const ROLES: &str = "roles";

/// What a server says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerState {
    /// Whether it has written since it was started: a master that was started again and that no client uses has not.
    Master {
        wrote: bool,
    },
    Replica,
    /// Its port refuses connections: there is no process.
    Gone,
}

impl ServerState {
    /// From its answer to `INFO`.
    fn of(info: &str) -> Option<Self> {
        let after = |key: &str| info.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        match after("role:")? {
            "master" => Some(Self::Master {
                wrote: after("rdb_changes_since_last_save:")? != "0",
            }),
            _ => Some(Self::Replica),
        }
    }

    fn is_master(self) -> bool {
        matches!(self, Self::Master { .. })
    }
}

/// What is known of all servers, and which one is watched.
struct MasterChoice {
    watched: usize,
    /// By server: what it said last, and when it was asked for that; silence changes nothing.
    known: Vec<(ServerState, u64)>,
    /// By server: when it was last known not to grant anything out of sight.
    harmless: Vec<u64>,
}

impl MasterChoice {
    /// `None` while no server says that it is the master.
    fn new(answers: &[Option<ServerState>], now: u64) -> Option<Self> {
        let master = |answer: &Option<ServerState>| answer.is_some_and(ServerState::is_master);
        let known = answers.iter().map(|answer| (answer.unwrap_or(ServerState::Gone), now));
        Some(Self {
            watched: answers.iter().position(master)?,
            known: known.collect(),
            harmless: vec![now; answers.len()],
        })
    }

    /// Takes the answers to the questions that were asked at `asked`, `None` from a silent server. Returns since when grants may have
    /// been given out of sight, if that is so now.
    fn hear(&mut self, answers: &[Option<ServerState>], asked: u64) -> Option<u64> {
        for (known, answer) in self.known.iter_mut().zip(answers) {
            if let Some(state) = answer {
                *known = (*state, asked);
            }
        }
        let fresh = |server: usize| answers[server].is_some_and(ServerState::is_master);
        if !fresh(self.watched)
            && let Some(other) = (0..answers.len()).find(|server| fresh(*server))
        {
            self.watched = other;
        }
        let mut since = None;
        for server in 0..answers.len() {
            let (state, heard) = self.known[server];
            let harmless = match state {
                _ if server == self.watched => state.is_master(),
                ServerState::Master { wrote } => !wrote,
                ServerState::Replica | ServerState::Gone => true,
            };
            if harmless {
                self.harmless[server] = heard;
            } else {
                since = Some(since.map_or(self.harmless[server], |since: u64| since.min(self.harmless[server])));
            }
        }
        since
    }
}

/// Asks all servers what they are.
struct ServerStates {
    endpoints: EndpointsReceiver,
    connections: Vec<Option<(SocketAddr, RespConnection)>>,
}

impl ServerStates {
    fn new(endpoints: EndpointsReceiver) -> Self {
        let connections = (0..SERVERS).map(|_| None).collect();
        Self { endpoints, connections }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.endpoints.borrow().nodes().to_vec()
    }

    /// By server; `None` of one that is silent.
    async fn ask(&mut self) -> Vec<Option<ServerState>> {
        let servers: Vec<ServerAccess> = {
            let endpoints = self.endpoints.borrow();
            endpoints
                .nodes()
                .iter()
                .map(|address| endpoints.access(*address))
                .collect()
        };
        let [first, second, third] = &mut self.connections[..] else {
            return vec![None; SERVERS];
        };
        let (first, second, third) = tokio::join!(
            ask(first, &servers[0]),
            ask(second, &servers[1]),
            ask(third, &servers[2])
        );
        vec![first, second, third]
    }
}

/// Asks one server, over the connection that there is to it, or a new one.
async fn ask(kept: &mut Option<(SocketAddr, RespConnection)>, server: &ServerAccess) -> Option<ServerState> {
    let open = kept.take().filter(|(to, _)| *to == server.address);
    let asked = async {
        let mut connection = match open {
            Some((_, connection)) => connection,
            None => match RespConnection::open(server).await {
                Ok(connection) => connection,
                Err(error) if error.contains("refused") => return Some(ServerState::Gone),
                Err(_) => return None,
            },
        };
        let Ok(RespValue::Text(info)) = connection.ask(&["INFO"]).await else {
            return None;
        };
        *kept = Some((server.address, connection));
        ServerState::of(&info)
    };
    tokio::time::timeout(SILENT, asked).await.ok().flatten()
}

pub struct SentinelObserver {
    observer: Box<dyn Observer>,
    states: ServerStates,
    choice: MasterChoice,
    /// The nodes with the one that is watched as the primary, which the observer of one master follows.
    master: watch::Sender<Endpoints>,
}

impl SentinelObserver {
    pub async fn connect(endpoints: EndpointsReceiver, keys: LockKeys) -> Result<Box<dyn Observer>, String> {
        let mut states = ServerStates::new(endpoints);
        let answers = states.ask().await;
        let now = crate::clock::monotonic_ns();
        let choice = MasterChoice::new(&answers, now).ok_or("the observer: no server says that it is the master")?;
        let at_first = Endpoints::new(states.addresses(), Some(choice.watched));
        let (master, of_master) = watch::channel(at_first);
        let login = states.endpoints.borrow().login();
        let keyspaces = Arc::new(RedisServerKeyspaces { login });
        let observer = RedisObserver::connect(keyspaces, of_master, keys, true).await?;
        Ok(Box::new(Self {
            observer,
            states,
            choice,
            master,
        }))
    }

    /// Follows the master from server to server, until it is dropped.
    async fn follow(
        mut states: ServerStates,
        mut choice: MasterChoice,
        master: watch::Sender<Endpoints>,
        log: ObservationLog,
    ) {
        let mut out_of_sight = false;
        loop {
            log.clock.sleep(EVERY).await;
            let asked = log.clock.now_ns();
            let answers = states.ask().await;
            let since = choice.hear(&answers, asked);
            let now = Endpoints::new(states.addresses(), Some(choice.watched));
            // before anything is called in sight again
            if let (Some(since), false) = (since, out_of_sight) {
                log.lost(ROLES, since);
            }
            master.send_if_modified(|before| {
                let other = *before != now;
                *before = now;
                other
            });
            if since.is_none() && out_of_sight {
                log.back(ROLES);
            }
            out_of_sight = since.is_some();
        }
    }
}

impl Observer for SentinelObserver {
    fn run(self: Box<Self>, log: ObservationLog) -> BoxFuture<'static, ()> {
        let Self {
            observer,
            states,
            choice,
            master,
        } = *self;
        Box::pin(async move {
            tokio::join!(observer.run(log.clone()), Self::follow(states, choice, master, log));
        })
    }
}

#[cfg(test)]
mod tests {
    use super::ServerState::{Gone, Master, Replica};
    use super::*;

    const WROTE: Option<ServerState> = Some(Master { wrote: true });
    const NEW: Option<ServerState> = Some(Master { wrote: false });
    const FOLLOWS: Option<ServerState> = Some(Replica);

    fn choice() -> MasterChoice {
        MasterChoice::new(&[WROTE, FOLLOWS, FOLLOWS], 10).unwrap()
    }

    #[test]
    fn a_master_that_died_is_followed_to_the_one_that_was_promoted() {
        let mut choice = choice();
        assert_eq!(choice.hear(&[WROTE, FOLLOWS, FOLLOWS], 20), None);
        assert_eq!(
            choice.hear(&[Some(Gone), FOLLOWS, FOLLOWS], 30),
            Some(20),
            "there is none: since it was last heard"
        );
        assert_eq!(
            (choice.hear(&[Some(Gone), WROTE, FOLLOWS], 40), choice.watched),
            (None, 1)
        );
        assert_eq!(
            choice.hear(&[NEW, WROTE, FOLLOWS], 50),
            None,
            "it was started again, and no client uses it"
        );
        assert_eq!(choice.hear(&[WROTE, WROTE, FOLLOWS], 60), Some(50), "now one does");
        assert_eq!((choice.hear(&[FOLLOWS, WROTE, FOLLOWS], 70), choice.watched), (None, 1));
    }

    #[test]
    fn a_master_that_stands_still_may_grant_when_it_goes_on_until_it_follows() {
        let mut choice = choice();
        assert_eq!(
            choice.hear(&[None, FOLLOWS, FOLLOWS], 20),
            None,
            "the same master, silent"
        );
        assert_eq!(
            (choice.hear(&[None, FOLLOWS, WROTE], 30), choice.watched),
            (Some(10), 2)
        );
        assert_eq!(choice.hear(&[WROTE, FOLLOWS, WROTE], 40), Some(10));
        assert_eq!(choice.hear(&[FOLLOWS, FOLLOWS, WROTE], 50), None);
    }

    #[test]
    fn of_two_masters_the_one_that_was_watched_is_watched_on_and_the_other_is_out_of_sight() {
        let mut choice = choice();
        assert_eq!(
            (choice.hear(&[WROTE, WROTE, FOLLOWS], 30), choice.watched),
            (Some(10), 0)
        );
    }

    #[test]
    fn a_state_is_read_from_the_servers_own_words() {
        let info = |role: &str, changes: u32| {
            ServerState::of(&format!("rdb_changes_since_last_save:{changes}\r\nrole:{role}\r\n")).unwrap()
        };
        assert_eq!(
            (info("master", 0), info("master", 7), info("slave", 7)),
            (NEW.unwrap(), WROTE.unwrap(), Replica)
        );
        assert_eq!(ServerState::of("-LOADING\r\n"), None);
    }
}
