//! `pause-holder`, `pause-waiter`, `pause`: the process of a client is stopped for longer than its lease, then continued.
//!
//! The harness is the application: while the process is stopped the work goes on, and the release that ends it reaches
//! the client only when it runs again. No lock with a lease keeps two beliefs apart through that; tokens save the data.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::strike::{ClientBlow, Demand, Means};
use super::{Fault, Shape, Strike, Target, no_argument};

pub struct PauseHolder;
pub struct PauseWaiter;
pub struct Pause;

const STOP: Means = Means::Clients(ClientBlow::Stop);

impl Fault for PauseHolder {
    fn name(&self) -> &'static str {
        "pause-holder"
    }

    fn summary(&self) -> &'static str {
        "the holder's process is stopped past its lease; a pass means that it missed"
    }

    fn argument(&self) -> &'static str {
        ""
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, _: &mut ChaCha8Rng) -> Result<Strike, String> {
        no_argument(self.name(), argument)?;
        let strike = Strike::of(Target::Holder, STOP, "its process is stopped".into());
        Ok(Strike {
            demand: Some(Demand {
                stopped_for: Some(shape.lease),
                breaks: "HL001",
            }),
            ..strike
        })
    }
}

impl Fault for PauseWaiter {
    fn name(&self) -> &'static str {
        "pause-waiter"
    }

    fn summary(&self) -> &'static str {
        "the process of a client that waits is stopped past its lease"
    }

    fn argument(&self) -> &'static str {
        ""
    }

    fn plan(&self, argument: Option<&str>, _: u32, _: &Shape, _: &mut ChaCha8Rng) -> Result<Strike, String> {
        no_argument(self.name(), argument)?;
        Ok(Strike::of(Target::Waiter, STOP, "its process is stopped".into()))
    }
}

impl Fault for Pause {
    fn name(&self) -> &'static str {
        "pause"
    }

    fn summary(&self) -> &'static str {
        "the process of some client is stopped, whatever it does"
    }

    fn argument(&self) -> &'static str {
        ""
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Result<Strike, String> {
        no_argument(self.name(), argument)?;
        let client = rng.random_range(0..shape.clients);
        let title = format!("c{client}: its process is stopped");
        Ok(Strike::of(Target::Clients(vec![client]), STOP, title))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rand::SeedableRng;

    use harness_workloads::BackendId;

    use super::*;
    use crate::backends;

    #[test]
    fn a_paused_holder_must_be_stopped_past_the_lease_and_break_mutual_exclusion() {
        let shape = Shape {
            backend: backends::of(BackendId::Zk),
            clients: 3,
            servers: 3,
            lease: Duration::from_secs(2),
            protocol: crate::faults::Protocol::Zk,
        };
        let strike = PauseHolder
            .plan(None, 0, &shape, &mut ChaCha8Rng::seed_from_u64(1))
            .unwrap();
        let demand = strike.demand.unwrap();
        assert_eq!((demand.stopped_for, demand.breaks), (Some(shape.lease), "HL001"));
        assert_eq!(
            serde_json::to_value(demand).unwrap(),
            serde_json::json!({ "stopped_ms": 2000, "breaks": "HL001" })
        );
    }
}
