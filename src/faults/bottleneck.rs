//! `bottleneck`: all links share one bandwidth, as those of clients behind one router do.

use async_trait::async_trait;
use harness_proxy::LinkFault;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::every_link::rate;
use super::fault::not_simulated;
use super::link_injection::{links_of, on_links, slowing};
use super::{
    Acquires, Fault, FaultDefinition, Inject, Injected, Injection, InjectionContext, NotInjected, Planned, Shape,
    Target,
};

pub struct SharedLink;

impl Fault for SharedLink {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            no_effect_hint: Some("let fewer bytes through (--fault bottleneck=5k), or run more clients (--clients 12)"),
            ..slowing(
                "bottleneck",
                "all links together have a limit of bytes a second, each way",
                "BYTES a second, such as 20000 or 20k (default: drawn from 2k to 8k a client)",
            )
        }
    }

    fn applies(&self, _: Option<&str>, shape: &Shape) -> Result<(), String> {
        let why = "simulated links do not share their bandwidth";
        not_simulated("bottleneck", why, "--fault slow, or --runtime local or docker", shape)
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        let bytes_per_second = match argument {
            None => rng.random_range(2_000..8_000) * shape.clients,
            Some(text) => rate(text).map_err(|why| format!("bottleneck={text}: {why}"))?,
        };
        let title = format!("every link, {bytes_per_second} bytes a second each way together");
        let shared = ShareBandwidth { bytes_per_second };
        let injection = Injection::new(Target::Everyone, shared, Acquires::GoOn, title, "resume");
        Ok(injection)
    }
}

/// Makes the target's links share a bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ShareBandwidth {
    bytes_per_second: u32,
}

#[async_trait]
impl Inject for ShareBandwidth {
    fn toxics(&self) -> Result<Option<String>, String> {
        Err("Toxiproxy limits the bandwidth of each connection separately".into())
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let (clients, links) = links_of(&context);
        let fault = LinkFault::share_bandwidth(links, context.number, self.bytes_per_second);
        Ok(on_links(fault, clients, Vec::new()))
    }
}
