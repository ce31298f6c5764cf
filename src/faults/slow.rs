//! `slow`: the bandwidth of every link is limited, each way.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::link_injection::{everywhere, slowing};
use super::{Fault, FaultDefinition, Injection, Shape};
use harness_proxy::{Behaviour, Flow};

pub struct Slow;

impl Fault for Slow {
    fn definition(&self) -> FaultDefinition {
        slowing(
            "slow",
            "every link has a limit of bytes a second, each way",
            "BYTES a second, such as 2000 or 4k (default: drawn from 2k to 8k)",
        )
    }

    fn plan(&self, argument: Option<&str>, _: u32, _: &Shape, rng: &mut ChaCha8Rng) -> Result<Injection, String> {
        let rate = match argument {
            None => rng.random_range(2_000..8_000),
            Some(text) => rate(text).map_err(|why| format!("slow={text}: {why}"))?,
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

/// Bytes a second: `2000`, `4k`.
pub fn rate(text: &str) -> Result<u32, &'static str> {
    let (number, unit) = text.strip_suffix(['k', 'K']).map_or((text, 1), |number| (number, 1000));
    let number = number.parse::<u32>().ok();
    let rate = number.and_then(|number| number.checked_mul(unit));
    rate.filter(|rate| *rate > 0).ok_or("not a rate such as 2000 or 4k")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_above_zero() {
        assert_eq!(
            (rate("2000"), rate("4k"), rate("0").ok(), rate("k").ok()),
            (Ok(2000), Ok(4000), None, None)
        );
    }
}
