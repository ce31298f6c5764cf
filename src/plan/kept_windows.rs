//! `--windows`: a plan with only some of its windows, each soon after the previous one, in a run that is as short as possible.

use std::time::Duration;

use super::{Plan, PlanError, PlannedWindow, plan};
use crate::config::Config;

/// Draws the plan of `config`, and keeps the windows that it names, or all if it names none.
pub fn planned(config: &Config) -> Result<Plan, PlanError> {
    let mut drawn = plan(config)?;
    if config.windows.is_empty() {
        return Ok(drawn);
    }
    let there_are = drawn.windows.len() as u32;
    let is_there = |number: &&u32| drawn.windows.iter().any(|window| window.number == **number);
    if let Some(missing) = config.windows.iter().find(|number| !is_there(number)) {
        let sentence = match there_are {
            0 => format!("--windows {missing}: the plan has no windows\nhint: name a --fault"),
            _ => format!(
                "--windows {missing}: the plan has windows 1 to {there_are}\nhint: --dry-run without --windows shows them"
            ),
        };
        return Err(PlanError::Argument(sentence));
    }
    drawn.windows.retain(|window| config.windows.contains(&window.number));
    let faults = shorten_gaps(&mut drawn.windows, config.lease);
    drawn.phases = shortest(config, faults);
    drawn.phases.faults = faults;
    Ok(drawn)
}

/// Moves windows towards the start, so that at most a lease is without one. Windows that overlap continue to overlap. Returns the
/// end of the last one.
fn shorten_gaps(windows: &mut [PlannedWindow], lease: Duration) -> Duration {
    let mut ended = Duration::ZERO;
    let mut moved = Duration::ZERO;
    for window in windows {
        let start = window.start.saturating_sub(moved);
        let idle = start.saturating_sub(ended);
        moved += idle.saturating_sub(lease);
        window.start = window.start.saturating_sub(moved);
        ended = ended.max(window.start + window.length);
    }
    ended
}

/// Returns the phases of the shortest run whose faults phase has at least this length.
fn shortest(config: &Config, faults: Duration) -> super::Phases {
    let of = |time| {
        let config = Config { time, ..config.clone() };
        super::phases(&config)
    };
    let mut time = faults;
    loop {
        let phases = of(time);
        let longer = (phases.control + phases.warm_up + phases.recovery + faults).min(config.time);
        // the other phases grow with the time, by less than it grows
        if longer <= time + Duration::from_millis(10) {
            return phases;
        }
        time = longer;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FaultRequest;

    fn config(windows: &[u32]) -> Config {
        let mut config = Config::example();
        config.seed = 5;
        config.time = Duration::from_secs(120);
        config.faults = vec![FaultRequest::read("partition")];
        config.windows = windows.to_vec();
        config
    }

    #[test]
    fn the_windows_that_stay_are_those_of_the_whole_plan_and_the_run_is_shorter() {
        let whole = planned(&config(&[])).unwrap();
        assert!(whole.windows.len() > 7);
        let cut = planned(&config(&[3, 7])).unwrap();
        let numbers: Vec<u32> = cut.windows.iter().map(|window| window.number).collect();
        assert_eq!(numbers, [3, 7]);
        for window in &cut.windows {
            let same = &whole.windows[window.number as usize - 1];
            assert_eq!(window.length, same.length);
            assert_eq!(format!("{:?}", window.injection), format!("{:?}", same.injection));
        }
        let lease = config(&[]).lease;
        let gap = cut.windows[1].start - (cut.windows[0].start + cut.windows[0].length);
        assert!(cut.windows[0].start <= lease && gap <= lease, "{gap:?}");
        let phases = cut.phases;
        assert!(cut.windows[1].start + cut.windows[1].length <= phases.faults);
        let length = phases.control + phases.warm_up + phases.faults + phases.recovery;
        assert!(length < Duration::from_secs(40), "{length:?}");
        assert!(
            phases.recovery > lease * 2,
            "long enough to see who never acquires again"
        );
    }

    #[test]
    fn windows_that_overlap_go_on_to_overlap() {
        let mut both = config(&[]);
        both.faults.push(FaultRequest::read("latency"));
        let whole = planned(&both).unwrap().windows;
        let overlap = |pair: &[PlannedWindow]| pair[1].start < pair[0].start + pair[0].length;
        let place = whole.windows(2).skip(3).position(overlap).unwrap() + 3;
        both.windows = [place, place + 1, place + 5].map(|place| whole[place].number).to_vec();
        let cut = planned(&both).unwrap().windows;
        let between = |windows: &[PlannedWindow], place: usize| windows[place + 1].start - windows[place].start;
        assert_eq!(between(&cut, 0), between(&whole, place));
        assert!(cut[2].start > cut[1].start);
    }
}
