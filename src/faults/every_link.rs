//! `latency`, `bursts`, `loss`, `slow`, `forget-idle`, `reset`, `flaky`: every link has one behaviour until the window heals.

use std::time::Duration;

use harness_proxy::{Behaviour, Bursts, Cut, Flow, Loss, Slice};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::link_injection::{LinkInjection, SWALLOWED_BYTES, resetting, slowing};
use super::{Acquires, Fault, FaultDefinition, Injection, Pace, Planned, Shape, Target, parse_duration};

/// A behaviour of links; each is a fault of that name.
pub enum OnEveryLink {
    /// Every chunk arrives later, by a delay with jitter, in order.
    Latency,
    /// Delay comes in bursts, as from a queue in a router that fills and empties.
    Bursts,
    /// Packets are lost, as TCP shows it: a chunk waits for its retransmission, and all later ones wait, too.
    Loss,
    /// The bandwidth of each link is limited, each way.
    Slow,
    /// Connections that are idle for a while are forgotten, as by a NAT or a load balancer: the next chunk meets a reset.
    ForgetIdle,
    /// Every connection is reset when the window starts, and new ones again after a while.
    Reset,
    /// Chunks come in small slices, and connections are cut after some bytes, in the middle of a message.
    Flaky,
}

/// The least retransmission timeout of Linux.
const TIMEOUT: Duration = Duration::from_millis(200);

impl Fault for OnEveryLink {
    fn definition(&self) -> FaultDefinition {
        match self {
            Self::Latency => slowing(
                "latency",
                "every chunk is delayed, with jitter, both ways",
                "DELAY[+JITTER], such as 100ms+20ms (default: drawn, a round trip well below a third of the lease)",
            ),
            Self::Bursts => slowing(
                "bursts",
                "chunks are delayed in bursts, a quarter of the time",
                "DELAY in a burst, such as 300ms (default: drawn, up to a fifth of the lease)",
            ),
            Self::Loss => FaultDefinition {
                no_effect_hint: Some("lose more packets (--fault loss=20%), or lengthen the windows (--window 10s)"),
                ..slowing(
                    "loss",
                    "packets are lost: some chunks wait as long as a TCP retransmission takes",
                    "PERCENT of the chunks, such as 5% (default: drawn from 2% to 10%)",
                )
            },
            Self::Slow => slowing(
                "slow",
                "every link has a limit of bytes a second, each way",
                "BYTES a second, such as 2000 or 4k (default: drawn from 2k to 8k)",
            ),
            Self::ForgetIdle => FaultDefinition {
                // a shorter window ends before a connection was idle in it
                pace: Pace::Long,
                no_effect_hint: Some(
                    "forget sooner (--fault forget-idle=50ms), or let clients pause: longer --hold, more --clients",
                ),
                ..resetting(
                    "forget-idle",
                    "idle connections are forgotten, as by a NAT: the next chunk meets a reset",
                    "IDLE, such as 200ms: how long a connection may be idle (default: a fifth of the lease)",
                )
            },
            Self::Reset => FaultDefinition {
                counters: &[SWALLOWED_BYTES],
                ..resetting(
                    "reset",
                    "connections are reset repeatedly",
                    "EVERY, such as 300ms: about how long a connection lives (default: a quarter of the lease)",
                )
            },
            Self::Flaky => resetting(
                "flaky",
                "chunks arrive in slices, and connections are cut in the middle of a message",
                "BYTES after which a connection is cut, about (default: drawn from 2000 to 10000)",
            ),
        }
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        let drawn = match self {
            Self::Latency => latency(argument, shape.lease, rng),
            Self::Bursts => bursts(argument, shape.lease, rng),
            Self::Loss => loss(argument, rng),
            Self::Slow => slow(argument, rng),
            Self::ForgetIdle => forget_idle(argument, shape.lease),
            Self::Reset => reset(argument, shape.lease),
            Self::Flaky => flaky(argument, rng),
        };
        let wrong = |why: String| format!("{}={}: {why}", self.definition().name, argument.unwrap_or_default());
        let (behaviour, title) = drawn.map_err(wrong)?;
        let on_links = LinkInjection {
            behaviour,
            reset_first: matches!(self, Self::Reset),
            reset_on_heal: false,
        };
        let injection = Injection::new(Target::Everyone, on_links, Acquires::GoOn, title, "resume");
        Ok(injection)
    }
}

/// A behaviour and its words. The error describes a valid argument.
type DrawnBehaviour = Result<(Behaviour, String), String>;

fn latency(argument: Option<&str>, lease: Duration, rng: &mut ChaCha8Rng) -> DrawnBehaviour {
    let (delay, jitter) = match argument {
        None => {
            let delay = lease.mul_f64(rng.random_range(0.02..0.05));
            (delay, delay / 4)
        }
        Some(text) => delay_and_jitter(text)?,
    };
    let title = format!(
        "every link, {}ms ± {}ms each way",
        delay.as_millis(),
        jitter.as_millis()
    );
    let flow = Flow {
        delay,
        jitter,
        ..Flow::default()
    };
    Ok((Behaviour::both(flow), title))
}

fn delay_and_jitter(text: &str) -> Result<(Duration, Duration), String> {
    let Some((delay, jitter)) = text.split_once('+') else {
        return Ok((parse_duration(text)?, Duration::ZERO));
    };
    let (delay, jitter) = (parse_duration(delay)?, parse_duration(jitter)?);
    if jitter > delay {
        return Err("the jitter is larger than the delay".into());
    }
    Ok((delay, jitter))
}

fn bursts(argument: Option<&str>, lease: Duration, rng: &mut ChaCha8Rng) -> DrawnBehaviour {
    let drawn = lease.mul_f64(rng.random_range(0.05..0.2));
    let every = lease.mul_f64(rng.random_range(0.5..1.0));
    let delay = argument.map_or(Ok(drawn), parse_duration)?;
    let length = every / 4;
    let title = format!(
        "every link, {}ms each way for {}ms of every {}ms",
        delay.as_millis(),
        length.as_millis(),
        every.as_millis()
    );
    let flow = Flow::bursty(Bursts { every, length, delay });
    Ok((Behaviour::both(flow), title))
}

fn loss(argument: Option<&str>, rng: &mut ChaCha8Rng) -> DrawnBehaviour {
    let per_mille = match argument {
        None => rng.random_range(20..100),
        Some(text) => per_mille(text).ok_or("not a percentage such as 5% or 0.5%")?,
    };
    let percent = f64::from(per_mille) / 10.0;
    let title = format!("every link, {percent}% of the chunks wait 200ms, 600ms, 1400ms, …");
    let timeout = TIMEOUT;
    let flow = Flow::lossy(Loss { per_mille, timeout });
    Ok((Behaviour::both(flow), title))
}

fn per_mille(text: &str) -> Option<u16> {
    let percent: f64 = text.strip_suffix('%').unwrap_or(text).parse().ok()?;
    let per_mille = (percent * 10.0).round();
    (1.0..=1000.0).contains(&per_mille).then_some(per_mille as u16)
}

fn slow(argument: Option<&str>, rng: &mut ChaCha8Rng) -> DrawnBehaviour {
    let rate = match argument {
        None => rng.random_range(2_000..8_000),
        Some(text) => rate(text)?,
    };
    let title = format!("every link, {rate} bytes a second each way");
    let flow = Flow::slowed(rate);
    Ok((Behaviour::both(flow), title))
}

/// Parses bytes a second: `2000`, `4k`.
pub fn rate(text: &str) -> Result<u32, &'static str> {
    let (number, unit) = text.strip_suffix(['k', 'K']).map_or((text, 1), |number| (number, 1000));
    let number = number.parse::<u32>().ok();
    let rate = number.and_then(|number| number.checked_mul(unit));
    rate.filter(|rate| *rate > 0).ok_or("not a rate such as 2000 or 4k")
}

fn forget_idle(argument: Option<&str>, lease: Duration) -> DrawnBehaviour {
    // shorter than the time between two renewals, which is a third of the lease as a rule
    let idle = argument.map_or(Ok(lease / 5), parse_duration)?;
    let idle = idle.max(Duration::from_millis(1));
    let title = format!("every connection that is idle for {}ms", idle.as_millis());
    let flow = Flow::forgetful(idle);
    Ok((Behaviour::both(flow), title))
}

fn reset(argument: Option<&str>, lease: Duration) -> DrawnBehaviour {
    let every = argument.map_or(Ok(lease / 4), parse_duration)?;
    let title = format!("every connection, about every {}ms", every.as_millis());
    let cut = Cut {
        after: Some(every.max(Duration::from_millis(1))),
        after_bytes: None,
    };
    let behaviour = Behaviour {
        cut,
        ..Behaviour::default()
    };
    Ok((behaviour, title))
}

fn flaky(argument: Option<&str>, rng: &mut ChaCha8Rng) -> DrawnBehaviour {
    let after_bytes = match argument {
        None => rng.random_range(2_000..10_000),
        Some(text) => {
            let bytes = text.parse::<u32>().ok().filter(|bytes| *bytes > 0);
            bytes.ok_or("not a number of bytes")?
        }
    };
    let slice = rng.random_range(8..64);
    let title = format!("every link, slices of {slice} bytes, cut after about {after_bytes} bytes");
    let flow = Flow::sliced(Slice::of(slice));
    let cut = Cut {
        after: None,
        after_bytes: Some(after_bytes),
    };
    let behaviour = Behaviour {
        cut,
        ..Behaviour::both(flow)
    };
    Ok((behaviour, title))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_may_carry_its_jitter() {
        let both = (Duration::from_millis(100), Duration::from_millis(20));
        assert_eq!(delay_and_jitter("100ms+20ms"), Ok(both));
        assert_eq!(delay_and_jitter("1s"), Ok((Duration::from_secs(1), Duration::ZERO)));
        assert!(delay_and_jitter("10ms+20ms").is_err());
    }

    #[test]
    fn a_share_is_a_percentage_above_zero() {
        assert_eq!(["5%", "0.5", "100%"].map(per_mille), [Some(50), Some(5), Some(1000)]);
        assert_eq!(["0%", "101%", "NaN"].map(per_mille), [None; 3]);
    }

    #[test]
    fn a_rate_is_a_number_above_zero() {
        assert_eq!([rate("2000"), rate("4k")], [Ok(2000), Ok(4000)]);
        assert!(rate("0").is_err() && rate("k").is_err());
    }
}
