//! The way between a client and its server, real and simulated, and the disturbances of timed scripts ([`Stage`]).

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use harness_proxy::{Behaviour, Flow, Link, LinkControl, Proxy};
use harness_workloads::{RecipeHost, TokioHost};

use super::servers::RealServer;
use crate::network::{LinkLatency, SimulatedLink};
use crate::{SimulatedProcess, World};

const LAYER: u32 = 1;

/// The disturbances of the way between a client and its server, for timed scripts.
pub trait Stage {
    fn host(&self) -> Rc<dyn RecipeHost>;
    fn apply(&self, behaviour: Behaviour);
    fn stall(&self) {
        self.apply(Behaviour::STALL);
    }
    /// Delays bytes by so many milliseconds, both ways.
    fn delay(&self, ms: u64) {
        self.apply(Behaviour::both(Flow::delayed(Duration::from_millis(ms))));
    }
    fn heal(&self);
    fn reset(&self);
    /// Stops the server's process, or lets it go on.
    fn pause(&self, paused: bool);
}

/// A process of this machine behind a link of the real proxy.
pub struct RealStage {
    pub server: RealServer,
    pub link: Arc<Link>,
    pub host: Rc<dyn RecipeHost>,
}

impl RealStage {
    pub fn new(proxy: &Proxy, server: RealServer) -> Self {
        RealStage {
            link: proxy.link("c0->n1".into(), server.address, 1).unwrap(),
            server,
            host: TokioHost::shared(),
        }
    }
}

impl Stage for RealStage {
    fn host(&self) -> Rc<dyn RecipeHost> {
        self.host.clone()
    }
    fn apply(&self, behaviour: Behaviour) {
        self.link.apply(LAYER, behaviour);
    }
    fn heal(&self) {
        self.link.heal(LAYER);
    }
    fn reset(&self) {
        self.link.reset_connections();
    }
    fn pause(&self, paused: bool) {
        self.server.pause(paused);
    }
}

/// Two processes of a world, and the link from one to the other.
#[derive(Clone, Copy)]
pub struct ModelStage {
    pub server: SimulatedProcess,
    pub link: SimulatedLink,
    pub client: SimulatedProcess,
}

impl ModelStage {
    pub fn new(world: World, server: SimulatedProcess) -> Self {
        ModelStage {
            server,
            link: SimulatedLink::new(world, "c0->n1", 0, LinkLatency::default()),
            client: world.process("c0"),
        }
    }
}

impl Stage for ModelStage {
    fn host(&self) -> Rc<dyn RecipeHost> {
        self.client.host()
    }
    fn apply(&self, behaviour: Behaviour) {
        self.link.apply(LAYER, behaviour);
    }
    fn heal(&self) {
        self.link.heal(LAYER);
    }
    fn reset(&self) {
        self.link.reset_connections();
    }
    fn pause(&self, paused: bool) {
        if paused {
            self.server.stop();
        } else {
            self.server.go_on();
        }
    }
}
