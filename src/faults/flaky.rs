//! `flaky`: chunks come in small slices, and connections are cut after some bytes, in the middle of a message.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::link_injection::{everywhere, resetting};
use super::{Fault, FaultDefinition, Injection, Shape};
use harness_proxy::{Behaviour, Cut, Flow, Slice};

pub struct Flaky;

impl Fault for Flaky {
    fn definition(&self) -> FaultDefinition {
        resetting(
            "flaky",
            "chunks arrive in slices, and connections are cut in the middle of a message",
            "BYTES after which a connection is cut, about (default: drawn from 2000 to 10000)",
        )
    }

    fn plan(&self, argument: Option<&str>, _: u32, _: &Shape, rng: &mut ChaCha8Rng) -> Result<Injection, String> {
        let after_bytes = match argument {
            None => rng.random_range(2_000..10_000),
            Some(text) => text
                .parse()
                .ok()
                .filter(|bytes| *bytes > 0)
                .ok_or_else(|| format!("flaky={text}: not a number of bytes"))?,
        };
        let slice = rng.random_range(8..64);
        let flow = Flow {
            slice: Some(Slice::of(slice)),
            ..Flow::default()
        };
        let cut = Cut {
            after: None,
            after_bytes: Some(after_bytes),
        };
        let title = format!("every link, slices of {slice} bytes, cut after about {after_bytes} bytes");
        Ok(everywhere(
            Behaviour {
                cut,
                ..Behaviour::both(flow)
            },
            title,
        ))
    }
}
