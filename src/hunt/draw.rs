//! What one experiment of a hunt is: options of `harness run`, drawn from the seed of the hunt and the experiment's number.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use super::coverage::MessageCell;
use super::exhaustive::{LATE, NUMBER, ON_LATE};
use super::faults::HuntFaults;
use super::typed_fault::{ON_MESSAGES, name};
use crate::config::{ANY_FAULT, Config, NO_FAULT, long_holds_with_any};
use crate::plan::{LANES, plan};
use rand::RngExt;
use rand::SeedableRng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

/// An experiment takes at most so many seconds where its windows leave a choice; under a long lease, whose phases are long, so many
/// leases, up to twice as long.
const LONGEST: u64 = 15;
const LONGEST_LEASES: u32 = 10;
const SHORTEST: u64 = 6;
/// Windows of an experiment that acts on messages.
const MESSAGE_WINDOWS: usize = 3;
/// Faults on messages in an experiment, where the messages are known.
const CELLS: usize = 16;
/// What makes a client open a session anew, by turns: as a new process, and in whatever state it is.
const BRINGS_SESSIONS: [&str; 2] = ["kill", "reset"];
/// Windows of an experiment with every fault: more than it ever has room for.
const ANY_WINDOWS: usize = 1000;
/// Share of aimed experiments with two faults at once. Two messages do not stand in each other's way.
const TWO_AIMED: f64 = 0.3;
const TWO_MESSAGES: f64 = 0.8;
/// Delays, in leases, that are shorter than what a client waits for an answer.
const SHORT_DELAYS: Range<f64> = 0.02..0.45;

/// Share of experiments in which some turns are those of another application.
const ODD_APPLICATIONS: f64 = 0.25;

/// Share of experiments in which clients rest between two turns, and for how long, in leases: a lock that is asked for all the time is
/// never found free by a late request.
const RESTS: f64 = 0.25;
const RESTING: Range<f64> = 0.02..1.0;

/// Acts of an experiment with single acts, and the logarithm of the last message that is drawn for one.
const MOST_POINTS: u32 = 6;
const POINTS_LOG2: f64 = 9.5;
/// Acts that follow the one before them closely, and by how many messages at most; those of them that are the same act.
const NEAR: f64 = 0.33;
const NEXT_MESSAGES: u32 = 3;
const SAME_ACT: f64 = 0.67;
/// Late messages on which there is a second act.
const ON_LATE_TOO: f64 = 0.25;

/// What experiments are drawn from.
#[derive(Debug, Clone)]
pub struct HuntSpace {
    pub faults: HuntFaults,
    /// Whether a load may be without a fault: not where faults were named.
    pub faultless: bool,
    pub lease: Duration,
    /// How long a lock may stand still.
    pub progress_bound: Duration,
    /// Whether clients may be asked for locks that they do not wait for.
    pub tries: bool,
    /// Acts on messages that nobody chose, with [`NUMBER`] for that of the message; none where experiments are too few for them.
    pub acts: Vec<String>,
    /// Whether locks may come and go.
    pub churn: bool,
    /// Whether a lock may be held for longer than its lease: where the client renews it.
    pub long_holds: bool,
    /// Whether two clients may be threads of one process.
    pub threads: bool,
}

/// What an experiment is mainly about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HuntTurn {
    /// Every fault that a lock can stand, a few at a time.
    Any,
    Aimed,
    /// One of several independent servers is away, for longer than the lock may stand still.
    Minority,
    Message,
    /// Up to six acts, each on the n-th message of the run.
    Points,
    Load,
}

impl HuntTurn {
    const ALL: [Self; 4] = [Self::Any, Self::Aimed, Self::Message, Self::Load];
    /// While there are messages that nothing struck: an experiment strikes about ten of a hundred. Every fault finds the most.
    const OPEN: [Self; 6] = [
        Self::Any,
        Self::Message,
        Self::Any,
        Self::Aimed,
        Self::Message,
        Self::Load,
    ];
    /// Where experiments are many: windows and points as often as each other.
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

/// One experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HuntDraw {
    pub turn: HuntTurn,
    pub seed: u64,
    /// Options of `harness run` and their values, as they are typed.
    pub options: Vec<(&'static str, String)>,
    /// Windows that it should have room for.
    pub windows: usize,
}

impl HuntDraw {
    /// Its faults, as they are typed.
    pub fn faults(&self) -> impl Iterator<Item = &str> {
        let fault = self.options.iter().find(|(name, _)| *name == "fault");
        let faults = fault.map_or("", |(_, value)| value).split(',');
        faults.filter(|fault| *fault != NO_FAULT)
    }
}

impl HuntSpace {
    /// Draws experiment `index` of the hunt with this seed. Faults in `left_out`, by [`what_it_strikes`], are drawn no more.
    pub fn draw(&self, seed: u64, index: u64, left_out: &BTreeSet<String>) -> HuntDraw {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // every experiment has random numbers of its own, whichever job draws it and when
        rng.set_stream(index);
        let own_seed = u64::from(rng.random::<u32>());
        let of = |faults: &[String]| -> Vec<String> {
            let left = faults.iter().filter(|fault| !left_out.contains(what_it_strikes(fault)));
            left.cloned().collect()
        };
        let (aimed, on_messages, mild, minority) = (
            of(&self.faults.aimed),
            of(&self.faults.on_messages),
            of(&self.faults.mild),
            of(&self.faults.minority),
        );
        // many messages once, while there are some that nothing struck; then, by turns, few of them again and again
        let open = self.faults.cells.iter().any(|cell| cell.open);
        let mut turns = self.turns(aimed.len(), on_messages.len(), open);
        if !minority.is_empty() {
            turns.insert(1, HuntTurn::Minority);
        }
        let turn = turns[(index % turns.len() as u64) as usize];
        let many = open || !self.faults.cells.is_empty() && (index / turns.len() as u64).is_multiple_of(2);
        let (faults, mut options) = match turn {
            HuntTurn::Any => (vec![ANY_FAULT.to_owned()], Vec::new()),
            HuntTurn::Aimed => (some(&aimed, TWO_AIMED, &mut rng), window_of(self.lease, &mut rng)),
            HuntTurn::Minority => (one(&minority, &mut rng), vec![("window", ms(self.minority_window()))]),
            HuntTurn::Message if many => (self.least_tried(&mut rng), Vec::new()),
            HuntTurn::Message => {
                let faults = numbered(some(&on_messages, TWO_MESSAGES, &mut rng), &mut rng);
                let faults = faults.into_iter().map(|fault| self.by_some_time(fault, &mut rng));
                (faults.collect(), vec![("window", ms(self.lease))])
            }
            HuntTurn::Points => (self.points(&mut rng), Vec::new()),
            HuntTurn::Load => {
                let others = if mild.is_empty() { &aimed } else { &mild };
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
        options.push((
            "fault",
            if faults.is_empty() {
                NO_FAULT.to_owned()
            } else {
                faults.join(",")
            },
        ));
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

    /// Faults on messages that nothing struck, then those that were tried the least. A rare message comes with a new session: where
    /// there is one among them, a lane of the plan brings sessions about beside those that wait for messages.
    fn least_tried(&self, rng: &mut ChaCha8Rng) -> Vec<String> {
        let cells = self.faults.cells.iter();
        let mut cells: Vec<(u32, &MessageCell)> = cells.map(|cell| (rng.random(), cell)).collect();
        cells.sort_by_key(|(order, cell)| (!cell.open, cell.tries, *order));
        let mut chosen: Vec<&MessageCell> = cells.iter().take(CELLS).map(|(_, cell)| *cell).collect();
        // what is awaited from the start is awaited the longest
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

    /// A fault that delays a message, with a time by turns: longer than a lease where none is said, and shorter than what a client waits
    /// for an answer, so that messages change places and nobody gives up. Any other as it is.
    fn by_some_time(&self, fault: String, rng: &mut ChaCha8Rng) -> String {
        if !fault.starts_with("delay-") || !fault.contains('=') || rng.random_bool(0.5) {
            return fault;
        }
        let time = self.lease.mul_f64(rng.random_range(SHORT_DELAYS));
        format!("{fault}:{}", ms(time))
    }

    /// Longer than a lock may stand still, with the lease that the one before it may leave behind, and time to strike.
    fn minority_window(&self) -> Duration {
        self.progress_bound + self.lease * 3
    }

    /// What experiments are about, one after the other: what there are faults for.
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

    /// One to six acts on single messages of the run, the first ones as likely as all that follow up to twice their number. A run has a
    /// few messages for each grant. Every third act follows the one before it closely, most often as the same, since a majority is lost or
    /// late together; and every fourth message that is late has its client cut off or stopped when it comes.
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

    /// An act on this message; one that is late, by a tenth of a lease up to two.
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

    /// From a millisecond to a third of a lease, or to a lease and a half; each order of magnitude as often as the others.
    fn hold(&self, rng: &mut ChaCha8Rng) -> Duration {
        let longest = if self.long_holds {
            self.lease * 3 / 2
        } else {
            self.lease / 3
        };
        Duration::from_secs_f64(0.001 * (longest.as_secs_f64() / 0.001).powf(rng.random()))
    }
}

/// What a fault acts on, as it is left out where that is never there: the message of one on messages, the clocks that nothing
/// reads, else the fault itself.
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

/// The length of an experiment with this configuration: the shortest that has room for so many windows, in whole seconds.
pub fn length(config: &Config, windows: usize) -> Duration {
    let longest = LONGEST.max((config.lease * LONGEST_LEASES).as_secs().min(LONGEST * 2));
    let lengths = (SHORTEST..=longest).map(Duration::from_secs);
    // `None` where a run of that length has no room for its phases
    let room = |time: &Duration| {
        let config = Config {
            time: *time,
            ..config.clone()
        };
        plan(&config).ok().map(|plan| plan.windows.len())
    };
    let has_room = |time: &Duration, windows: usize| room(time).is_some_and(|room| room >= windows);
    let roomy = lengths.clone().find(|time| has_room(time, windows));
    // a long lease has one window in a long run
    let least = || {
        (1..)
            .map(|more| Duration::from_secs(longest + more))
            .take(600)
            .find(|time| has_room(time, windows.min(1)))
    };
    roomy
        .or_else(|| lengths.rev().find(|time| has_room(time, 1)))
        .or_else(least)
        .unwrap_or(config.time)
}

/// One of them, or two that are not of one name.
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

/// Faults on messages, with which of the messages it is where that was not named: most often the first one.
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

/// The windows of an aimed experiment: as the plan draws them, longer than the lease, or shorter than it.
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

    /// Draws this many experiments, from the first on.
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
        // those that were tried as often as each other take turns
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
        config.faults = vec![FaultRequest::plain("partition")];
        config.time = length(&config, 1);
        assert!(config.time <= Duration::from_secs(12), "{:?}", config.time);
        assert!(plan(&config).is_ok());
        // one window of a long lease
        config.lease = Duration::from_secs(20);
        assert!(length(&config, 1) > Duration::from_secs(LONGEST));
    }
}
