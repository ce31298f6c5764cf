//! `pause-holder`, `pause-waiter`, `pause`: the process of a client is stopped for longer than its lease, then continued.
//!
//! The harness is the application: while the process is stopped the work goes on, and the release that ends it reaches
//! the client only when it runs again. No lock with a lease keeps two beliefs apart through that; tokens save the data.

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
    Acquires, ActiveFault, Affected, Fault, FaultDefinition, FaultFamily, HealOnDrop, Healed, Inject, Injection,
    InjectionContext, NotInjected, Pace, Planned, ProcessControl, RunningFault, Shape, Target,
};
use crate::evidence::{Evidence, EvidenceCounter, HOLDERS, STOPPED_MS};

/// Which client's process is stopped.
pub enum Pause {
    Holder,
    Waiter,
    Anyone,
}

const CLIENTS_STOPPED: EvidenceCounter = EvidenceCounter::new("clients_stopped", "client process", "stopped");

impl Fault for Pause {
    fn definition(&self) -> FaultDefinition {
        let (name, summary) = match self {
            Self::Holder => (
                "pause-holder",
                "the holder's process is stopped past its lease, which violates HL001 in any lock with a lease",
            ),
            Self::Waiter => ("pause-waiter", "the process of a waiter is stopped past its lease"),
            Self::Anyone => ("pause", "the process of any client is stopped, in any state"),
        };
        FaultDefinition {
            name,
            summary,
            argument: match self {
                Self::Anyone => {
                    "any:57 (the client of the 57th of all messages except pings, while the reply is on its way)"
                }
                Self::Holder | Self::Waiter => "",
            },
            family: FaultFamily::Clients,
            pace: Pace::Varied,
            verb: "stopped",
            counters: &[CLIENTS_STOPPED, STOPPED_MS, HOLDERS],
            trace: &[STOPPED_MS],
            no_effect_hint: None,
        }
    }

    fn survivable(&self, shape: &Shape) -> Result<Duration, &'static str> {
        match self {
            // no lock keeps its holder from going on when it continues after its lease; a careful client stops to believe 15 percent
            // before that, or more, and its last belief may come with a late reply
            Self::Holder | Self::Anyone => Ok(shape.lease / 8),
            Self::Waiter => Ok(Duration::MAX),
        }
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        let its_process = "its process is stopped";
        if let (Self::Anyone, Some(message)) = (self, argument) {
            let number = number_alone(message, shape)?;
            let title = format!("the client of message {number}: {its_process}");
            let target = client_at(number, MessageMoment::Answered);
            return Ok(Injection::new(target, StopClients, Acquires::GoOn, title));
        }
        no_argument(self.definition().name, argument)?;
        Ok(match self {
            Self::Holder => {
                Injection::new(Target::Holder, StopClients, Acquires::GoOn, its_process).requiring(Requirement {
                    stopped_ms: Some(shape.lease.as_millis() as u64),
                    breaks: Some("HL001".into()),
                    even_without_lease: false,
                })
            }
            Self::Waiter => Injection::new(Target::Waiter, StopClients, Acquires::GoOn, its_process),
            Self::Anyone => {
                let client = rng.random_range(0..shape.clients);
                let title = format!("c{client}: {its_process}");
                Injection::new(Target::Clients(vec![client]), StopClients, Acquires::GoOn, title)
            }
        })
    }
}

/// Stops the target's processes (SIGSTOP) until the heal.
#[derive(Debug)]
struct StopClients;

#[async_trait]
impl Inject for StopClients {
    fn heal_word(&self) -> &'static str {
        "continue"
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<RunningFault, NotInjected> {
        let processes = context.env.clients.processes_of(&context.target.clients());
        let mut stopped = StoppedClients::stop(processes);
        if stopped.processes.is_empty() {
            return Err(NotInjected::Missed("its process was not running"));
        }
        stopped.holders = context.held_by(&stopped.clients());
        Ok(stopped.running())
    }
}

struct StoppedClients {
    processes: Vec<Arc<dyn ProcessControl>>,
    holders: u64,
}

impl StoppedClients {
    fn stop(processes: Vec<Arc<dyn ProcessControl>>) -> HealOnDrop<Self> {
        let mut stopped = HealOnDrop::new(Self {
            processes: Vec::new(),
            holders: 0,
        });
        for process in processes {
            if process.stop() {
                stopped.processes.push(process);
            }
        }
        stopped
    }

    fn clients(&self) -> Vec<u32> {
        self.processes.iter().flat_map(|process| process.clients()).collect()
    }

    /// Zero unless every one of them is still stopped: how long one was stopped that ended meanwhile is not known.
    fn for_how_long(&self, lasted: Duration) -> Duration {
        if self.processes.iter().all(|process| process.is_stopped()) {
            lasted
        } else {
            Duration::ZERO
        }
    }
}

#[async_trait]
impl ActiveFault for StoppedClients {
    fn affected(&self) -> Affected {
        Affected::clients(self.clients())
    }

    async fn heal(&mut self, lasted: Duration, _: bool) -> Healed {
        let evidence = Evidence::default()
            .with(&CLIENTS_STOPPED, self.processes.len() as u64)
            .with(&STOPPED_MS, self.for_how_long(lasted).as_millis() as u64)
            .with(&HOLDERS, self.holders);
        self.undo();
        evidence.into()
    }

    fn undo(&mut self) {
        for process in self.processes.drain(..) {
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
        let injection = Pause::Holder.planned(None, 0, &shape, 1).unwrap();
        let requirement = injection.requirement.unwrap();
        assert_eq!(
            serde_json::to_value(requirement).unwrap(),
            serde_json::json!({ "stopped_ms": 2000, "breaks": "HL001" })
        );
    }

    /// One process that hosts clients 2 and 3, and what was done to it.
    #[derive(Clone, Default)]
    struct PairOfClients(Arc<Mutex<Vec<&'static str>>>);

    impl PairOfClients {
        fn done(&self) -> Vec<&'static str> {
            self.0.lock().unwrap().clone()
        }

        fn note(&self, what: &'static str) {
            self.0.lock().unwrap().push(what);
        }

        fn stop_hosts_of(&self, clients: &[u32]) -> HealOnDrop<StoppedClients> {
            let hosts: &dyn ClientHosts = self;
            StoppedClients::stop(hosts.processes_of(clients))
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
        assert_eq!(
            stopped.affected().names(),
            ["c2", "c3"],
            "every client of that process is stopped, too"
        );
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
        assert_eq!(pair.stop_hosts_of(&[2, 3]).processes.len(), 1);
        assert_eq!(pair.stop_hosts_of(&[7]).processes.len(), 0);
        assert_eq!(pair.done(), ["stop", "go on"]);
    }
}
