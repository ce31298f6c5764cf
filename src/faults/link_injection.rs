//! `LinkInjection`: links between clients and servers have another behaviour until the heal. The common part of all faults on
//! links.

use std::time::Duration;

use async_trait::async_trait;

use super::active::{ActiveFault, Affected, HealOnDrop, Healed, Injected};
use super::fault::{FaultDefinition, FaultFamily, Pace};
use super::injection::{Inject, InjectionContext, NotInjected};
use crate::evidence::{DELAYED_BYTES, Evidence, EvidenceCounter, RESETS};
use harness_proxy::{AnyLink, Behaviour, LinkFault, in_words, toxics_for};

/// A behaviour of the target's links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkInjection {
    pub behaviour: Behaviour,
    /// Whether the connections that exist when the window starts are reset.
    pub reset_first: bool,
    /// Whether they are reset at the heal, instead of continuing.
    pub reset_on_heal: bool,
}

/// Bytes of answers that the `reset_peer` of a Toxiproxy read and lost. The built-in proxy resets a connection between two
/// messages; that toxic lets hardly any answer through, which is another fault and must show.
pub const SWALLOWED_BYTES: EvidenceCounter = EvidenceCounter::new(
    "swallowed_bytes",
    "",
    "of answers lost, as Toxiproxy's reset_peer loses them",
);

/// Returns the definition of a fault that only slows links: the bytes that it delayed show its effect.
pub fn slowing(name: &'static str, summary: &'static str, argument: &'static str) -> FaultDefinition {
    FaultDefinition {
        name,
        summary,
        argument,
        family: FaultFamily::Cluster,
        pace: Pace::Varied,
        verb: "slowed",
        counters: &[],
        trace: &[DELAYED_BYTES],
        no_effect_hint: None,
    }
}

/// Returns the definition of a fault that resets connections: their number shows its effect.
pub fn resetting(name: &'static str, summary: &'static str, argument: &'static str) -> FaultDefinition {
    FaultDefinition {
        verb: "cut off",
        trace: &[RESETS],
        ..slowing(name, summary, argument)
    }
}

/// Returns the target's clients and their links.
pub fn links_of(context: &InjectionContext<'_>) -> (Vec<u32>, Vec<AnyLink>) {
    let links = context.env.links.iter();
    let of_target = links.filter(|((client, server), _)| context.target.has_link(*client, *server));
    let (mut clients, links): (Vec<u32>, Vec<AnyLink>) =
        of_target.map(|((client, _), link)| (*client, link.clone())).unzip();
    clients.dedup();
    (clients, links)
}

/// Returns the effect of a fault on links so far.
pub fn done_by(fault: &LinkFault) -> Evidence {
    Evidence::of_links(fault.names().len(), fault.counts())
}

/// Returns the act of the heal of a fault on links.
pub fn heal_word(reset_on_heal: bool) -> &'static str {
    if reset_on_heal { "reset" } else { "resume" }
}

#[async_trait]
impl Inject for LinkInjection {
    fn toxics(&self) -> Result<Option<String>, String> {
        let toxics = toxics_for(&self.behaviour, self.reset_on_heal)?;
        Ok(Some(in_words(&toxics)))
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let (clients, links) = links_of(&context);
        let mut fault = LinkFault::apply(links, context.number, self.behaviour, self.reset_on_heal);
        if self.reset_first {
            fault.reset_connections();
        }
        fault.settle().await.map_err(NotInjected::Failed)?;
        Ok(on_links(fault, clients, Vec::new()))
    }
}

/// Returns an active fault on links of these clients or servers.
pub fn on_links(fault: LinkFault, clients: Vec<u32>, servers: Vec<u32>) -> Injected {
    let links = fault.names();
    HealOnDrop::new(ActiveLinkFault(fault)).on(Affected {
        clients,
        servers,
        links,
    })
}

/// Links with another behaviour.
struct ActiveLinkFault(LinkFault);

#[async_trait]
impl ActiveFault for ActiveLinkFault {
    async fn heal(&mut self, _: Duration, _: bool) -> Healed {
        // counted before the heal releases the bytes that were held back
        let evidence = done_by(&self.0).with(&SWALLOWED_BYTES, self.0.swallowed_bytes());
        Healed {
            trouble: self.0.heal().await.err(),
            ..Healed::from(evidence)
        }
    }
}
