//! `clock`: the wall clock of one process is stepped, forward or back, and stepped back when the window heals.
//!
//! Only the time of day moves; monotonic clocks go on as they were. A lock that compares deadlines of several machines
//! must break under it, and so must one whose server counts a time to live by the time of day.

use std::time::Duration;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::strike::Means;
use super::{Fault, Shape, Strike, Target, parse_duration};

pub struct Clock;

/// How far a clock is stepped unless told, in leases: whatever was promised for one is over.
const LEASES: u32 = 2;

impl Fault for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn summary(&self) -> &'static str {
        "the wall clock of one client, or of one Redis server, is stepped"
    }

    fn argument(&self) -> &'static str {
        "waiter, holder, client or server, and how far: holder-5s (default: waiter, two leases forward)"
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Result<Strike, String> {
        let (whose, step) = parse(argument.unwrap_or("waiter"))
            .map_err(|why| format!("clock={}: {why}", argument.unwrap_or_default()))?;
        let step = step.unwrap_or(Step {
            back: false,
            by: shape.lease * LEASES,
        });
        let target = match whose {
            "waiter" => Target::Waiter,
            "holder" => Target::Holder,
            "client" => Target::Clients(vec![rng.random_range(0..shape.clients)]),
            _ => Target::Server(rng.random_range(0..shape.servers)),
        };
        let who = match &target {
            Target::Clients(clients) => format!("c{}: ", clients[0]),
            Target::Server(server) => format!("n{}: ", server + 1),
            _ => String::new(),
        };
        let way = if step.back { "back" } else { "forward" };
        let title = format!("{who}its wall clock steps {} ms {way}", step.by.as_millis());
        Ok(Strike::of(target, Means::Clock(step), title))
    }
}

/// How far a clock is stepped, and which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    pub back: bool,
    pub by: Duration,
}

impl Step {
    pub fn nanoseconds(self) -> i64 {
        let by = i64::try_from(self.by.as_nanos()).unwrap_or(i64::MAX);
        if self.back { -by } else { by }
    }
}

fn parse(text: &str) -> Result<(&str, Option<Step>), String> {
    let split = text.find(['+', '-']).unwrap_or(text.len());
    let (whose, step) = text.split_at(split);
    if !["waiter", "holder", "client", "server"].contains(&whose) {
        return Err(format!(
            "`{whose}` has no clock; there are waiter, holder, client and server"
        ));
    }
    let Some(by) = step.get(1..) else {
        return Ok((whose, None));
    };
    let by = parse_duration(by)?;
    if by.is_zero() {
        return Err("a step of nothing is none".into());
    }
    let back = step.starts_with('-');
    Ok((whose, Some(Step { back, by })))
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use harness_workloads::BackendId;

    use super::*;
    use crate::backends;

    fn planned(argument: &str) -> Result<Strike, String> {
        let shape = Shape {
            backend: backends::of(BackendId::Zk),
            clients: 3,
            servers: 1,
            lease: Duration::from_secs(2),
            protocol: crate::faults::Protocol::Resp,
        };
        Clock.plan(Some(argument), 0, &shape, &mut ChaCha8Rng::seed_from_u64(1))
    }

    #[test]
    fn who_and_how_far_are_as_they_were_typed() {
        let back = planned("holder-1500ms").unwrap();
        assert_eq!(back.target, Target::Holder);
        assert!(matches!(back.means, Means::Clock(step) if step.nanoseconds() == -1_500_000_000));
        let forward = planned("server").unwrap();
        assert_eq!(forward.target, Target::Server(0));
        assert!(matches!(forward.means, Means::Clock(step) if step.nanoseconds() == 4_000_000_000));
        for wrong in ["somebody", "holder+", "waiter+5", "client-0s"] {
            assert!(planned(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }
}
