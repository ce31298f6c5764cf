//! `pooler`: clients reach their server through a transaction pooler, which gives each transaction any free session of the
//! server.
//!
//! Connections end when the window starts and when it heals, as when a pooler is put in front of a server and removed. A lock
//! that belongs to a session is then shared by all clients whose transactions use that session; one that belongs to a
//! transaction, or is a row, is not affected.

use std::time::Duration;

use async_trait::async_trait;
use rand_chacha::ChaCha8Rng;

use super::fault::{no_argument, not_virtual};
use super::{
    Acquires, ActiveFault, Affected, Fault, FaultDefinition, FaultEnv, FaultFamily, HealOnDrop, Healed, Inject,
    Injected, Injection, InjectionContext, NotInjected, Pace, Planned, Shape, Target,
};
use crate::backends::{self, pooler};
use crate::evidence::{Evidence, EvidenceCounter};
use harness_proxy::{Behaviour, LinkFault};

pub struct Pooler;

/// The only server that clients know; after a failover it is another node.
const SERVER: u32 = 0;
const POOLED: EvidenceCounter = EvidenceCounter::new("pooled_transactions", "transaction", "pooled");

impl Fault for Pooler {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            name: "pooler",
            summary: "clients connect through a transaction pooler (PgBouncer), which shares sessions among them",
            argument: "",
            family: FaultFamily::Cluster,
            pace: Pace::Long,
            verb: "led through a pooler",
            counters: &[POOLED],
            trace: &[POOLED],
            no_effect_hint: None,
        }
    }

    fn applies(&self, _: Option<&str>, shape: &Shape) -> Result<(), String> {
        if !shape.backend.pooler {
            return Err(format!(
                "no transaction pooler is known for {}\nhint: --backend {}",
                shape.backend,
                backends::names(" or ", |backend| backend.pooler)
            ));
        }
        not_virtual("pooler", shape)?;
        match pooler::missing() {
            Some(why) => Err(format!("pooler: {why}")),
            None => Ok(()),
        }
    }

    fn survivable(&self, _: &Shape) -> Result<Duration, &'static str> {
        Err("a pooler shares the lock of a session")
    }

    fn plan(&self, argument: Option<&str>, _: u32, _: &Shape, _: &mut ChaCha8Rng) -> Planned {
        no_argument("pooler", argument)?;
        let title = "every client through a transaction pooler";
        Ok(Injection::new(
            Target::Everyone,
            RedirectToPooler,
            Acquires::GoOn,
            title,
            "lead directly",
        ))
    }
}

/// Redirects clients to a pooler.
#[derive(Debug)]
struct RedirectToPooler;

#[async_trait]
impl Inject for RedirectToPooler {
    fn toxics(&self) -> Result<Option<String>, String> {
        Err("it leads clients to another address".into())
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let servers = &context.env.servers;
        let server = servers.access(servers.endpoints().node_of(SERVER));
        let pooler = pooler::start(&server).await;
        let pooler = pooler.map_err(|_| NotInjected::Missed("the pooler did not start"))?;
        let led = PooledClients {
            env: context.env.clone(),
            number: context.number,
            pooler: Some(pooler),
        };
        led.lead(true);
        Ok(HealOnDrop::new(led).on(Affected::servers(vec![SERVER])))
    }
}

/// Clients that reach their server through a pooler.
struct PooledClients {
    env: FaultEnv,
    number: u32,
    pooler: Option<pooler::PoolerProcess>,
}

impl PooledClients {
    /// Redirects new connections to the pooler, or to the server, and ends the others.
    fn lead(&self, through: bool) {
        let links: Vec<_> = self.env.links.values().cloned().collect();
        let servers = &self.env.servers;
        let address = match &self.pooler {
            Some(pooler) if through => pooler.address,
            _ => servers.address(servers.endpoints().node_of(SERVER)),
        };
        // dropped at the end, which ends the connections
        let _stalled = LinkFault::apply(links, self.number, Behaviour::STALL, true);
        for link in self.env.links.values() {
            link.redirect(address);
        }
    }
}

#[async_trait]
impl ActiveFault for PooledClients {
    async fn heal(&mut self, _: Duration, _: bool) -> Healed {
        let pooled = match &self.pooler {
            Some(pooler) => pooler.transactions().await,
            None => 0,
        };
        self.undo();
        Evidence::default().with(&POOLED, pooled).into()
    }

    fn undo(&mut self) {
        if self.pooler.is_some() {
            self.lead(false);
            self.pooler = None;
        }
    }
}
