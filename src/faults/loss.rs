//! `loss`: packets are lost, as TCP shows it: a chunk waits for its retransmission, and everything behind it waits, too.

use std::time::Duration;

use harness_proxy::{Behaviour, Flow, Loss};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::link_injection::{everywhere, slowing};
use super::{Fault, FaultDefinition, Injection, Shape};

pub struct PacketLoss;

/// The least retransmission timeout of Linux.
const TIMEOUT: Duration = Duration::from_millis(200);

impl Fault for PacketLoss {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            no_effect_hint: Some("lose more packets (--fault loss=20%), or lengthen the windows (--window 10s)"),
            ..slowing(
                "loss",
                "packets are lost: some chunks wait as long as a TCP retransmission takes",
                "PERCENT of the chunks, such as 5% (default: drawn from 2% to 10%)",
            )
        }
    }

    fn plan(&self, argument: Option<&str>, _: u32, _: &Shape, rng: &mut ChaCha8Rng) -> Result<Injection, String> {
        let per_mille = match argument {
            None => rng.random_range(20..100),
            Some(text) => per_mille(text).ok_or_else(|| format!("loss={text}: not a percentage such as 5% or 0.5%"))?,
        };
        let percent = f64::from(per_mille) / 10.0;
        let title = format!("every link, {percent}% of the chunks wait 200ms, 600ms, 1400ms, …");
        Ok(everywhere(
            Behaviour::both(Flow {
                loss: Some(Loss {
                    per_mille,
                    timeout: TIMEOUT,
                }),
                ..Flow::default()
            }),
            title,
        ))
    }
}

fn per_mille(text: &str) -> Option<u16> {
    let percent: f64 = text.strip_suffix('%').unwrap_or(text).parse().ok()?;
    let per_mille = (percent * 10.0).round();
    (1.0..=1000.0).contains(&per_mille).then_some(per_mille as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_a_percentage_above_zero() {
        assert_eq!(
            (per_mille("5%"), per_mille("0.5"), per_mille("100%")),
            (Some(50), Some(5), Some(1000))
        );
        assert_eq!(
            (per_mille("0%"), per_mille("101%"), per_mille("NaN")),
            (None, None, None)
        );
    }
}
