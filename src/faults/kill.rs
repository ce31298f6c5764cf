//! `kill-holder`, `kill`: the process of a client is killed, and comes back as another process of the history.

use std::time::Duration;

use async_trait::async_trait;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::fault::no_argument;
use super::points::number_alone;
use super::target::{MessageMoment, client_at};
use super::{
    Acquires, ActiveFault, Affected, Fault, FaultDefinition, FaultFamily, HealOnDrop, Healed, Inject, Injection,
    InjectionContext, NotInjected, Pace, Planned, RunningFault, Shape, Target,
};
use crate::evidence::{CLIENTS_KILLED, Evidence, HOLDERS};

/// Which client's process is killed.
pub enum Kill {
    Holder,
    Anyone,
}

impl Fault for Kill {
    fn definition(&self) -> FaultDefinition {
        let (name, summary) = match self {
            Self::Holder => (
                "kill-holder",
                "the holder's process is killed; its client starts again in a new process",
            ),
            Self::Anyone => ("kill", "the process of any client is killed, in any state"),
        };
        FaultDefinition {
            name,
            summary,
            argument: match self {
                Self::Anyone => {
                    "any:57 (the client of the 57th of all messages except pings, before the message arrives)"
                }
                Self::Holder => "",
            },
            family: FaultFamily::Clients,
            pace: Pace::Act,
            verb: "killed",
            counters: &[CLIENTS_KILLED, HOLDERS],
            trace: &[CLIENTS_KILLED],
            no_effect_hint: None,
        }
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        if let (Self::Anyone, Some(message)) = (self, argument) {
            let number = number_alone(message, shape)?;
            let title = format!("the client of message {number}: its process is killed before the message arrives");
            let target = client_at(number, MessageMoment::Sent);
            return Ok(Injection::new(target, KillClients, Acquires::GoOn, title));
        }
        no_argument(self.definition().name, argument)?;
        Ok(match self {
            Self::Holder => Injection::new(Target::Holder, KillClients, Acquires::GoOn, "its process is killed"),
            Self::Anyone => {
                let client = rng.random_range(0..shape.clients);
                let title = format!("c{client}: its process is killed");
                Injection::new(Target::Clients(vec![client]), KillClients, Acquires::GoOn, title)
            }
        })
    }
}

/// Kills the target's processes (SIGKILL); the client pool starts them again without being asked.
#[derive(Debug)]
struct KillClients;

#[async_trait]
impl Inject for KillClients {
    fn heal_word(&self) -> &'static str {
        "revive"
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<RunningFault, NotInjected> {
        let mut killed = KilledClients::default();
        for process in context.env.clients.processes_of(&context.target.clients()) {
            if process.kill() {
                killed.processes += 1;
                killed.clients.extend(process.clients());
            }
        }
        if killed.processes == 0 {
            return Err(NotInjected::Missed("its process was not running"));
        }
        killed.holders = context.held_by(&killed.clients);
        Ok(HealOnDrop::new(killed).running())
    }
}

#[derive(Default)]
struct KilledClients {
    processes: u64,
    clients: Vec<u32>,
    holders: u64,
}

#[async_trait]
impl ActiveFault for KilledClients {
    fn affected(&self) -> Affected {
        Affected::clients(self.clients.clone())
    }

    async fn heal(&mut self, _: Duration, _: bool) -> Healed {
        let evidence = Evidence::default()
            .with(&CLIENTS_KILLED, self.processes)
            .with(&HOLDERS, self.holders);
        evidence.into()
    }

    fn undo(&mut self) {
        // the client pool starts a new process for each that ended
    }
}
