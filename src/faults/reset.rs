//! `reset`: every connection is reset when the window starts, and new ones again after a while.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;

use super::link_injection::{LinkInjection, SWALLOWED_BYTES, resetting};
use super::{Acquires, Fault, FaultDefinition, Injection, Shape, Target, parse_duration};
use harness_proxy::{Behaviour, Cut};

pub struct Reset;

impl Fault for Reset {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            counters: &[SWALLOWED_BYTES],
            ..resetting(
                "reset",
                "connections are reset repeatedly",
                "EVERY, such as 300ms: about how long a connection lives (default: a quarter of the lease)",
            )
        }
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, _: &mut ChaCha8Rng) -> Result<Injection, String> {
        let every = match argument {
            None => shape.lease / 4,
            Some(text) => parse_duration(text).map_err(|why| format!("reset={text}: {why}"))?,
        };
        let cut = Cut {
            after: Some(every.max(Duration::from_millis(1))),
            after_bytes: None,
        };
        let on_links = LinkInjection {
            behaviour: Behaviour {
                cut,
                ..Behaviour::default()
            },
            reset_first: true,
            reset_on_heal: false,
        };
        let title = format!("every connection, about every {}ms", every.as_millis());
        Ok(Injection::new(Target::Everyone, on_links, Acquires::GoOn, title))
    }
}
