//! `pause-holder`, `pause-waiter`, `pause`, `kill-holder`, `kill`: the process of a client is stopped for longer than its lease,
//! then continued, or it is killed and starts again as another process of the history.
//!
//! harness is the application: while the process is stopped the work continues, and the release that ends it reaches the client
//! only when it runs again. No lock with a lease prevents two certain holds through that; tokens protect the data.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use harness_checkers::history::Requirement;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::fault::no_argument;
use super::points::number_alone;
use super::target::{MessageMoment, client_at};
use super::{
    Acquires, ActiveFault, Affected, Fault, FaultDefinition, FaultFamily, HealOnDrop, Healed, Inject, Injected,
    Injection, InjectionContext, NotInjected, Pace, Planned, ProcessControl, Shape, Target,
};
use crate::evidence::{CLIENTS_KILLED, Evidence, EvidenceCounter, HOLDERS, STOPPED_MS};

/// An act on the process of a client, with the role of that client; each is a fault of that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnClient {
    PauseHolder,
    PauseWaiter,
    Pause,
    KillHolder,
    Kill,
}

const CLIENTS_STOPPED: EvidenceCounter = EvidenceCounter::new("clients_stopped", "client process", "stopped");

impl Fault for OnClient {
    fn definition(&self) -> FaultDefinition {
        let (name, summary, argument) = match self {
            Self::PauseHolder => (
                "pause-holder",
                "the holder's process is stopped past its lease, which violates HL001 in any lock with a lease",
                "",
            ),
            Self::PauseWaiter => ("pause-waiter", "the process of a waiter is stopped past its lease", ""),
            Self::Pause => (
                "pause",
                "the process of any client is stopped, in any state",
                "any:57 (the client of the 57th of all messages except pings, while the reply is on its way)",
            ),
            Self::KillHolder => (
                "kill-holder",
                "the holder's process is killed; its client starts again in a new process",
                "",
            ),
            Self::Kill => (
                "kill",
                "the process of any client is killed, in any state",
                "any:57 (the client of the 57th of all messages except pings, before the message arrives)",
            ),
        };
        let stopped = FaultDefinition {
            name,
            summary,
            argument,
            family: FaultFamily::Clients,
            pace: Pace::Varied,
            verb: "stopped",
            counters: &[CLIENTS_STOPPED, STOPPED_MS, HOLDERS],
            trace: &[STOPPED_MS],
            no_effect_hint: None,
        };
        match self.act() {
            ClientAct::Stop => stopped,
            ClientAct::Kill => FaultDefinition {
                pace: Pace::Act,
                verb: "killed",
                counters: &[CLIENTS_KILLED, HOLDERS],
                trace: &[CLIENTS_KILLED],
                ..stopped
            },
        }
    }

    fn survivable(&self, shape: &Shape) -> Result<Duration, &'static str> {
        match self {
            // no lock prevents its holder from working when it continues after its lease; a careful client stops to believe 15
            // percent before that, or more, and its last belief may come with a late reply
            Self::PauseHolder | Self::Pause => Ok(shape.lease / 8),
            Self::PauseWaiter | Self::KillHolder | Self::Kill => Ok(Duration::MAX),
        }
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        let (done, heal, moment, when) = match self.act() {
            ClientAct::Stop => ("its process is stopped", "continue", MessageMoment::Answered, ""),
            ClientAct::Kill => (
                "its process is killed",
                "revive",
                MessageMoment::Sent,
                " before the message arrives",
            ),
        };
        let (target, title) = match (self, argument) {
            (Self::Pause | Self::Kill, Some(message)) => {
                let number = number_alone(message, shape)?;
                let title = format!("the client of message {number}: {done}{when}");
                (client_at(number, moment), title)
            }
            (Self::Pause | Self::Kill, None) => {
                let client = rng.random_range(0..shape.clients);
                (Target::Clients(vec![client]), format!("c{client}: {done}"))
            }
            (Self::PauseWaiter, _) => (Target::Waiter, done.to_owned()),
            (Self::PauseHolder | Self::KillHolder, _) => (Target::Holder, done.to_owned()),
        };
        if matches!(target, Target::Holder | Target::Waiter) {
            no_argument(self.definition().name, argument)?;
        }
        let requirement = (*self == Self::PauseHolder).then(|| Requirement {
            stopped_ms: Some(shape.lease.as_millis() as u64),
            breaks: Some("HL001".into()),
            even_without_lease: false,
        });
        Ok(Injection {
            requirement,
            ..Injection::new(target, self.act(), Acquires::GoOn, title, heal)
        })
    }
}

impl OnClient {
    fn act(self) -> ClientAct {
        match self {
            Self::PauseHolder | Self::PauseWaiter | Self::Pause => ClientAct::Stop,
            Self::KillHolder | Self::Kill => ClientAct::Kill,
        }
    }
}

/// An act on the target's processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientAct {
    /// Stopped (SIGSTOP) until the heal.
    Stop,
    /// Killed (SIGKILL); the client pool starts them again by itself.
    Kill,
}

#[async_trait]
impl Inject for ClientAct {
    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let processes = context.env.clients.processes_of(&context.target.clients());
        let mut struck = StruckClients::strike(*self, processes);
        if struck.processes == 0 {
            return Err(NotInjected::Missed("its process was not running"));
        }
        let clients = struck.clients.clone();
        struck.holders = clients.iter().filter(|client| context.holding.contains(client)).count() as u64;
        Ok(struck.on(Affected {
            clients,
            ..Affected::default()
        }))
    }
}

/// Clients whose processes were stopped or killed.
struct StruckClients {
    act: ClientAct,
    processes: u64,
    clients: Vec<u32>,
    holders: u64,
    /// The processes that must continue.
    stopped: Vec<Arc<dyn ProcessControl>>,
}

impl StruckClients {
    fn strike(act: ClientAct, processes: Vec<Arc<dyn ProcessControl>>) -> HealOnDrop<Self> {
        let mut struck = HealOnDrop::new(Self {
            act,
            processes: 0,
            clients: Vec::new(),
            holders: 0,
            stopped: Vec::new(),
        });
        for process in processes {
            let done = match act {
                ClientAct::Stop => process.stop(),
                ClientAct::Kill => process.kill(),
            };
            if done {
                struck.processes += 1;
                struck.clients.extend(process.clients());
                struck.stopped.extend((act == ClientAct::Stop).then_some(process));
            }
        }
        struck
    }

    /// Returns the time of the stop, or zero if a process is no longer stopped: the end of its stop is not known.
    fn stopped_for(&self, lasted: Duration) -> Duration {
        if self.stopped.iter().all(|process| process.is_stopped()) {
            lasted
        } else {
            Duration::ZERO
        }
    }
}

#[async_trait]
impl ActiveFault for StruckClients {
    async fn heal(&mut self, lasted: Duration, _: bool) -> Healed {
        let evidence = match self.act {
            ClientAct::Stop => Evidence::default()
                .with(&CLIENTS_STOPPED, self.processes)
                .with(&STOPPED_MS, self.stopped_for(lasted).as_millis() as u64),
            ClientAct::Kill => Evidence::default().with(&CLIENTS_KILLED, self.processes),
        };
        self.undo();
        evidence.with(&HOLDERS, self.holders).into()
    }

    fn undo(&mut self) {
        for process in self.stopped.drain(..) {
            process.go_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::faults::ClientHosts;
    use crate::wall_clock::WallClockControl;

    #[test]
    fn a_paused_holder_must_be_stopped_past_the_lease_and_break_mutual_exclusion() {
        let shape = Shape::example();
        let injection = OnClient::PauseHolder.planned(None, 0, &shape, 1).unwrap();
        let requirement = injection.requirement.unwrap();
        assert_eq!(
            serde_json::to_value(requirement).unwrap(),
            serde_json::json!({ "stopped_ms": 2000, "breaks": "HL001" })
        );
    }

    /// One process that hosts clients 2 and 3, and the acts on it.
    #[derive(Clone, Default)]
    struct PairOfClients(Arc<Mutex<Vec<&'static str>>>);

    impl PairOfClients {
        fn done(&self) -> Vec<&'static str> {
            self.0.lock().unwrap().clone()
        }

        fn note(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }

        fn stop_hosts_of(&self, clients: &[u32]) -> HealOnDrop<StruckClients> {
            let hosts: &dyn ClientHosts = self;
            StruckClients::strike(ClientAct::Stop, hosts.processes_of(clients))
        }
    }

    impl ClientHosts for PairOfClients {
        fn process_of(&self, client: u32) -> Option<Arc<dyn ProcessControl>> {
            [2, 3].contains(&client).then(|| Arc::new(self.clone()) as _)
        }
    }

    impl ProcessControl for PairOfClients {
        fn clients(&self) -> Vec<u32> {
            vec![2, 3]
        }

        fn stop(&self) -> bool {
            self.note("stop");
            true
        }

        fn is_stopped(&self) -> bool {
            self.done().last() == Some(&"stop")
        }

        fn go_on(&self) {
            self.note("go on");
        }

        fn wall_clock(&self) -> Option<Arc<dyn WallClockControl>> {
            None
        }

        fn kill(&self) -> bool {
            self.note("kill");
            true
        }
    }

    #[tokio::test]
    async fn a_stopped_process_continues_with_the_heal_and_once() {
        let pair = PairOfClients::default();
        let mut stopped = pair.stop_hosts_of(&[2]);
        assert_eq!(stopped.clients, [2, 3], "every client of that process is stopped, too");
        let healed = stopped.heal(Duration::from_secs(3), true).await;
        assert_eq!(healed.evidence.get("stopped_ms"), 3000);
        drop(stopped);
        assert_eq!(pair.done(), ["stop", "go on"]);
    }

    #[test]
    fn a_stopped_process_continues_when_a_panic_unwinds() {
        let pair = PairOfClients::default();
        let unwound = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _stopped = pair.stop_hosts_of(&[3]);
            panic!("in the middle of a window");
        }));
        assert!(unwound.is_err());
        assert_eq!(pair.done(), ["stop", "go on"]);
    }

    #[tokio::test]
    async fn a_process_that_did_not_stay_stopped_was_not_stopped() {
        let pair = PairOfClients::default();
        let mut stopped = pair.stop_hosts_of(&[2]);
        pair.note("ended");
        let healed = stopped.heal(Duration::from_secs(3), true).await;
        assert_eq!(healed.evidence.get("stopped_ms"), 0);
    }

    #[test]
    fn a_process_is_stopped_once_for_all_of_its_clients_and_a_client_without_one_is_not_found() {
        let pair = PairOfClients::default();
        assert_eq!(pair.stop_hosts_of(&[2, 3]).processes, 1);
        assert_eq!(pair.stop_hosts_of(&[7]).processes, 0);
        assert_eq!(pair.done(), ["stop", "go on"]);
    }
}
