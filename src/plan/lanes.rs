//! Lanes: the faults that take turns, and the starts and lengths of the windows of a lane, drawn from the seed.

use std::time::Duration;

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{PlanError, PlannedWindow, shortest_long_window, target_holder_works};
use crate::config::{ANY_FAULT, Config, FaultRequest};
use crate::faults::{self, FAULTS, Fault, FaultFamily, Injection, Needs, Pace, Shape, fault_named};

/// The number of lanes of faults that were requested by name, and so of windows that are open at once.
pub const LANES: usize = 3;
/// Time in which a window waits for its message: messages that open a session come after a client was killed.
const WAIT_FOR_MESSAGE: Duration = Duration::from_secs(5);
/// The length of a faults phase below which all windows are long: they show the most, and there are few of them.
const ROOM_FOR_SHORT: Duration = Duration::from_secs(20);
/// The fault of every other window of `any` in the lane of its family: it shows more defects than all others of that lane.
const OFTEN: &str = "partition";
/// The share of the faults phase of `any`, at its end, without kills of clients. A kill ends the client's session and removes its
/// leftovers on the servers; only the calm after the last window shows which of them stay.
const WITHOUT_KILLS: f64 = 0.35;
/// The shortest wait for a message.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// Whether a fault acts once, on the n-th message of the run.
pub fn is_point(request: &FaultRequest) -> bool {
    request.argument.as_deref().is_some_and(faults::is_point)
}

/// Returns the faults of each lane. Faults that were named have a lane each, up to [`LANES`]; `any` has one for each family.
pub fn lanes(config: &Config, shape: &Shape) -> Result<Vec<Vec<FaultRequest>>, PlanError> {
    let mut lanes: Vec<Vec<FaultRequest>> = Vec::new();
    let named = config
        .faults
        .iter()
        .filter(|request| request.name != ANY_FAULT && !is_point(request));
    for (place, request) in named.enumerate() {
        match lanes.get_mut(place % LANES) {
            Some(lane) => lane.push(request.clone()),
            None => lanes.push(vec![request.clone()]),
        }
    }
    // each is one act, at any time
    let points = config.faults.iter().filter(|request| is_point(request));
    lanes.extend(points.map(|point| vec![point.clone()]));
    let Some(any) = config.faults.iter().find(|request| request.name == ANY_FAULT) else {
        return Ok(lanes);
    };
    if let Some(argument) = &any.argument {
        let why = format!("{ANY_FAULT}={argument}: {ANY_FAULT} takes no argument");
        return Err(PlanError::Argument(why));
    }
    let fitting: Vec<_> = FAULTS.iter().filter(|fault| fits(**fault, config, shape)).collect();
    for family in [FaultFamily::Cluster, FaultFamily::Clients, FaultFamily::Messages] {
        let of_family = fitting.iter().filter(|fault| fault.definition().family == family);
        let mut requests: Vec<FaultRequest> = of_family.map(|fault| FaultRequest::read(fault.name())).collect();
        // a minute has no time for all of them, and another seed has others
        let fixed = requests
            .iter()
            .position(|request| request.name == OFTEN)
            .map_or(0, |place| place + 1);
        requests[fixed..].shuffle(&mut ChaCha8Rng::seed_from_u64(config.seed));
        if !requests.is_empty() {
            lanes.push(requests);
        }
    }
    Ok(lanes)
}

/// Whether `any` includes this fault on this cluster.
fn fits(fault: &dyn Fault, config: &Config, shape: &Shape) -> bool {
    let survivable = fault.applies(None, shape).is_ok() && fault.survivable(shape).is_ok();
    let mut rng = ChaCha8Rng::seed_from_u64(config.seed);
    let possible = |injection: Injection| {
        let set_up = injection.action.needs() == Needs::default();
        set_up && (!config.proxy.is_toxiproxy() || injection.through_toxiproxy(fault.name()).is_ok())
    };
    survivable && fault.plan(None, 0, shape, &mut rng).is_ok_and(possible)
}

/// Windows of which each follows the previous one.
pub struct Lane<'a> {
    pub number: u32,
    pub config: &'a Config,
    pub shape: &'a Shape,
    pub rng: ChaCha8Rng,
}

/// The length of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Long,
    HalfALease,
    /// Shorter than any lease.
    Short,
}

/// The lengths that windows of a fault with [`Pace::Varied`] have in turn, with the next one in its place after each round:
/// otherwise a fault with as many kinds would have each kind in one length only.
const LENGTHS: [Length; 6] = [
    Length::Long,
    Length::Short,
    Length::HalfALease,
    Length::Short,
    Length::HalfALease,
    Length::Short,
];

impl Lane<'_> {
    /// Returns its windows, without their numbers. Requests take turns; the first in the list has the first window.
    pub fn windows(mut self, requests: Vec<FaultRequest>, room: Duration) -> Result<Vec<PlannedWindow>, PlanError> {
        let mut windows = Vec::new();
        let any = self.config.has_any_fault();
        let is_point = is_point(&requests[0]);
        let is_often = any && requests[0].name == OFTEN;
        // lanes do not open their windows at the same moment
        let mut start = match is_point {
            true => Duration::ZERO,
            false => self.config.lease.mul_f64(0.25) * self.number,
        };
        let faults = requests.iter().map(|request| {
            fault_named(&request.name).ok_or_else(|| PlanError::Argument(format!("no fault `{}`", request.name)))
        });
        let faults: Vec<&dyn Fault> = faults.collect::<Result<_, _>>()?;
        let kills = |fault: &&dyn Fault| fault.definition().kills_clients();
        let spares_clients = any && !faults.iter().all(kills);
        let mut turns = (0..).map(|place| turn(place, requests.len(), is_often));
        loop {
            let spared = spares_clients && start > room.mul_f64(1.0 - WITHOUT_KILLS);
            let next = turns.find(|(which, _)| !(spared && kills(&faults[*which])));
            let (which, turn) = next.expect("turns have no end");
            let (request, fault) = (&requests[which], faults[which]);
            let pace = self.pace(fault, request, requests.len(), room);
            let injection = self.injection(fault, request, turn as u32)?;
            let dense = self.config.grants.is_some();
            let length = match pace {
                // until its message comes, or long enough from then on
                _ if is_point && fault.definition().pace == Pace::Message => room,
                _ if is_point => {
                    let survivable = fault.survivable(self.shape).unwrap_or(Duration::MAX);
                    shortest_long_window(self.config).min(survivable)
                }
                Pace::Varied | Pace::Long if dense => self.dense_length(pace),
                Pace::Varied => self.length(LENGTHS[(which + turn + turn / LENGTHS.len()) % LENGTHS.len()]),
                Pace::Long => self.length(Length::Long),
                Pace::Act => self.config.lease.mul_f64(self.rng.random_range(1.0..1.5)),
                // one that begins late waits less
                Pace::Message => (WAIT_FOR_MESSAGE.min(room.saturating_sub(start + injection.takes)) + injection.takes)
                    .max(LEAST_WAIT),
            };
            let typed = self.config.window.filter(|_| !is_point);
            let (longest, survivable) = match any {
                true => self.longest_of_any(fault),
                false => (Duration::MAX, Duration::MAX),
            };
            let length = typed.map_or(length.min(longest), |typed| typed.min(survivable));
            if start + length > room || (is_point && !windows.is_empty()) {
                break;
            }
            let typed = typed.is_some_and(|typed| typed == length);
            let holder_works = self.holder_works(&injection, length, typed);
            let takes = injection.takes;
            windows.push(PlannedWindow {
                number: 0,
                lane: self.number,
                fault: fault.definition(),
                start,
                length,
                holder_works,
                // a length that was typed and is too short makes the run UNSURE
                injection: if typed { injection } else { injection.within(length) },
            });
            start += match dense {
                true => length + self.config.lease.mul_f64(self.rng.random_range(0.05..0.5)),
                false => self.until_next(pace, length, takes),
            };
        }
        Ok(windows)
    }

    /// Returns the pace of a fault: long for a message that is named alone, since leftovers of one act would hide the next effect.
    fn pace(&self, fault: &dyn Fault, request: &FaultRequest, requests: usize, room: Duration) -> Pace {
        let is_named = request.argument.is_some();
        match fault.definition().pace {
            Pace::Message if is_named && requests == 1 => Pace::Long,
            Pace::Varied if room < ROOM_FOR_SHORT && self.config.grants.is_none() => Pace::Long,
            pace => pace,
        }
    }

    fn injection(&mut self, fault: &dyn Fault, request: &FaultRequest, turn: u32) -> Result<Injection, PlanError> {
        let argument = request.argument.as_deref();
        // the draws of one window affect no other: a plan for fewer clients has the same windows
        let mut rng = ChaCha8Rng::seed_from_u64(self.rng.random());
        let through_proxy = |injection: Injection| match self.config.proxy.is_toxiproxy() {
            true if argument.is_some_and(faults::is_point) => Err(format!(
                "{}: Toxiproxy does not read messages, so it cannot count them",
                request.name
            )),
            true => injection.through_toxiproxy(fault.name()),
            false => Ok(injection),
        };
        fault
            .applies(argument, self.shape)
            .and_then(|()| fault.plan(argument, turn, self.shape, &mut rng))
            .and_then(through_proxy)
            .map_err(PlanError::Argument)
    }

    /// Returns the time for which the target of a window of this length works.
    fn holder_works(&self, injection: &Injection, length: Duration, typed: bool) -> Duration {
        let full = target_holder_works(self.config);
        if injection.action.needs().works_past_heal {
            full.max(length + self.config.lease / 2)
        } else if typed || length >= full {
            full
        } else {
            // in a shorter window its release falls into it, too: otherwise the fault may never act on it
            (length / 2).max(length.saturating_sub(self.config.lease / 2))
        }
    }

    /// Draws a length for a run that ends with its grants: shorter or longer than the lease, but long for a fault that needs it.
    fn dense_length(&mut self, pace: Pace) -> Duration {
        let shortest = if pace == Pace::Long { 1.25 } else { 0.1 };
        self.config.lease.mul_f64(self.rng.random_range(shortest..2.5))
    }

    fn length(&mut self, length: Length) -> Duration {
        let lease = self.config.lease;
        match length {
            Length::Long => shortest_long_window(self.config) + lease.mul_f64(self.rng.random_range(0.0..0.5)),
            Length::HalfALease => lease.mul_f64(self.rng.random_range(0.4..0.7)),
            Length::Short => Duration::from_millis(self.rng.random_range(50..=500)).min(lease / 2),
        }
    }

    /// Returns the greatest length of a window of `any`, drawn and typed: it has many faults to use, and none that a lock cannot
    /// survive.
    fn longest_of_any(&self, fault: &dyn Fault) -> (Duration, Duration) {
        let survivable = fault.survivable(self.shape).unwrap_or(Duration::MAX);
        let longest = match fault.definition().family {
            FaultFamily::Messages => survivable,
            FaultFamily::Cluster | FaultFamily::Clients => survivable.min(self.config.lease * 2),
        };
        (longest, survivable)
    }

    /// Returns the time from the start of a window to the start of the next one of its lane.
    fn until_next(&mut self, pace: Pace, length: Duration, takes: Duration) -> Duration {
        let lease = self.config.lease;
        match pace {
            // few clients are delayed at a time
            Pace::Message => {
                let acts = Duration::from_millis(self.rng.random_range(350..650));
                acts.max(takes * 2 / self.config.clients)
            }
            Pace::Act => length + lease.mul_f64(self.rng.random_range(0.1..0.3)),
            Pace::Long | Pace::Varied if length > lease => length + lease.mul_f64(self.rng.random_range(0.5..1.0)),
            Pace::Long | Pace::Varied => length + lease.mul_f64(self.rng.random_range(0.2..0.5)),
        }
    }
}

/// Returns the request of a lane's n-th window, and the number of earlier windows of that request. `is_often`: the first request
/// has every other window.
fn turn(place: usize, requests: usize, is_often: bool) -> (usize, usize) {
    let others = requests - 1;
    match place / 2 {
        _ if others == 0 || !is_often => (place % requests, place / requests),
        pair if place.is_multiple_of(2) => (0, pair),
        pair => (1 + pair % others, pair / others),
    }
}
