//! `latency`: every chunk on every link arrives later, give or take a jitter, in order.

use std::time::Duration;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::link_injection::{everywhere, slowing};
use super::{Fault, FaultDefinition, Injection, Shape, parse_duration};
use harness_proxy::{Behaviour, Flow};

pub struct Latency;

impl Fault for Latency {
    fn definition(&self) -> FaultDefinition {
        slowing(
            "latency",
            "every chunk is delayed, with jitter, both ways",
            "DELAY[+JITTER], such as 100ms+20ms (default: drawn, a round trip well below a third of the lease)",
        )
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Result<Injection, String> {
        let (delay, jitter) = match argument {
            None => {
                let delay = shape.lease.mul_f64(rng.random_range(0.02..0.05));
                (delay, delay / 4)
            }
            Some(text) => parse(text).map_err(|why| format!("latency={text}: {why}"))?,
        };
        let title = format!(
            "every link, {}ms ± {}ms each way",
            delay.as_millis(),
            jitter.as_millis()
        );
        Ok(everywhere(
            Behaviour::both(Flow {
                delay,
                jitter,
                ..Flow::default()
            }),
            title,
        ))
    }
}

fn parse(text: &str) -> Result<(Duration, Duration), String> {
    match text.split_once('+') {
        None => Ok((parse_duration(text)?, Duration::ZERO)),
        Some((delay, jitter)) => {
            let (delay, jitter) = (parse_duration(delay)?, parse_duration(jitter)?);
            if jitter > delay {
                Err("the jitter is larger than the delay".into())
            } else {
                Ok((delay, jitter))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_may_carry_its_jitter() {
        assert_eq!(
            parse("100ms+20ms"),
            Ok((Duration::from_millis(100), Duration::from_millis(20)))
        );
        assert_eq!(parse("1s"), Ok((Duration::from_secs(1), Duration::ZERO)));
        assert!(parse("10ms+20ms").is_err());
    }
}
