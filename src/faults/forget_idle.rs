//! `forget-idle`: connections that are idle for a while are forgotten, as by a NAT or a load balancer: what is sent over them
//! next meets a reset.

use std::time::Duration;

use harness_proxy::{Behaviour, Flow};
use rand_chacha::ChaCha8Rng;

use super::link_injection::{everywhere, resetting};
use super::{Fault, FaultDefinition, Injection, Pace, Shape, parse_duration};

pub struct ForgetIdle;

impl Fault for ForgetIdle {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            // a shorter window is over before a connection was idle in it
            pace: Pace::Long,
            no_effect_hint: Some(
                "forget sooner (--fault forget-idle=50ms), or let clients pause: longer --hold, more --clients",
            ),
            ..resetting(
                "forget-idle",
                "idle connections are forgotten, as by a NAT: the next chunk meets a reset",
                "IDLE, such as 200ms: how long a connection may be idle (default: a fifth of the lease)",
            )
        }
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, _: &mut ChaCha8Rng) -> Result<Injection, String> {
        let idle = match argument {
            // shorter than the time between two renewals, which is a third of the lease as a rule
            None => shape.lease / 5,
            Some(text) => parse_duration(text).map_err(|why| format!("forget-idle={text}: {why}"))?,
        };
        let idle = idle.max(Duration::from_millis(1));
        let title = format!("every connection that is idle for {}ms", idle.as_millis());
        Ok(everywhere(
            Behaviour::both(Flow {
                forget_after: Some(idle),
                ..Flow::default()
            }),
            title,
        ))
    }
}
