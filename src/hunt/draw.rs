//! Draws the experiments of a hunt: options of `harness run`, from the seed of the hunt and the number of the experiment.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use super::coverage::MessageCell;
use super::exhaustive::{LATE, NUMBER, ON_LATE};
use super::faults::HuntFaults;
use super::typed_fault::{ON_MESSAGES, joined, name};
use crate::config::{ANY_FAULT, Config, NO_FAULT, long_holds_with_any};
use crate::plan::{LANES, plan};
use rand::RngExt;
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// Maximum length of an experiment in seconds if its windows leave a choice; under a long lease, with its long phases,
/// this number of leases, up to twice as long.
const LONGEST: u64 = 15;
const LONGEST_LEASES: u32 = 10;
const SHORTEST: u64 = 6;
/// Windows of an experiment that acts on messages.
const MESSAGE_WINDOWS: usize = 3;
/// Faults on messages in an experiment, if the messages are known.
const CELLS: usize = 16;
/// Faults that make a client open a new session, by turns: as a new process, and in any state.
const BRINGS_SESSIONS: [&str; 2] = ["kill", "reset"];
/// Windows of an experiment with every fault: more than it ever has room for.
const ANY_WINDOWS: usize = 1000;
/// Share of aimed experiments with two faults at once. Two messages do not interfere.
const TWO_AIMED: f64 = 0.3;
const TWO_MESSAGES: f64 = 0.8;
/// Delays, in leases, that are shorter than the time that a client waits for a reply.
const SHORT_DELAYS: Range<f64> = 0.02..0.45;

/// Share of experiments in which some turns are those of another application.
const ODD_APPLICATIONS: f64 = 0.25;

/// Share of experiments in which clients rest between two turns, and the length of the rests in leases: a late request
/// never finds a lock free that is requested all the time.
const RESTS: f64 = 0.25;
const RESTING: Range<f64> = 0.02..1.0;

/// Maximum number of acts of an experiment with single acts, and the logarithm of the last message that is drawn for one.
const MOST_POINTS: u32 = 6;
const POINTS_LOG2: f64 = 9.5;
/// Share of acts soon after the previous one, their maximum distance in messages, and the share of those that repeat it.
const NEAR: f64 = 0.33;
const NEXT_MESSAGES: u32 = 3;
const SAME_ACT: f64 = 0.67;
/// Share of late messages with a second act.
const ON_LATE_TOO: f64 = 0.25;

/// The space from which experiments are drawn.
#[derive(Debug, Clone)]
pub struct HuntSpace {
    pub faults: HuntFaults,
    /// Whether a load may be without a fault: not if faults were named.
    pub faultless: bool,
    pub lease: Duration,
    /// The progress bound of the experiments.
    pub progress_bound: Duration,
    /// Whether clients may try locks without waiting.
    pub tries: bool,
    /// Acts on messages, with [`NUMBER`] in place of the number of the message; none if there are too few experiments for them.
    pub acts: Vec<String>,
    /// Whether locks may be left unused and be removed.
    pub churn: bool,
    /// Whether a lock may be held for longer than its lease: if the client renews it.
    pub long_holds: bool,
    /// Whether two clients may be threads of one process.
    pub threads: bool,
}

/// The main subject of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HuntTurn {
    /// Every fault that a lock withstands, a few at a time.
    Any,
    Aimed,
    /// One of several independent servers is unavailable, for longer than the progress bound.
    Minority,
    Message,
    /// Up to six acts, each on the n-th message of the run.
    Points,
    Load,
}

impl HuntTurn {
    const ALL: [Self; 4] = [Self::Any, Self::Aimed, Self::Message, Self::Load];
    /// The turns while some messages were never struck: an experiment strikes about ten of a hundred. [`Self::Any`] finds the most.
    const OPEN: [Self; 6] = [
        Self::Any,
        Self::Message,
        Self::Any,
        Self::Aimed,
        Self::Message,
        Self::Load,
    ];
    /// The turns if experiments are many: windows and points as often as each other.
    const MANY: [Self; 8] = [
        Self::Aimed,
        Self::Points,
        Self::Any,
        Self::Points,
        Self::Aimed,
        Self::Message,
        Self::Load,
        Self::Points,
    ];
}

/// An experiment as drawn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HuntDraw {
    pub turn: HuntTurn,
    pub seed: u64,
    /// Options of `harness run` and their values, as typed.
    pub options: Vec<(&'static str, String)>,
    /// The number of windows that it should have room for.
    pub windows: usize,
}

impl HuntDraw {
    /// Returns its faults, as typed.
    pub fn faults(&self) -> impl Iterator<Item = &str> {
        let fault = self.options.iter().find(|(name, _)| *name == "fault");
        let faults = fault.map_or("", |(_, value)| value).split(',');
        faults.filter(|fault| *fault != NO_FAULT)
    }
}

impl HuntSpace {
    /// Draws experiment `index` of the hunt with this seed, without the faults in `left_out`, by [`what_it_strikes`].
    pub fn draw(&self, seed: u64, index: u64, left_out: &BTreeSet<String>) -> HuntDraw {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // every experiment has random numbers of its own, independent of the job and the time of the draw
        rng.set_stream(index);
        let own_seed = u64::from(rng.random::<u32>());
        let left = self.faults.clone();
        let left = left.retain(|fault| !left_out.contains(what_it_strikes(fault)));
        // first many messages once, while some were never struck; then, by turns, a few of them repeatedly
        let open = self.faults.cells.iter().any(|cell| cell.open);
        let mut turns = self.turns(left.aimed.len(), left.on_messages.len(), open);
        if !left.minority.is_empty() {
            turns.insert(1, HuntTurn::Minority);
        }
        let turn = turns[(index % turns.len() as u64) as usize];
        let many = open || !self.faults.cells.is_empty() && (index / turns.len() as u64).is_multiple_of(2);
        let (faults, mut options) = match turn {
            HuntTurn::Any => (vec![ANY_FAULT.to_owned()], Vec::new()),
            HuntTurn::Aimed => (some(&left.aimed, TWO_AIMED, &mut rng), window_of(self.lease, &mut rng)),
            HuntTurn::Minority => {
                // longer than the progress bound, with the rest of the previous holder's lease, and time to take effect
                let window = self.progress_bound + self.lease * 3;
                (one(&left.minority, &mut rng), vec![("window", ms(window))])
            }
            HuntTurn::Message if many => (self.least_tried(&mut rng), Vec::new()),
            HuntTurn::Message => {
                let faults = numbered(some(&left.on_messages, TWO_MESSAGES, &mut rng), &mut rng);
                let faults = faults.into_iter().map(|fault| self.by_some_time(fault, &mut rng));
                (faults.collect(), vec![("window", ms(self.lease))])
            }
            HuntTurn::Points => (self.points(&mut rng), Vec::new()),
            HuntTurn::Load => {
                let others = if left.mild.is_empty() { &left.aimed } else { &left.mild };
                let none = others.is_empty() || (self.faultless && rng.random_bool(0.5));
                (if none { Vec::new() } else { one(others, &mut rng) }, Vec::new())
            }
        };
        let windows = match (turn, faults.len()) {
            (_, 0) => 0,
            (HuntTurn::Any, _) => ANY_WINDOWS,
            (HuntTurn::Message, faults) if many => faults * 2,
            (HuntTurn::Message, faults) => MESSAGE_WINDOWS * faults,
            (HuntTurn::Points, _) => 1,
            (_, faults) => faults,
        };
        options.push(("fault", joined(&faults)));
        options.extend(self.load(turn, &mut rng));
        if turn == HuntTurn::Any {
            let clients = options.iter().find(|(name, _)| *name == "clients");
            let clients = clients.and_then(|(_, number)| number.parse().ok());
            options.push(("vary", ms(long_holds_with_any(self.lease, clients.unwrap_or(1)))));
        }
        HuntDraw {
            turn,
            seed: own_seed,
            options,
            windows,
        }
    }

    /// Returns the faults on messages without a strike, then those with the fewest tries. A rare message comes with a
    /// new session: if one is chosen, a lane of the plan causes new sessions beside the lanes that wait for messages.
    fn least_tried(&self, rng: &mut ChaCha8Rng) -> Vec<String> {
        let cells = self.faults.cells.iter();
        let mut cells: Vec<(u32, &MessageCell)> = cells.map(|cell| (rng.random(), cell)).collect();
        cells.sort_by_key(|(order, cell)| (!cell.open, cell.tries, *order));
        let mut chosen: Vec<&MessageCell> = cells.iter().take(CELLS).map(|(_, cell)| *cell).collect();
        // messages that are awaited from the start are awaited the longest
        chosen.sort_by_key(|cell| !cell.rare);
        let mut bring = BRINGS_SESSIONS
            .into_iter()
            .filter(|fault| chosen.iter().any(|cell| cell.rare) && self.faults.aimed.iter().any(|aimed| aimed == fault))
            .cycle();
        let mut faults = Vec::new();
        for cell in &chosen {
            if faults.len() % LANES == LANES - 1 {
                faults.extend(bring.next().map(str::to_owned));
            }
            let number = if cell.rare {
                1
            } else {
                *[1, 1, 2, 3].choose(rng).expect("there are some")
            };
            let (fault, whose) = cell.fault.split_once(':').unwrap_or((&cell.fault, "anyone"));
            faults.push(self.by_some_time(format!("{fault}:{number}:{whose}"), rng));
        }
        faults
    }

    /// Adds a time to half of the faults that delay a message: shorter than a client waits for a reply, so that messages change their
    /// order and no client gives up. Without a time the delay is longer than a lease. Other faults stay as they are.
    fn by_some_time(&self, fault: String, rng: &mut ChaCha8Rng) -> String {
        if !fault.starts_with("delay-") || !fault.contains('=') || rng.random_bool(0.5) {
            return fault;
        }
        let time = self.lease.mul_f64(rng.random_range(SHORT_DELAYS));
        format!("{fault}:{}", ms(time))
    }

    /// Returns the turns of experiments for which there are faults.
    fn turns(&self, aimed: usize, on_messages: usize, open: bool) -> Vec<HuntTurn> {
        let all: &[HuntTurn] = match (self.acts.is_empty(), open) {
            (false, _) => &HuntTurn::MANY,
            (true, true) => &HuntTurn::OPEN,
            (true, false) => &HuntTurn::ALL,
        };
        let possible = |turn: &&HuntTurn| match turn {
            HuntTurn::Any => self.faultless,
            HuntTurn::Aimed => aimed > 0,
            HuntTurn::Message => on_messages > 0,
            HuntTurn::Points | HuntTurn::Load | HuntTurn::Minority => true,
        };
        all.iter().filter(possible).copied().collect()
    }

    /// Draws one to six acts on single messages of the run, the first ones as likely as all that follow up to twice their number. A
    /// run has a few messages for each grant. Every third act closely follows the previous one, most often as the same act, since a
    /// majority is lost or late together; and for every fourth late message, its client is cut off or stopped when it comes.
    fn points(&self, rng: &mut ChaCha8Rng) -> Vec<String> {
        let acts = rng.random_range(1..=MOST_POINTS);
        let mut faults = Vec::new();
        let mut last: Option<(&String, u32)> = None;
        for _ in 0..acts {
            let near = last.filter(|_| rng.random_bool(NEAR));
            let number = match near {
                Some((_, number)) => number + rng.random_range(1..=NEXT_MESSAGES),
                None => 2_f64.powf(rng.random_range(0.0..POINTS_LOG2)) as u32,
            };
            let same = near.filter(|_| rng.random_bool(SAME_ACT));
            let Some(act) = same.map(|(act, _)| act).or_else(|| self.acts.choose(rng)) else {
                break;
            };
            last = Some((act, number));
            faults.push(self.placed(act, number, rng));
            if act.starts_with(LATE) && rng.random_bool(ON_LATE_TOO) {
                let on_late = self.acts.iter().filter(|act| ON_LATE.contains(&name(act)));
                let on_late: Vec<&String> = on_late.collect();
                faults.extend(on_late.choose(rng).map(|act| self.placed(act, number, rng)));
            }
        }
        faults
    }

    /// Returns an act on this message; a delay has a length from a tenth of a lease to two leases.
    fn placed(&self, act: &str, number: u32, rng: &mut ChaCha8Rng) -> String {
        let placed = act.replace(NUMBER, &number.to_string());
        match (act.starts_with(LATE), placed.rsplit_once(':')) {
            (true, Some((before, _))) => format!("{before}:{}", ms(self.lease.mul_f64(rng.random_range(0.1..2.0)))),
            _ => placed,
        }
    }

    fn load(&self, turn: HuntTurn, rng: &mut ChaCha8Rng) -> Vec<(&'static str, String)> {
        let varied = turn == HuntTurn::Load;
        let mut options = vec![(
            "clients",
            rng.random_range(if varied { 2..=10 } else { 3..=6 }).to_string(),
        )];
        let locks = if varied { rng.random_range(1..=4) } else { 1 };
        options.push(("locks", locks.to_string()));
        if locks > 1 && rng.random_bool(0.5) && self.churn {
            options.push(("churn", ms(self.lease / 2)));
        }
        options.push(("hold", ms(self.hold(rng))));
        let waits = [self.lease / 4, self.lease, self.lease * 3];
        options.push(("wait", ms(*waits.choose(rng).expect("there are some"))));
        if self.tries && rng.random_bool(if varied { 0.5 } else { 0.2 }) {
            options.push(("tries", rng.random_range(20..=60).to_string()));
        }
        if rng.random_bool(ODD_APPLICATIONS) {
            options.push(("odd-turns", rng.random_range(5..=40).to_string()));
        }
        if self.threads && rng.random_bool(if varied { 0.3 } else { 0.1 }) {
            options.push(("per-process", "2".to_owned()));
        }
        if rng.random_bool(RESTS) {
            options.push(("think", ms(self.lease.mul_f64(rng.random_range(RESTING)))));
        }
        options
    }

    /// Draws a hold from a millisecond to a third of a lease, or to a lease and a half; each order of magnitude is equally likely.
    fn hold(&self, rng: &mut ChaCha8Rng) -> Duration {
        let longest = if self.long_holds {
            self.lease * 3 / 2
        } else {
            self.lease / 3
        };
        Duration::from_secs_f64(0.001 * (longest.as_secs_f64() / 0.001).powf(rng.random()))
    }
}

/// Returns the part of a fault that is left out if it never has an effect: the message of a fault on messages, all
/// clocks, or else the fault itself.
pub fn what_it_strikes(fault: &str) -> &str {
    let Some((before, argument)) = fault.split_once('=') else {
        return fault;
    };
    match before {
        before if ON_MESSAGES.contains(&before) => argument.split(':').next().unwrap_or(argument),
        "clock" => before,
        _ => fault,
    }
}

/// Returns the length of an experiment: the shortest with room for this number of windows, in whole seconds.
pub fn length(config: &Config, windows: usize) -> Duration {
    let longest = LONGEST.max((config.lease * LONGEST_LEASES).as_secs().min(LONGEST * 2));
    let lengths = (SHORTEST..=longest).map(Duration::from_secs);
    // a run of that length may have no room for its phases
    let has_room = |time: &Duration, windows: usize| {
        let config = Config {
            time: *time,
            ..config.clone()
        };
        plan(&config).is_ok_and(|plan| plan.windows.len() >= windows)
    };
    let roomy = lengths.clone().find(|time| has_room(time, windows));
    // a long lease has one window in a long run
    let least = || {
        let mut lengths = (longest + 1..=longest + 600).map(Duration::from_secs);
        lengths.find(|time| has_room(time, windows.min(1)))
    };
    roomy
        .or_else(|| lengths.rev().find(|time| has_room(time, 1)))
        .or_else(least)
        .unwrap_or(config.time)
}

/// Draws one of the faults, or two of different names.
fn some(faults: &[String], two: f64, rng: &mut ChaCha8Rng) -> Vec<String> {
    let mut drawn = one(faults, rng);
    if rng.random_bool(two) {
        let others: Vec<&String> = faults
            .iter()
            .filter(|other| drawn.iter().all(|first| name(first) != name(other)))
            .collect();
        drawn.extend(others.choose(rng).map(|other| (*other).clone()));
    }
    drawn
}

fn one(faults: &[String], rng: &mut ChaCha8Rng) -> Vec<String> {
    faults.choose(rng).into_iter().cloned().collect()
}

/// Adds the number of the message to faults on messages without one: most often the first.
fn numbered(faults: Vec<String>, rng: &mut ChaCha8Rng) -> Vec<String> {
    let mut number = |fault: String| {
        let drawn: u32 = *[1, 1, 2, 3].choose(rng).expect("there are some");
        let has_number = fault.split(':').skip(1).any(|part| part.parse::<u32>().is_ok());
        match fault.split_once(':') {
            _ if has_number || !fault.contains('=') => fault,
            Some((message, rest)) => format!("{message}:{drawn}:{rest}"),
            None => format!("{fault}:{drawn}"),
        }
    };
    faults.into_iter().map(&mut number).collect()
}

/// Draws the windows of an aimed experiment: those of the plan, longer than the lease, or shorter than it.
fn window_of(lease: Duration, rng: &mut ChaCha8Rng) -> Vec<(&'static str, String)> {
    match rng.random_range(0..4) {
        0 => vec![("window", ms(lease / 2))],
        _ => Vec::new(),
    }
}

fn ms(time: Duration) -> String {
    format!("{}ms", time.as_millis().max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FaultRequest, parse_duration};
    use crate::faults::Shape;
    use crate::hunt::typed_fault::without_number_or_time;

    fn space() -> HuntSpace {
        HuntSpace {
            faults: HuntFaults::withstood(&Shape::one_redis()),
            faultless: true,
            lease: Duration::from_secs(1),
            progress_bound: Duration::from_secs(5),
            tries: true,
            acts: Vec::new(),
            churn: true,
            long_holds: false,
            threads: true,
        }
    }

    /// Draws this number of experiments, from the first on.
    fn draws(space: &HuntSpace, seed: u64, experiments: u64) -> Vec<HuntDraw> {
        let draw = |index| space.draw(seed, index, &BTreeSet::new());
        (0..experiments).map(draw).collect()
    }

    fn option<'a>(draw: &'a HuntDraw, name: &str) -> &'a str {
        let found = draw.options.iter().find(|(option, _)| *option == name);
        found.map(|(_, value)| value.as_str()).expect("it is an option")
    }

    #[test]
    fn an_experiment_is_a_function_of_the_seed_and_its_number() {
        let space = space();
        let (drawn, other) = (draws(&space, 7, 50), draws(&space, 8, 50));
        assert_eq!(drawn, draws(&space, 7, 50));
        assert!(drawn.iter().zip(&other).all(|(one, other)| one != other));
        assert!(drawn.windows(2).all(|pair| pair[0].seed != pair[1].seed));
    }

    #[test]
    fn the_turns_come_one_after_the_other_and_all_faults_come_in_time() {
        let space = space();
        let mut seen = BTreeSet::new();
        for (index, draw) in draws(&space, 1, 3000).iter().enumerate() {
            assert_eq!(draw.turn, HuntTurn::ALL[index % 4]);
            let faults = option(draw, "fault").split(',');
            seen.extend(faults.map(|fault| what_it_strikes(fault).to_owned()));
        }
        let HuntFaults {
            aimed,
            on_messages,
            mild,
            ..
        } = &space.faults;
        for fault in aimed.iter().chain(on_messages).chain(mild) {
            assert!(seen.contains(what_it_strikes(fault)), "{fault} was never drawn");
        }
        assert!(seen.contains(NO_FAULT));
    }

    #[test]
    fn what_is_left_out_is_drawn_no_more_and_another_turn_takes_the_place_of_an_empty_one() {
        let mut space = space();
        let left_out = BTreeSet::from(["SET".to_owned(), "partition=half".to_owned()]);
        for index in 0..500 {
            let draw = space.draw(3, index, &left_out);
            let mut struck = draw.faults().map(what_it_strikes);
            assert!(!struck.any(|what| left_out.contains(what)), "{draw:?}");
        }
        space.faults = HuntFaults::typed(&["partition=holder".into()]);
        space.faultless = false;
        for draw in draws(&space, 3, 30) {
            assert_eq!(option(&draw, "fault"), "partition=holder");
        }
    }

    #[test]
    fn a_message_is_delayed_for_longer_than_a_lease_or_for_less_than_a_client_waits() {
        let mut space = space();
        let cell = |number| MessageCell {
            fault: format!("delay-reply=M{number}:waiter"),
            open: true,
            tries: 0,
            rare: false,
        };
        space.faults.cells = (0..CELLS).map(cell).collect();
        let lease = space.lease;
        let mut draws = draws(&space, 5, 40).into_iter();
        let draw = draws.find(|draw| draw.turn == HuntTurn::Message).expect("there is one");
        let times = draw.faults().map(|fault| fault.split(':').nth(3).map(parse_duration));
        let (said, unsaid): (Vec<_>, Vec<_>) = times.partition(Option::is_some);
        assert!(said.len() >= 3 && unsaid.len() >= 3, "{draw:?}");
        for time in said.into_iter().flatten() {
            assert!(time.is_ok_and(|time| time < lease / 2), "{draw:?}");
        }
        let faults: BTreeSet<String> = draw.faults().map(without_number_or_time).collect();
        assert!(faults.contains("delay-reply=M3:waiter"), "{faults:?}");
    }

    #[test]
    fn an_experiment_aims_at_the_messages_that_were_tried_the_least_and_brings_rare_ones_about() {
        let mut space = space();
        let cell = |message: &str, tries, rare| MessageCell {
            fault: format!("drop-reply={message}:waiter"),
            open: tries == 0,
            tries,
            rare,
        };
        let often: Vec<MessageCell> = (0..20).map(|number| cell(&format!("M{number}"), 1, false)).collect();
        space.faults.cells = [often, vec![cell("GET", 0, false)]].concat();
        let of_messages = draws(&space, 5, 12).into_iter();
        let of_messages = of_messages.filter(|draw| draw.turn == HuntTurn::Message);
        let of_messages: Vec<HuntDraw> = of_messages.step_by(2).collect();
        for draw in &of_messages {
            assert_eq!((draw.faults().count(), draw.windows), (CELLS, CELLS * 2), "{draw:?}");
            let first = draw.faults().next().unwrap_or_default();
            assert!(first.starts_with("drop-reply=GET:"), "{draw:?}");
        }
        let chosen = |draw: &HuntDraw| draw.faults().map(str::to_owned).collect::<BTreeSet<_>>();
        // cells with the same number of tries take turns
        assert_ne!(chosen(&of_messages[0]), chosen(&of_messages[1]));
        space.faults.cells[7].open = true;
        let again = draws(&space, 5, 2).remove(1);
        let is_seven = |fault: &str| fault.starts_with("drop-reply=M7:");
        assert!(again.faults().any(is_seven), "it was awaited in vain: {again:?}");
        space.faults.cells.push(cell("SCRIPT", 0, true));
        let draw = draws(&space, 5, 2).remove(1);
        let faults: Vec<&str> = draw.faults().collect();
        assert_eq!(faults[0], "drop-reply=SCRIPT:1:waiter", "it is awaited the longest");
        let lane = faults.iter().skip(LANES - 1).step_by(LANES);
        let lane: Vec<&str> = lane.copied().collect();
        let by_turns = BRINGS_SESSIONS.into_iter().cycle().take(lane.len());
        assert_eq!(lane, by_turns.collect::<Vec<_>>());
        let bring = faults.iter().filter(|fault| BRINGS_SESSIONS.contains(*fault));
        assert_eq!((bring.count(), lane.len() > 4), (lane.len(), true));
    }

    #[test]
    fn one_of_several_independent_servers_is_away_for_longer_than_a_lock_may_stand_still() {
        let mut space = space();
        let minorities = |space: &HuntSpace| {
            let draws = draws(space, 5, 30).into_iter();
            draws.filter(|draw| draw.turn == HuntTurn::Minority).collect::<Vec<_>>()
        };
        assert!(minorities(&space).is_empty());
        space.faults = HuntFaults::withstood(&Shape {
            servers: 3,
            ..Shape::one_redis()
        });
        let drawn = minorities(&space);
        assert_eq!(drawn.len(), 6, "one of five turns");
        for draw in &drawn {
            let window = parse_duration(option(draw, "window")).unwrap();
            assert!(window > space.progress_bound + space.lease * 2, "{window:?}");
            let mut faults = draw.faults().map(str::to_owned);
            assert!(faults.all(|fault| space.faults.minority.contains(&fault)));
        }
    }

    #[test]
    fn a_message_has_a_number_unless_it_was_named_with_one() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let of = |fault: &str, rng: &mut ChaCha8Rng| numbered(vec![fault.to_owned()], rng).remove(0);
        assert_eq!(of("drop-reply=SET:4:waiter", &mut rng), "drop-reply=SET:4:waiter");
        assert_eq!(of("drop-reply", &mut rng), "drop-reply");
        let drawn = of("drop-reply=SET:waiter", &mut rng);
        assert!(
            drawn.starts_with("drop-reply=SET:") && drawn.ends_with(":waiter") && drawn.len() == 23,
            "{drawn}"
        );
    }

    #[test]
    fn a_lock_that_is_not_renewed_is_held_for_less_than_its_lease() {
        let mut space = space();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let longest = |space: &HuntSpace, rng: &mut ChaCha8Rng| (0..500).map(|_| space.hold(rng)).max().unwrap();
        // a hold is drawn up to one and a half times as long
        assert!(longest(&space, &mut rng) * 3 / 2 <= space.lease / 2);
        space.long_holds = true;
        assert!(longest(&space, &mut rng) > space.lease);
    }

    #[test]
    fn an_experiment_is_as_short_as_its_windows_allow() {
        let mut config = Config::example();
        config.lease = Duration::from_secs(1);
        assert_eq!(length(&config, 0), Duration::from_secs(SHORTEST));
        let without_windows = |lease: u64| {
            let config = Config {
                lease: Duration::from_secs(lease),
                ..config.clone()
            };
            let time = length(&config, 0);
            plan(&Config { time, ..config }).expect("it has room for its phases");
            time
        };
        assert!(without_windows(2) > Duration::from_secs(SHORTEST) && without_windows(9) > without_windows(2));
        config.faults = vec![FaultRequest::read("partition")];
        config.time = length(&config, 1);
        assert!(config.time <= Duration::from_secs(12), "{:?}", config.time);
        assert!(plan(&config).is_ok());
        // one window of a long lease
        config.lease = Duration::from_secs(20);
        assert!(length(&config, 1) > Duration::from_secs(LONGEST));
    }
}
