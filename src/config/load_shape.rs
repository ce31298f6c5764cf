//! The shape of the load: the times at which clients acquire, and the locks that they choose ([`LoadShape`]).

use std::time::Duration;

use clap::Args;

use super::duration::{duration_within, parse_duration};
use super::heading::LOAD;
use crate::limits::MAX_TIME;

/// Maximum rate: one machine cannot record more acquires a second.
const MAX_RATE: f64 = 1_000_000.0;
/// Maximum exponent: with a larger one, practically all acquires are for the first lock.
const MAX_SKEW: f64 = 10.0;

/// When clients ask, and for which lock.
#[derive(Debug, Clone, Copy, PartialEq, Default, Args)]
pub struct LoadShape {
    /// Rest of a client between two of its turns, drawn from half of this to one and a half times this
    #[arg(long, help_heading = LOAD, value_name = "TIME", default_value = "0s", value_parser = parse_duration)]
    pub think: Duration,
    /// Acquires that fall due in a second, for all clients together [default: a client asks again when it has released]
    ///
    /// An open loop: acquires fall due in a Poisson process, and a free client makes the next one. An acquire that waited for
    /// a free client counts its time from the moment at which it was due (`late_us` in the history).
    #[arg(long, help_heading = LOAD, value_name = "N", conflicts_with = "think", value_parser = above_zero)]
    pub rate: Option<f64>,
    /// Exponent of the popularity of locks: lock number k is asked for in proportion to 1/k^S
    #[arg(long, help_heading = LOAD, value_name = "S", default_value = "0", value_parser = parse_skew)]
    pub skew: f64,
    /// Time over which the load grows: clients start one after the other, or the rate rises from 0
    #[arg(long, help_heading = LOAD, value_name = "TIME", default_value = "0s", value_parser = duration_within(Duration::ZERO, MAX_TIME))]
    pub ramp: Duration,
}

fn above_zero(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| *rate > 0.0 && *rate <= MAX_RATE);
    rate.ok_or_else(|| format!("expected acquires a second, such as 50 or 0.5, at most {MAX_RATE}"))
}

fn parse_skew(text: &str) -> Result<f64, String> {
    let skew = text.parse().ok().filter(|skew| (0.0..=MAX_SKEW).contains(skew));
    skew.ok_or_else(|| format!("expected an exponent from 0 (all locks alike) to {MAX_SKEW}"))
}
