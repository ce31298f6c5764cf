//! The `Fault` trait: what a fault declares about itself, and how it plans one injection.

use std::time::Duration;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::injection::{Inject, Injection, Planned, acquires_without};
use super::shape::Shape;
use super::target::Target;
use crate::evidence::{CLIENTS_KILLED, EvidenceCounter};

/// What a fault acts on. `--fault any` has a lane of windows for each of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultFamily {
    /// Links, and the servers behind them.
    Cluster,
    /// Processes of clients.
    Clients,
    /// Single messages.
    Messages,
}

/// How long the windows of a fault last, and how soon the next one follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Each is longer than a lease.
    Long,
    /// Longer than a lease, shorter than a second, about half a lease, by turns: each length meets another timer of a lock.
    Varied,
    /// One act on a process, which is over at once. The window leaves a lease to get over it.
    Act,
    /// One act on a message. The window ends when it is over, and others come while it waits for its message.
    Message,
}

/// What lists, the history and reports need to know of a fault.
#[derive(Debug, Clone, Copy)]
pub struct FaultDefinition {
    /// As it is typed after `--fault`.
    pub name: &'static str,
    /// One line for lists and help.
    pub summary: &'static str,
    /// What may follow `=`, for help; empty when the fault takes no argument.
    pub argument: &'static str,
    pub family: FaultFamily,
    pub pace: Pace,
    /// What happens to a client, in the passive: "it was *cut off* by partition 2".
    pub verb: &'static str,
    /// What the fault counts, with its words. The counters of links have theirs already.
    pub counters: &'static [EvidenceCounter],
    /// The fault had an effect if one of these is above zero. Windows that overlap share the counters of their links, so
    /// this names what no other fault counts.
    pub trace: &'static [EvidenceCounter],
    /// What to change when no window had an effect, where this fault knows better than the general advice.
    pub no_effect_hint: Option<&'static str>,
}

impl FaultDefinition {
    /// Whether it ends processes of clients, and with them the sessions that they had.
    pub fn kills_clients(&self) -> bool {
        self.counters.iter().any(|counter| counter.key == CLIENTS_KILLED.key)
    }
}

/// Something that can go wrong on purpose.
pub trait Fault: Sync {
    fn definition(&self) -> FaultDefinition;

    /// Whether a cluster of this shape can have it, as any can unless a fault says otherwise. The error says why not, and
    /// what to do instead.
    fn applies(&self, _argument: Option<&str>, _shape: &Shape) -> Result<(), String> {
        Ok(())
    }

    /// How long a window may last under which a lock with a lease can be right, on a cluster of this shape. `--fault any` leaves
    /// out what no lock can stand, and what does not act on most clients; the error says which. Most faults may last for ever.
    fn survivable(&self, _shape: &Shape) -> Result<Duration, &'static str> {
        Ok(Duration::MAX)
    }

    /// Draws one injection. The same seed, shape and number give the same one. `number` counts this fault's windows from
    /// 0, so that a fault can go through its kinds. The error says what the argument should have been.
    fn plan(&self, argument: Option<&str>, number: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned;

    /// The same with what a seed draws, in a test.
    #[cfg(test)]
    fn planned(&self, argument: Option<&str>, number: u32, shape: &Shape, seed: u64) -> Planned {
        let mut rng = <ChaCha8Rng as rand::SeedableRng>::seed_from_u64(seed);
        self.plan(argument, number, shape, &mut rng)
    }
}

impl dyn Fault + '_ {
    pub fn name(&self) -> &'static str {
        self.definition().name
    }

    pub fn summary(&self) -> &'static str {
        self.definition().summary
    }

    pub fn argument(&self) -> &'static str {
        self.definition().argument
    }
}

/// Refuses what cannot be done to servers that harness did not start.
pub(super) fn not_attached(fault: &str, why: &str, shape: &Shape) -> Result<(), String> {
    match shape.attached {
        None => Ok(()),
        Some(_) => Err(format!(
            "{fault} {why}, and harness did not start the servers of --servers\nhint: leave --servers out"
        )),
    }
}

/// What simulated servers lack.
pub(super) const NO_DISKS: &str = "simulated servers have no disks";

/// Refuses what simulated servers do not have. `hint`: with which runtime they do.
pub(super) fn not_simulated(fault: &str, why: &str, hint: &str, shape: &Shape) -> Result<(), String> {
    match shape.simulated {
        false => not_virtual(fault, shape),
        true => Err(format!("{fault}: {why}\nhint: {hint}")),
    }
}

/// Refuses what there is not in virtual time yet.
pub(super) fn not_virtual(fault: &str, shape: &Shape) -> Result<(), String> {
    match shape.virtual_time {
        false => Ok(()),
        true => Err(format!(
            "{fault} does not work in virtual time yet\nhint: --runtime local or docker"
        )),
    }
}

/// Refuses an argument where none is taken.
pub(super) fn no_argument(fault: &str, argument: Option<&str>) -> Result<(), String> {
    match argument {
        None => Ok(()),
        Some(argument) => Err(format!("{fault}={argument}: {fault} takes no argument")),
    }
}

/// The kind that an argument names, the first of `known` without one.
pub(super) fn kind_of<'a>(fault: &str, argument: Option<&'a str>, known: &[&'a str]) -> Result<&'a str, String> {
    let kind = argument.unwrap_or(known[0]);
    if known.contains(&kind) {
        Ok(kind)
    } else {
        Err(format!(
            "{fault} has no kind `{kind}`; it takes one of {}",
            known.join(", ")
        ))
    }
}

/// So many of the clients or servers below `all`, drawn, in their order.
pub(super) fn some_of(all: u32, count: usize, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let all: Vec<u32> = (0..all).collect();
    let mut some: Vec<u32> = all.sample(rng, count).copied().collect();
    some.sort_unstable();
    some
}

/// An act on servers of this kind: `leader`, `one`, `majority`, and else all of them.
pub(super) fn on_servers(kind: &str, act: impl Inject, done: &str, shape: &Shape, rng: &mut ChaCha8Rng) -> Injection {
    let some = match kind {
        // the title begins with its name when it is known
        "leader" => return Injection::new(Target::Leader, act, acquires_without(1, shape), done),
        "one" => vec![rng.random_range(0..shape.servers)],
        "majority" => some_of(shape.servers, shape.servers as usize / 2 + 1, rng),
        _ => (0..shape.servers).collect(),
    };
    let title = format!("{}: {done}", server_names(&some));
    let acquires = acquires_without(some.len(), shape);
    Injection::new(Target::Servers(some), act, acquires, title)
}

/// `n1 n3`
pub(super) fn server_names(servers: &[u32]) -> String {
    let names: Vec<String> = servers.iter().map(|server| format!("n{}", server + 1)).collect();
    names.join(" ")
}
