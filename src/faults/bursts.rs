//! `bursts`: delay that comes in bursts, as from a queue in a router that fills and empties.

use harness_proxy::{Behaviour, Bursts, Flow};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::link_injection::everywhere;
use super::{Fault, FaultDefinition, FaultFamily, Injection, Pace, Shape, parse_duration};
use crate::evidence::DELAYED_BYTES;

pub struct LatencyBursts;

impl Fault for LatencyBursts {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            name: "bursts",
            summary: "chunks are delayed in bursts, a quarter of the time",
            argument: "DELAY in a burst, such as 300ms (default: drawn, up to a fifth of the lease)",
            family: FaultFamily::Cluster,
            pace: Pace::Long,
            verb: "slowed",
            counters: &[],
            trace: &[DELAYED_BYTES],
            no_effect_hint: None,
        }
    }

    fn applies(&self, _: Option<&str>, _: &Shape) -> Result<(), String> {
        Ok(())
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Result<Injection, String> {
        let drawn = shape.lease.mul_f64(rng.random_range(0.05..0.2));
        let every = shape.lease.mul_f64(rng.random_range(0.5..1.0));
        let delay = match argument {
            None => drawn,
            Some(text) => parse_duration(text).map_err(|why| format!("bursts={text}: {why}"))?,
        };
        let bursts = Bursts {
            every,
            length: every / 4,
            delay,
        };
        let title = format!(
            "every link, {}ms each way for {}ms of every {}ms",
            delay.as_millis(),
            bursts.length.as_millis(),
            every.as_millis()
        );
        Ok(everywhere(
            Behaviour::both(Flow {
                bursts: Some(bursts),
                ..Flow::default()
            }),
            title,
        ))
    }
}
