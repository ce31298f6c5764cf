//! Random histories as plain lines: few clients, every outcome, clocks of any grain, late lost signals.

use harness_checkers::history::event::{Header, Kind, Process};
use harness_checkers::{Entry, F, History, HistoryBuilder, Mode, Model};

/// One line of a history.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RandomLine {
    pub time: u64,
    pub process: u32,
    pub kind: Kind,
    pub f: F,
    /// `None` for a signal about all locks.
    pub lock: Option<u32>,
    pub mode: Mode,
    pub permits: u32,
    pub token: Option<u64>,
    pub error: Option<&'static str>,
    pub value: Option<u64>,
    pub expected: Option<u64>,
}

/// The lines of a history that is not built yet, and whether its locks have leases.
#[derive(Debug, Clone)]
pub struct Lines {
    pub leased: bool,
    /// Whether events are ordered by their place and not by their times.
    pub by_place: bool,
    pub lines: Vec<RandomLine>,
}

/// Names of locks, by number.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

impl Lines {
    /// Builds the history; returns `None` if it is not well formed.
    pub fn history(&self) -> Option<History> {
        let lease = if self.leased {
            r#""lease_ms":2000"#
        } else {
            r#""promises":{"lease":false}"#
        };
        let header = format!(r#"{{"format":"harness-history","version":1,{lease}}}"#);
        let header: Header = serde_json::from_str(&header).expect("a header");
        let mut builder = HistoryBuilder::new(header);
        if self.by_place {
            builder = builder.in_order_of_position();
        }
        for (index, said) in self.lines.iter().enumerate() {
            let entry = Entry {
                lock: said.lock.map(|lock| NAMES[lock as usize]),
                mode: said.mode,
                // a single permit may be left out
                permits: Some(said.permits).filter(|permits| *permits > 1 || self.by_place),
                token: said.token,
                error: said.error,
                value: said.value,
                expected: said.expected,
                ..Entry::new(
                    index as u64,
                    said.time,
                    Process::Client(said.process),
                    said.kind,
                    said.f,
                )
            };
            builder.push(&entry).ok()?;
        }
        Some(builder.finish())
    }
}

/// Returns the number in a variable of the environment, or the usual one.
pub fn asked(variable: &str, usual: u64) -> u64 {
    let said = std::env::var(variable).ok();
    said.and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// SplitMix64, by Steele, Lea and Flood (2014), <https://doi.org/10.1145/2660193.2660195>.
pub struct Chance(pub u64);

impl Chance {
    pub fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    pub fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }
}

struct Caller {
    process: u32,
    open: Option<RandomLine>,
    has: [u32; 2],
}

/// Returns the lines of one seed.
pub fn lines(seed: u64, model: Model) -> Lines {
    let mut chance = Chance(seed);
    let clients = 2 + chance.below(3) as u32;
    let locks = 1 + u64::from(chance.percent(25));
    let grain = [1, 1, 3, 10, 40][chance.below(5) as usize];
    // The more rarely a request to a lock that is taken is granted, the more histories are legal.
    let (careful, signals) = (chance.percent(60), chance.below(8));
    let sure = chance.percent(50);
    let mut next = clients;
    let mut callers: Vec<Caller> = (0..clients).map(new).collect();
    let (mut said, mut token, mut value) = (Vec::new(), 0, 0);
    for place in 0..5 + chance.below(20) {
        let at = chance.below(u64::from(clients)) as usize;
        let taken: u32 = callers.iter().map(|caller| caller.has[0] + caller.has[1]).sum();
        let caller = &mut callers[at];
        let time = (place + 1) * 5 / grain * grain;
        if caller.has != [0, 0] && chance.percent(signals) {
            said.push(signal(&mut chance, caller, time));
        } else if let Some(call) = caller.open.take() {
            let refuses = careful && call.f == F::Acquire && taken > caller.has[0] + caller.has[1];
            if refuses && chance.percent(75) {
                caller.open = Some(call);
                continue;
            }
            let reply = reply(&mut chance, model, caller, call, (&mut token, &mut value), sure);
            said.push(RandomLine { time, ..reply });
        } else {
            let call = call(&mut chance, model, caller, locks);
            said.push(RandomLine { time, ..call });
            caller.open = Some(call);
        }
        let last = said.last().expect("one was said");
        if last.kind == Kind::Info || last.f == F::Died {
            *caller = new(next);
            next += 1;
        }
    }
    Lines {
        leased: chance.percent(40),
        by_place: chance.percent(10),
        lines: said,
    }
}

fn new(process: u32) -> Caller {
    Caller {
        process,
        open: None,
        has: [0, 0],
    }
}

fn plain(process: u32, kind: Kind, f: F) -> RandomLine {
    RandomLine {
        time: 0,
        process,
        kind,
        f,
        lock: None,
        mode: Mode::Write,
        permits: 1,
        token: None,
        error: None,
        value: None,
        expected: None,
    }
}

fn signal(chance: &mut Chance, caller: &mut Caller, time: u64) -> RandomLine {
    let died = chance.percent(20);
    let mut said = plain(caller.process, Kind::Signal, if died { F::Died } else { F::Lost });
    said.time = time
        - if chance.percent(40) {
            chance.below(30).min(time)
        } else {
            0
        };
    let lock = u32::from(caller.has[0] == 0);
    if !died && chance.percent(60) {
        said.lock = Some(lock);
        caller.has[lock as usize] = 0;
    } else {
        caller.has = [0, 0];
    }
    said
}

fn call(chance: &mut Chance, model: Model, caller: &Caller, locks: u64) -> RandomLine {
    let mut said = plain(caller.process, Kind::Invoke, F::Acquire);
    let lock = chance.below(locks) as u32;
    said.lock = Some(lock);
    if model.is_lock() {
        let releases = if caller.has[lock as usize] > 0 { 80 } else { 5 };
        said.f = if chance.percent(releases) {
            F::Release
        } else {
            F::Acquire
        };
        if model == Model::ReadWrite && chance.percent(55) {
            said.mode = Mode::Read;
        }
        if let Model::Semaphore { permits } = model {
            said.permits = 1 + chance.below(u64::from(permits).min(2)) as u32;
        }
    } else {
        said.f = [F::Read, F::Write, F::Cas][chance.below(3) as usize];
        said.value = (said.f != F::Read).then(|| chance.below(3));
        said.expected = (said.f == F::Cas).then(|| chance.below(3));
    }
    said
}

fn reply(
    chance: &mut Chance,
    model: Model,
    caller: &mut Caller,
    call: RandomLine,
    (token, value): (&mut u64, &mut u64),
    sure: bool,
) -> RandomLine {
    let kind = match chance.below(20) {
        0..=14 => Kind::Ok,
        15..=17 => Kind::Fail,
        _ if sure => Kind::Ok,
        _ => Kind::Info,
    };
    let mut said = RandomLine { kind, ..call };
    if kind == Kind::Fail && model.is_lock() {
        let refusals = ["busy", "not held", "timeout", "busy"];
        let at = if call.f == F::Acquire { 0 } else { 1 } + 2 * chance.below(2) as usize;
        said.error = Some(if call.f == F::Release && at == 3 {
            "no quorum"
        } else {
            refusals[at]
        });
    }
    if kind == Kind::Fail && !model.is_lock() && chance.percent(30) {
        said.error = Some("timeout");
    }
    let has = &mut caller.has[call.lock.unwrap_or(0) as usize];
    match (call.f, kind) {
        (F::Acquire, Kind::Ok) => {
            *has += 1;
            *token += u64::from(*has == 1);
            said.token = (!chance.percent(15)).then(|| token.saturating_sub(u64::from(chance.percent(8))));
        }
        (F::Release, _) => *has = has.saturating_sub(1),
        (F::Write | F::Cas, Kind::Ok) => *value = call.value.unwrap_or(0),
        (F::Read, Kind::Ok) => {
            said.value = (!chance.percent(10)).then(|| if chance.percent(80) { *value } else { chance.below(3) });
        }
        _ => {}
    }
    said
}
