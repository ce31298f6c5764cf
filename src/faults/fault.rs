//! The `Fault` trait: the definition of a fault, and the plan of one injection.

use std::time::Duration;

use rand::RngExt;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::injection::{Inject, Injection, Planned, acquires_without};
use super::shape::Shape;
use super::target::Target;
use crate::evidence::{CLIENTS_KILLED, EvidenceCounter};

/// The kind of the parts that a fault acts on. `--fault any` has a lane of windows for each of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultFamily {
    /// Links, and the servers behind them.
    Cluster,
    /// Processes of clients.
    Clients,
    /// Single messages.
    Messages,
}

/// The length of the windows of a fault, and the time until the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// Longer than a lease.
    Long,
    /// Longer than a lease, shorter than a second, about half a lease, in turn: each length meets another timer of a lock.
    Varied,
    /// One act on a process, which is over at once. The window leaves a lease to recover.
    Act,
    /// One act on a message. The window ends after it; windows of other faults open while it waits for its message.
    Message,
}

/// The facts of a fault for lists, the history and reports.
#[derive(Debug, Clone, Copy)]
pub struct FaultDefinition {
    /// The argument of `--fault`.
    pub name: &'static str,
    /// One line for lists and help.
    pub summary: &'static str,
    /// The values that may follow `=`, for help; empty if the fault takes no argument.
    pub argument: &'static str,
    pub family: FaultFamily,
    pub pace: Pace,
    /// The participle for a client: "it was *cut off* by partition 2".
    pub verb: &'static str,
    /// The counters of the fault, with their words. Those of links have theirs already.
    pub counters: &'static [EvidenceCounter],
    /// The fault had an effect if one of these is above zero. Windows that overlap share the counters of their links, so this has
    /// counters that no other fault changes.
    pub trace: &'static [EvidenceCounter],
    /// Advice if no window had an effect, when this fault has better advice than the general one.
    pub no_effect_hint: Option<&'static str>,
}

impl FaultDefinition {
    /// Whether it ends processes of clients, and with them their sessions.
    pub fn kills_clients(&self) -> bool {
        self.counters.iter().any(|counter| counter.key == CLIENTS_KILLED.key)
    }
}

/// A failure that harness can inject.
pub trait Fault: Sync {
    fn definition(&self) -> FaultDefinition;

    /// Checks whether a cluster of this shape can have it, as any can by default. The error has the reason and an alternative.
    fn applies(&self, _argument: Option<&str>, _shape: &Shape) -> Result<(), String> {
        Ok(())
    }

    /// Returns the longest window in which a lock with a lease can be right, on a cluster of this shape. The error excludes the
    /// fault from `--fault any`: no lock survives it, or it does not affect most clients.
    fn survivable(&self, _shape: &Shape) -> Result<Duration, &'static str> {
        Ok(Duration::MAX)
    }

    /// Draws one injection. The same seed, shape and number give the same one. `number` counts this fault's windows from 0, so
    /// that a fault can use its kinds in turn. The error describes a valid argument.
    fn plan(&self, argument: Option<&str>, number: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned;

    /// Draws one injection from a seed, in a test.
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

/// Refuses faults on servers that harness did not start.
pub(super) fn not_attached(fault: &str, why: &str, shape: &Shape) -> Result<(), String> {
    match shape.attached {
        None => Ok(()),
        Some(_) => Err(format!(
            "{fault} {why}, and harness did not start the servers of --servers\nhint: leave --servers out"
        )),
    }
}

/// The reason for the refusal of faults on disks.
pub(super) const NO_DISKS: &str = "simulated servers have no disks";

/// Refuses faults that models of servers do not support. `hint` has a runtime that does.
pub(super) fn no_models(fault: &str, why: &str, hint: &str, shape: &Shape) -> Result<(), String> {
    match shape.simulated {
        false => Ok(()),
        true => Err(format!("{fault}: {why}\nhint: {hint}")),
    }
}

/// Refuses faults that neither models nor virtual time support.
pub(super) fn not_simulated(fault: &str, why: &str, hint: &str, shape: &Shape) -> Result<(), String> {
    no_models(fault, why, hint, shape).and_then(|()| not_virtual(fault, shape))
}

/// Refuses faults that virtual time does not support yet.
pub(super) fn not_virtual(fault: &str, shape: &Shape) -> Result<(), String> {
    match shape.virtual_time {
        false => Ok(()),
        true => Err(format!(
            "{fault} does not work in virtual time yet\nhint: --runtime local or docker"
        )),
    }
}

/// Refuses an argument of a fault that takes none.
pub(super) fn no_argument(fault: &str, argument: Option<&str>) -> Result<(), String> {
    match argument {
        None => Ok(()),
        Some(argument) => Err(format!("{fault}={argument}: {fault} takes no argument")),
    }
}

/// Returns the kind that an argument names, or the first of `known` without an argument.
pub(super) fn kind_of<'a>(fault: &str, argument: Option<&'a str>, known: &[&'a str]) -> Result<&'a str, String> {
    let kind = argument.unwrap_or(known[0]);
    let unknown = || format!("{fault} has no kind `{kind}`; it takes one of {}", known.join(", "));
    known.contains(&kind).then_some(kind).ok_or_else(unknown)
}

/// Draws `count` of the clients or servers below `all`, in their order.
pub(super) fn some_of(all: u32, count: usize, rng: &mut ChaCha8Rng) -> Vec<u32> {
    let all: Vec<u32> = (0..all).collect();
    let mut some: Vec<u32> = all.sample(rng, count).copied().collect();
    some.sort_unstable();
    some
}

/// Plans an act on servers of this kind: `leader`, `one`, `majority`, and otherwise all of them.
pub(super) fn on_servers(
    kind: &str,
    act: impl Inject,
    (done, heal): (&str, &'static str),
    shape: &Shape,
    rng: &mut ChaCha8Rng,
) -> Injection {
    let some = match kind {
        // the title begins with its name when it is known
        "leader" => return Injection::new(Target::Leader, act, acquires_without(1, shape), done, heal),
        "one" => vec![rng.random_range(0..shape.servers)],
        "majority" => some_of(shape.servers, shape.servers as usize / 2 + 1, rng),
        _ => (0..shape.servers).collect(),
    };
    let title = format!("{}: {done}", server_names(&some));
    let acquires = acquires_without(some.len(), shape);
    Injection::new(Target::Servers(some), act, acquires, title, heal)
}

/// Returns `n1 n3`.
pub(super) fn server_names(servers: &[u32]) -> String {
    let names: Vec<String> = servers.iter().map(|server| format!("n{}", server + 1)).collect();
    names.join(" ")
}
