//! `kill-holder`, `kill`: the process of a client is killed, and comes back as another process of the history.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::strike::{ClientBlow, Means};
use super::{Fault, Shape, Strike, Target, no_argument};

pub struct KillHolder;
pub struct Kill;

const KILL: Means = Means::Clients(ClientBlow::Kill);

impl Fault for KillHolder {
    fn name(&self) -> &'static str {
        "kill-holder"
    }

    fn summary(&self) -> &'static str {
        "the holder's process is killed; its client comes back as a new one"
    }

    fn argument(&self) -> &'static str {
        ""
    }

    fn plan(&self, argument: Option<&str>, _: u32, _: &Shape, _: &mut ChaCha8Rng) -> Result<Strike, String> {
        no_argument(self.name(), argument)?;
        Ok(Strike::of(Target::Holder, KILL, "its process is killed".into()))
    }
}

impl Fault for Kill {
    fn name(&self) -> &'static str {
        "kill"
    }

    fn summary(&self) -> &'static str {
        "the process of some client is killed, whatever it does"
    }

    fn argument(&self) -> &'static str {
        ""
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Result<Strike, String> {
        no_argument(self.name(), argument)?;
        let client = rng.random_range(0..shape.clients);
        let title = format!("c{client}: its process is killed");
        Ok(Strike::of(Target::Clients(vec![client]), KILL, title))
    }
}
