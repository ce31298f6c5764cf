//! `slow`: the bandwidth of every link is limited, each way.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::link_injection::everywhere;
use super::{Fault, FaultDefinition, Injection, Shape};
use crate::evidence::DELAYED_BYTES;
use harness_proxy::{Behaviour, Flow};

pub struct Slow;

impl Fault for Slow {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            name: "slow",
            summary: "every link is narrow: so many bytes a second each way",
            argument: "BYTES a second, such as 2000 or 4k (default: drawn from 2k to 8k)",
            verb: "slowed",
            counters: &[],
            trace: &[DELAYED_BYTES],
            no_effect_hint: None,
        }
    }

    fn applies(&self, _: Option<&str>, _: &Shape) -> Result<(), String> {
        Ok(())
    }

    fn plan(&self, argument: Option<&str>, _: u32, _: &Shape, rng: &mut ChaCha8Rng) -> Result<Injection, String> {
        let rate = match argument {
            None => rng.random_range(2_000..8_000),
            Some(text) => parse(text).ok_or_else(|| format!("slow={text}: not a rate such as 2000 or 4k"))?,
        };
        let title = format!("every link, {rate} bytes a second each way");
        Ok(everywhere(
            Behaviour::both(Flow {
                bytes_per_second: Some(rate),
                ..Flow::default()
            }),
            title,
        ))
    }
}

fn parse(text: &str) -> Option<u32> {
    let (number, unit) = text.strip_suffix(['k', 'K']).map_or((text, 1), |number| (number, 1000));
    number.parse::<u32>().ok()?.checked_mul(unit).filter(|rate| *rate > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_above_zero() {
        assert_eq!(
            (parse("2000"), parse("4k"), parse("0"), parse("k")),
            (Some(2000), Some(4000), None, None)
        );
    }
}
