//! `bursts`: delay that comes in bursts, as from a queue in a router that fills and empties.

use harness_proxy::{Behaviour, Bursts, Flow};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::link_injection::{everywhere, slowing};
use super::{Fault, FaultDefinition, Injection, Shape, parse_duration};

pub struct LatencyBursts;

impl Fault for LatencyBursts {
    fn definition(&self) -> FaultDefinition {
        slowing(
            "bursts",
            "chunks are delayed in bursts, a quarter of the time",
            "DELAY in a burst, such as 300ms (default: drawn, up to a fifth of the lease)",
        )
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
