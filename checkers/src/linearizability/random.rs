//! Random histories for the tests of the crate: small, well formed, with every kind of outcome.

use super::order::EventOrder;
use crate::history::event::{Header, Kind, Process};
use crate::history::{Entry, F, History, HistoryBuilder, Mode};
use crate::model::Model;

/// Every lock model, with limits that small histories reach.
pub(super) const LOCKS: [Model; 11] = [
    Model::OwnerMutex,
    Model::Mutex,
    Model::Reentrant { limit: 2 },
    Model::Fenced,
    Model::ReentrantFenced { limit: 2 },
    Model::ReadWrite,
    Model::Semaphore { permits: 2 },
    Model::Semaphore { permits: 3 },
    Model::TryLock,
    Model::ExactTryLock,
    Model::Election,
];

/// Every reading of a register.
pub(super) const REGISTERS: [Model; 4] = [
    Model::Register { start: None },
    Model::CasRegister { start: None },
    Model::CasRegister { start: Some(1) },
    Model::ExactCasRegister { start: None },
];

const NAMES: [&str; 2] = ["l0", "l1"];

/// A small generator of numbers, xorshift64*; the same seed gives the same history.
///
/// S. Vigna, "An experimental exploration of Marsaglia's xorshift generators, scrambled" (2016),
/// <https://arxiv.org/abs/1402.6246>.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32
    }

    fn below(&mut self, sides: u64) -> u64 {
        self.roll() % sides
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

struct RandomClient {
    process: u32,
    /// What it has called and not been answered, with the place of its lock.
    open: Option<(usize, Entry<'static>)>,
    depth: [u32; 2],
}

impl RandomClient {
    fn new(process: u32) -> Self {
        Self {
            process,
            open: None,
            depth: [0; 2],
        }
    }
}

/// Whether the history of that seed has events of equal times.
pub(super) fn is_coarse(seed: u64) -> bool {
    seed % 8 == 5
}

/// Returns whether two events have one instant.
pub(super) fn has_ties(history: &History) -> bool {
    let mut ties = false;
    EventOrder::of(history).instants(history, |same| ties |= same.len() > 1);
    ties
}

/// Returns a random history of up to a dozen operations by two to four clients.
pub(crate) fn random(seed: u64, model: Model) -> History {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut clients: Vec<RandomClient> = (0..2 + dice.below(3) as u32).map(RandomClient::new).collect();
    // in half of them no outcome is unknown
    let quiet = dice.chance(50);
    let locks = if dice.chance(15) { 2 } else { 1 };
    let mut header = Header::of_locks(["l0"]);
    header.lease_ms = dice.chance(30).then_some(2_000);
    let mut builder = HistoryBuilder::new(header);
    let (mut next, mut token) = (clients.len() as u32, 0);
    for index in 0..6 + dice.below(20) {
        let at = dice.below(clients.len() as u64) as usize;
        let client = &mut clients[at];
        let time = if is_coarse(seed) { index / 3 * 30 } else { index * 10 };
        let mut entry = Entry::new(index, time, Process::Client(client.process), Kind::Invoke, F::Acquire);
        let holds = client.depth != [0, 0];
        if dice.chance(if holds { 7 } else { 1 }) {
            signal(&mut dice, client, &mut entry);
        } else if let Some((lock, open)) = client.open.take() {
            entry = Entry {
                index,
                time_ns: time,
                value: None,
                ..open
            };
            reply(&mut dice, &model, &mut client.depth[lock], &mut entry, quiet);
            tell(&mut dice, client.depth[lock], &mut token, &mut entry);
        } else {
            call(&mut dice, &model, client, locks, &mut entry);
        }
        if entry.kind == Kind::Info || entry.f == F::Died {
            *client = RandomClient::new(next);
            next += 1;
        }
        builder.push(&entry).expect("the generator makes well-formed histories");
    }
    builder.finish()
}

/// Makes a signal: a loss of one lock or of all, sometimes written later than it was raised; or a death.
fn signal(dice: &mut Dice, client: &mut RandomClient, entry: &mut Entry<'_>) {
    (entry.kind, entry.f) = (Kind::Signal, F::Lost);
    if dice.chance(15) {
        entry.f = F::Died;
    } else if dice.chance(30) {
        client.depth = [0; 2];
    } else {
        let lock = usize::from(client.depth[0] == 0 && client.depth[1] > 0);
        entry.lock = Some(NAMES[lock]);
        client.depth[lock] = 0;
    }
    if dice.chance(40) {
        entry.time_ns -= entry.time_ns.min(10 * dice.below(6));
    }
}

fn call(dice: &mut Dice, model: &Model, client: &mut RandomClient, locks: u64, entry: &mut Entry<'static>) {
    let lock = dice.below(locks) as usize;
    entry.lock = Some(NAMES[lock]);
    if model.is_lock() {
        let again = model.is_reentrant() || matches!(model, Model::ReadWrite | Model::Semaphore { .. });
        let releases = match client.depth[lock] {
            0 => dice.chance(4),
            _ => dice.chance(if again { 70 } else { 96 }),
        };
        entry.f = if releases { F::Release } else { F::Acquire };
        if *model == Model::ReadWrite && dice.chance(60) {
            entry.mode = Mode::Read;
        }
        let weighted = matches!(model, Model::Semaphore { .. });
        entry.permits = weighted.then(|| 1 + dice.below(2) as u32);
    } else {
        entry.f = [F::Read, F::Write, F::Cas][dice.below(3) as usize];
        entry.value = (entry.f != F::Read).then(|| dice.below(3));
        entry.expected = (entry.f == F::Cas).then(|| dice.below(3));
    }
    client.open = Some((lock, *entry));
}

/// Answers a call, whose fields the entry has.
fn reply(dice: &mut Dice, model: &Model, depth: &mut u32, entry: &mut Entry<'_>, quiet: bool) {
    entry.kind = match dice.below(20) {
        0..=13 => Kind::Ok,
        14..=17 => Kind::Fail,
        _ if quiet => Kind::Ok,
        _ => Kind::Info,
    };
    if entry.kind == Kind::Fail && model.is_lock() {
        entry.error = Some(match entry.f {
            F::Acquire => "busy",
            _ if dice.chance(30) => "not-held",
            _ => "lease lost",
        });
    }
    match (entry.f, entry.kind) {
        (F::Acquire, Kind::Ok) => *depth += 1,
        (F::Release, _) => *depth = depth.saturating_sub(1),
        _ => {}
    }
}

/// What an answer says: a token that mostly grows, or what was read.
fn tell(dice: &mut Dice, depth: u32, token: &mut u64, entry: &mut Entry<'_>) {
    if entry.kind == Kind::Ok && entry.f == F::Acquire && dice.chance(80) {
        *token += if depth > 1 { 0 } else { dice.below(5) };
        entry.token = Some(token.saturating_sub(u64::from(dice.chance(10))));
    }
    if entry.kind == Kind::Ok && entry.f == F::Read {
        entry.value = (!dice.chance(10)).then(|| dice.below(3));
    }
}

/// Returns a history as text, for a failed test.
pub(super) fn show(history: &History) -> String {
    let lines: Vec<String> = history.entries().map(|entry| format!("{entry:?}")).collect();
    format!("lease {:?}\n{}", history.header().lease_ms, lines.join("\n"))
}
