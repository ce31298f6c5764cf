//! The observer of elected masters, one of each group of servers, by [`RedisObserver`]; it reports when a grant may come from
//! elsewhere: a master that was cut off or stopped continues to grant until it learns of the election. With sentinels there is
//! one group; a cluster has one for each part of the keys.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;

use super::connection::RespConnection;
use super::keyspace::opening;
use super::observer::{OneMaster, RedisObserver};
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, Observer, observing};
use crate::cluster::{Endpoints, EndpointsReceiver, ServerAccess};

/// The time between two polls of all servers.
const EVERY: Duration = Duration::from_millis(40);
/// The time of an answer after which a server is silent.
const SILENT: Duration = Duration::from_millis(150);
/// The time in which a server must report at first that it is the master: on a busy machine all may be silent for a moment.
const BEGIN: Duration = Duration::from_secs(10);

/// The state that a server reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerState {
    /// Whether it has written since its start: a restarted master that no client uses has not.
    Master {
        wrote: bool,
    },
    Replica,
    /// Its port refuses connections: it has no process.
    Gone,
}

const WRITES: ServerState = ServerState::Master { wrote: true };

impl ServerState {
    /// Parses the answer to `INFO`.
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

/// The known states of all servers, and the choice of the watched one.
struct MasterChoice {
    watched: usize,
    /// The last state of each server, and the time of that poll; silence changes nothing.
    known: Vec<(ServerState, u64)>,
    /// The last time at which each server certainly granted nothing out of sight.
    harmless: Vec<u64>,
    /// The time since which each server is a master that has written, 0 at first.
    writes_since: Vec<u64>,
}

impl MasterChoice {
    /// Returns `None` while no server reports that it is the master.
    fn new(answers: &[Option<ServerState>], now: u64) -> Option<Self> {
        let master = |answer: &Option<ServerState>| answer.is_some_and(ServerState::is_master);
        let known = answers.iter().map(|answer| (answer.unwrap_or(ServerState::Gone), now));
        Some(Self {
            watched: answers.iter().position(master)?,
            known: known.collect(),
            harmless: vec![now; answers.len()],
            writes_since: vec![0; answers.len()],
        })
    }

    /// Takes the answers of the poll at `asked`, `None` from a silent server. Returns the time since which grants may be out of
    /// sight, if some may be now.
    fn hear(&mut self, answers: &[Option<ServerState>], asked: u64) -> Option<u64> {
        for (server, answer) in answers.iter().enumerate() {
            let Some(state) = *answer else { continue };
            if state == WRITES && self.known[server].0 != WRITES {
                self.writes_since[server] = asked;
            }
            self.known[server] = (state, asked);
        }
        let fresh = |server: &usize| answers[*server].is_some_and(ServerState::is_master);
        let newest = (0..answers.len())
            .filter(fresh)
            .max_by_key(|server| self.writes_since[*server]);
        if !fresh(&self.watched)
            && let Some(other) = newest
            // a silent one may be the newer master, and the other one not know of it
            && (answers[self.watched].is_some() || self.writes_since[other] > self.writes_since[self.watched])
        {
            self.watched = other;
        }
        let out_of_sight = (0..answers.len()).filter_map(|server| {
            let (state, heard) = self.known[server];
            let harmless = match state {
                _ if server == self.watched => state.is_master(),
                ServerState::Master { wrote } => !wrote,
                ServerState::Replica | ServerState::Gone => true,
            };
            if harmless {
                self.harmless[server] = heard;
            }
            (!harmless).then_some(self.harmless[server])
        });
        out_of_sight.min()
    }
}

/// A connection to a server, if there is one.
type KeptConnection = Option<(SocketAddr, RespConnection)>;

/// Polls the servers of a group for their states.
struct ServerStates {
    endpoints: EndpointsReceiver,
    /// The nodes of the group, each with the connection to it.
    servers: Vec<(usize, KeptConnection)>,
}

impl ServerStates {
    fn new(endpoints: EndpointsReceiver, group: &[usize]) -> Self {
        let servers = group.iter().map(|node| (*node, None)).collect();
        Self { endpoints, servers }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        let endpoints = self.endpoints.borrow();
        self.servers.iter().map(|(node, _)| endpoints.nodes()[*node]).collect()
    }

    /// Returns the state of each server, `None` for a silent one.
    async fn ask(&mut self) -> Vec<Option<ServerState>> {
        let addresses = self.addresses();
        let access = |address| self.endpoints.borrow().access(address);
        let accesses: Vec<ServerAccess> = addresses.into_iter().map(access).collect();
        let servers = self.servers.iter_mut().zip(&accesses);
        join_all(servers.map(|((_, kept), server)| ask(kept, server))).await
    }
}

/// Polls one server, over its connection, or a new one.
async fn ask(kept: &mut KeptConnection, server: &ServerAccess) -> Option<ServerState> {
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
        let info = connection.info(None).await.ok()?;
        *kept = Some((server.address, connection));
        ServerState::of(&info)
    };
    server.clock().within(SILENT, asked).await.flatten()
}

/// Connects the observer of these groups: nodes of which one is a master at a time.
pub async fn observe(
    endpoints: EndpointsReceiver,
    keys: LockKeys,
    groups: Vec<Vec<usize>>,
) -> Result<Observer, String> {
    let mut masters = Vec::new();
    for (number, group) in (1..).zip(&groups) {
        // a group has a number in the history if there are several
        let source = |name: &str| match groups.len() {
            1 => name.to_owned(),
            _ => format!("{name} {number}"),
        };
        let master = OneMaster {
            source: source("master"),
            elected: true,
        };
        let states = ServerStates::new(endpoints.clone(), group);
        masters.push(ElectedMaster::connect(states, keys.clone(), master, source("roles")).await?);
    }
    Ok(observing(|log| async move {
        let watching = masters.into_iter().map(|(observer, master)| {
            let log = log.clone();
            async move { tokio::join!(observer(log.clone()), master.follow(log)) }
        });
        join_all(watching).await;
    }))
}

/// The master of one group.
struct ElectedMaster {
    states: ServerStates,
    choice: MasterChoice,
    /// The nodes, with the watched one as the primary, for the observer of one master.
    master: watch::Sender<Endpoints>,
    /// The name in the history of the source that is lost while a grant may come from elsewhere.
    roles: String,
}

impl ElectedMaster {
    /// Returns the observer of one master, and the choice of that master.
    async fn connect(
        mut states: ServerStates,
        keys: LockKeys,
        watched: OneMaster,
        roles: String,
    ) -> Result<(Observer, Self), String> {
        let clock = states.endpoints.borrow().clock();
        let deadline = clock.after(BEGIN);
        let choice = loop {
            let answers = states.ask().await;
            let now = clock.now_ns();
            match MasterChoice::new(&answers, now) {
                Some(choice) => break choice,
                None if now < deadline => clock.sleep(EVERY).await,
                None => return Err("no server says that it is the master".to_owned()),
            }
        };
        let servers = states.endpoints.borrow().clone();
        let at_first = Endpoints::new(states.addresses(), Some(choice.watched));
        let (master, of_master) = watch::channel(at_first);
        let observer = RedisObserver::connect(opening(servers), of_master, keys, watched).await?;
        let elected = Self {
            states,
            choice,
            master,
            roles,
        };
        Ok((observer, elected))
    }

    /// Follows the master from server to server, until it is dropped.
    async fn follow(mut self, log: ObservationLog) {
        let mut out_of_sight = false;
        loop {
            log.clock.sleep(EVERY).await;
            let asked = log.clock.now_ns();
            let answers = self.states.ask().await;
            let since = self.choice.hear(&answers, asked);
            let now = Endpoints::new(self.states.addresses(), Some(self.choice.watched));
            // before any source is back
            if let (Some(since), false) = (since, out_of_sight) {
                log.lost(&self.roles, since);
            }
            self.master.send_if_modified(|before| {
                let other = before.servers() != now.servers();
                *before = now;
                other
            });
            if since.is_none() && out_of_sight {
                log.back(&self.roles);
            }
            out_of_sight = since.is_some();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ServerState::{Gone, Master, Replica};
    use super::*;

    const WROTE: Option<ServerState> = Some(Master { wrote: true });
    const NEW: Option<ServerState> = Some(Master { wrote: false });
    const FOLLOWS: Option<ServerState> = Some(Replica);
    const GONE: Option<ServerState> = Some(Gone);

    fn choice() -> MasterChoice {
        MasterChoice::new(&[WROTE, FOLLOWS, FOLLOWS], 10).unwrap()
    }

    #[test]
    fn a_master_that_died_is_followed_to_the_one_that_was_promoted() {
        let mut choice = choice();
        let mut hear = |states: [Option<ServerState>; 3], at| (choice.hear(&states, at), choice.watched);
        assert_eq!(hear([WROTE, FOLLOWS, FOLLOWS], 20), (None, 0));
        assert_eq!(hear([GONE, FOLLOWS, FOLLOWS], 30), (Some(20), 0), "since last heard");
        assert_eq!(hear([GONE, WROTE, FOLLOWS], 40), (None, 1));
        assert_eq!(hear([NEW, WROTE, FOLLOWS], 50), (None, 1), "started again, and unused");
        assert_eq!(hear([WROTE, WROTE, FOLLOWS], 60), (Some(50), 1), "now one uses it");
        assert_eq!(hear([FOLLOWS, WROTE, FOLLOWS], 70), (None, 1));
    }

    #[test]
    fn a_master_that_stands_still_may_grant_when_it_goes_on_until_it_follows() {
        let mut choice = choice();
        let mut hear = |states: [Option<ServerState>; 3], at| (choice.hear(&states, at), choice.watched);
        assert_eq!(hear([None, FOLLOWS, FOLLOWS], 20), (None, 0), "the same master, silent");
        assert_eq!(hear([None, FOLLOWS, WROTE], 30), (Some(10), 2));
        assert_eq!(hear([WROTE, FOLLOWS, WROTE], 40), (Some(10), 2));
        assert_eq!(hear([FOLLOWS, FOLLOWS, WROTE], 50), (None, 2));
    }

    #[test]
    fn a_master_that_is_silent_for_a_moment_is_not_left_for_the_one_before_it() {
        let mut choice = choice();
        let mut watched = |states: [Option<ServerState>; 3], at| {
            choice.hear(&states, at);
            choice.watched
        };
        assert_eq!(watched([None, FOLLOWS, WROTE], 20), 2);
        assert_eq!(watched([WROTE, FOLLOWS, None], 30), 2, "the first one goes on");
        assert_eq!(watched([NEW, FOLLOWS, None], 40), 2, "it was started again");
        assert_eq!(watched([NEW, WROTE, None], 50), 1);
        assert_eq!(
            watched([NEW, FOLLOWS, FOLLOWS], 60),
            0,
            "no other says that it is the master"
        );
    }

    #[test]
    fn of_two_masters_the_one_that_was_watched_is_watched_on_and_the_other_is_out_of_sight() {
        let mut choice = choice();
        let elsewhere = choice.hear(&[WROTE, WROTE, FOLLOWS], 30);
        assert_eq!((elsewhere, choice.watched), (Some(10), 0));
    }

    #[test]
    fn a_state_is_read_from_the_servers_own_words() {
        let info = |role: &str, changes: u32| {
            ServerState::of(&format!("rdb_changes_since_last_save:{changes}\r\nrole:{role}\r\n"))
        };
        assert_eq!([info("master", 0), info("master", 7)], [NEW, WROTE]);
        assert_eq!(info("slave", 7), FOLLOWS);
        assert_eq!(ServerState::of("-LOADING\r\n"), None);
    }
}
