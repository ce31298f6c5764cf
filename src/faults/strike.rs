//! A planned strike: whom it is meant for, and by which means.

use std::time::Duration;

use serde::{Serialize, Serializer};

use super::clock::Step;
use super::field::Field;
use super::open::Open;
use super::promotion::Prelude;
use crate::network::{Behaviour, Meant, in_words, toxics_for};

/// Whom a strike is meant for. `Holder`, `Waiter` and `Leader` are resolved when the window opens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    Clients(Vec<u32>),
    /// These servers, from 0; of links, every client's link to them.
    Servers(Vec<u32>),
    /// Every client's link to this server, from 0.
    Server(u32),
    /// Whichever client holds a lock when the window opens.
    Holder,
    /// Whichever client waits for a lock then.
    Waiter,
    /// Whichever server leads then.
    Leader,
    Everyone,
}

/// What is done to the target. Every means heals when the guard that it becomes is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Means {
    /// The target's links behave differently.
    Links(OnLinks),
    /// One message, whoever of the target sends it.
    Message(Meant),
    /// The target's processes are struck.
    Clients(ClientBlow),
    /// The target itself is struck, a server or several.
    Servers(ServerBlow),
    /// The wall clock of the target's process, of one client or one server, is stepped.
    Clock(Step),
    /// Servers are cut off from each other.
    Between(Rift),
    /// A replica takes the place of its master, `held_back` if it is to lack what the master wrote last.
    Failover { held_back: bool },
}

/// What is held back between servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rift {
    pub split: Split,
    /// The target's clients are cut off from it, too.
    pub clients_too: bool,
    /// Reset connections when it heals, instead of letting them go on.
    pub reset_on_heal: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Split {
    /// What the target sends to the other servers, what they send to it, or both.
    Around { sends: bool, hears: bool },
    /// What the first of each pair sends to the second, by server from 0.
    Pairs(Vec<(u32, u32)>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OnLinks {
    pub behaviour: Behaviour,
    /// Reset the connections there are when the window opens.
    pub reset_first: bool,
    /// Reset them when it heals, instead of letting them go on.
    pub reset_on_heal: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientBlow {
    /// Stopped (SIGSTOP), and continued when the window heals.
    Stop,
    /// Killed (SIGKILL); its clients come back by themselves, as new processes of the history.
    Kill,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerBlow {
    /// Killed (SIGKILL), and started again on its data when the window heals.
    Kill,
    /// Stopped, and continued when the window heals.
    Pause,
    /// Killed and started again at once, one after the other, each when the one before it serves.
    Restart,
}

/// What a strike must achieve for a pass to mean anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Demand {
    /// Whoever it struck must have been stopped for this long, where it stops somebody.
    #[serde(
        rename = "stopped_ms",
        serialize_with = "milliseconds",
        skip_serializing_if = "Option::is_none"
    )]
    pub stopped_for: Option<Duration>,
    /// The property that no lock with a lease can keep under such a strike: where it holds, the strike missed.
    pub breaks: &'static str,
}

/// What one window does, as planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    pub target: Target,
    pub means: Means,
    pub demand: Option<Demand>,
    /// What it is, in words, without the fault's name: "holder | every server".
    pub title: String,
}

impl Strike {
    /// A strike on links.
    pub fn on_links(target: Target, behaviour: Behaviour, title: String) -> Self {
        let on_links = OnLinks {
            behaviour,
            reset_first: false,
            reset_on_heal: false,
        };
        Self::of(target, Means::Links(on_links), title)
    }

    pub fn of(target: Target, means: Means, title: String) -> Self {
        Self {
            target,
            means,
            demand: None,
            title,
        }
    }

    /// What the window numbered `number` does before aim is taken, if it does anything. The error says why it cannot.
    pub async fn prelude(&self, number: u32, field: &Field) -> Result<Option<Prelude>, &'static str> {
        match self.means {
            Means::Failover { held_back } => Prelude::play(held_back, number, field).await.map(Some),
            _ => Ok(None),
        }
    }

    /// The same strike where a Toxiproxy does it: its title says with which toxics. The error says why there are none.
    pub fn through_toxiproxy(mut self, fault: &str) -> Result<Self, String> {
        let needed = |why| format!("{fault} needs the built-in proxy: {why}\nhint: --proxy builtin");
        match &self.means {
            Means::Links(links) => {
                let toxics = toxics_for(&links.behaviour, links.reset_on_heal).map_err(needed)?;
                self.title = format!("{} | {}", self.title, in_words(&toxics));
            }
            Means::Message(_) => return Err(needed("Toxiproxy does not read messages, so it cannot name one".into())),
            Means::Between(rift) if rift.clients_too => {
                return Err(needed("it holds back links of two kinds at once".into()));
            }
            Means::Failover { .. } => return Err(needed("it leads clients to another server".into())),
            Means::Clients(_) | Means::Servers(_) | Means::Between(_) | Means::Clock(_) => {}
        }
        Ok(self)
    }

    /// Opens the window numbered `number` on `target`: the strike's own, or what it was resolved to.
    pub async fn open(&self, number: u32, field: &Field, target: &Target, prelude: Option<Prelude>) -> Open {
        Open::new(&self.means, number, field, target, prelude).await
    }

    /// What the heal does, in one word.
    pub fn heal(&self) -> &'static str {
        match &self.means {
            Means::Links(links) if links.reset_on_heal => "reset",
            Means::Between(rift) if rift.reset_on_heal => "reset",
            Means::Links(_) | Means::Between(_) | Means::Message(_) => "resume",
            Means::Clients(ClientBlow::Stop) => "continue",
            Means::Clients(ClientBlow::Kill) => "revive",
            Means::Servers(ServerBlow::Kill | ServerBlow::Restart) => "start",
            Means::Servers(ServerBlow::Pause) => "continue",
            Means::Failover { .. } => "follow",
            Means::Clock(_) => "step back",
        }
    }
}

fn milliseconds<S: Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    duration
        .map(|duration| duration.as_millis() as u64)
        .serialize(serializer)
}
