//! The end of a run at its first violation, by the online check.

use std::sync::Arc;
use std::time::Duration;

use harness_checkers::Property;
use harness_checkers::history::{PhaseFact, SeenViolation};

use super::context::RunContext;
use crate::clock::{GroundClock, RunningTask};

/// The time between two checks for a violation.
const LOOK: Duration = Duration::from_millis(50);

/// Ends a run at its first violation. In virtual time a check is no event of the world: the run is the same up to the violation.
pub fn start(run: &Arc<RunContext>) -> Option<RunningTask> {
    let (clock, run) = (run.clock.by, Arc::downgrade(run));
    let is_over = move || {
        run.upgrade()
            .is_none_or(|run| run.stopping.is_on() || is_violated(&run))
    };
    match clock {
        GroundClock::Virtual(world) => {
            world.look_every(LOOK, is_over);
            None
        }
        GroundClock::Real => Some(clock.spawn(async move {
            while !is_over() {
                clock.sleep(LOOK).await;
            }
        })),
    }
}

/// Ends the run if the online check found a violation; returns whether it does.
fn is_violated(run: &RunContext) -> bool {
    let Some(violation) = run.recorder.violation() else {
        return false;
    };
    let text = format!("{}; faults heal, and the run ends", violation.summary);
    let phase = PhaseFact::Violation(SeenViolation {
        property: Property::LINEARIZABLE.id().to_owned(),
        class: violation.class,
        lock: violation.lock,
        at_ns: violation.at_ns,
        summary: violation.summary,
    });
    run.begin_phase(phase, text);
    run.end_violated();
    true
}
