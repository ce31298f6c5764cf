//! `reset`: every connection is reset when the window opens, and new ones again after a while.

use std::time::Duration;

use rand_chacha::ChaCha8Rng;

use super::{Fault, Means, OnLinks, Shape, Strike, Target, parse_duration};
use crate::network::{Behaviour, Cut};

pub struct Reset;

impl Fault for Reset {
    fn name(&self) -> &'static str {
        "reset"
    }

    fn summary(&self) -> &'static str {
        "connections are reset, again and again"
    }

    fn argument(&self) -> &'static str {
        "EVERY, such as 300ms: about how long a connection lives (default: a quarter of the lease)"
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, _: &mut ChaCha8Rng) -> Result<Strike, String> {
        let every = match argument {
            None => shape.lease / 4,
            Some(text) => parse_duration(text).map_err(|why| format!("reset={text}: {why}"))?,
        };
        let cut = Cut {
            after: Some(every.max(Duration::from_millis(1))),
            after_bytes: None,
        };
        let on_links = OnLinks {
            behaviour: Behaviour {
                cut,
                ..Behaviour::default()
            },
            reset_first: true,
            reset_on_heal: false,
        };
        let title = format!("every connection, about every {}ms", every.as_millis());
        Ok(Strike::of(Target::Everyone, Means::Links(on_links), title))
    }
}
