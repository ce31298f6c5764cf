//! The definition of linearizability on plain lines: operations of one lock, and whether any order of them is legal.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use harness_checkers::history::event::Kind;
use harness_checkers::{F, Mode, Model};

use super::chance::{Lines, RandomLine};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Deed {
    Take {
        mode: Mode,
        permits: u32,
        token: Option<u64>,
    },
    Give {
        permits: u32,
    },
    GiveAll,
    /// The call of an acquire, and its answer: between the two, it explains busy answers of others.
    Asks,
    IsTold,
    /// Another process has it, or asks for it.
    SeenTaken,
    /// No legal order has this step.
    Impossible,
    Read(Option<u64>),
    Write(u64),
    Swap(u64, u64),
    SwapRefused(u64),
}

/// An operation, from its earliest to its latest moment.
#[derive(Debug, Clone)]
struct Step {
    deed: Deed,
    process: u32,
    from: u64,
    until: Option<u64>,
    must: bool,
    /// Steps of its process that come before; and one after which it can no longer come.
    after: Vec<usize>,
    not_after: Option<usize>,
}

/// Returns the moments of one process in its own order: a line with its reply, or a signal.
fn own_lines(of: &Lines, process: u32, lock: u32) -> Vec<(u64, usize)> {
    let lines = &of.lines;
    let time = |at: usize| if of.by_place { at as u64 } else { lines[at].time };
    let own = |at: &usize| lines[*at].process == process && lines[*at].lock.is_none_or(|of| of == lock);
    let is_signal = |at: usize| lines[at].kind == Kind::Signal;
    let mut order: Vec<(u64, usize)> = (0..lines.len())
        .filter(own)
        .filter(|at| !is_signal(*at))
        .map(|at| (time(at), at))
        .collect();
    let ended = ended_by(of, process, lock);
    for at in (0..lines.len()).filter(own).filter(|at| is_signal(*at)) {
        let granted = ended.get(&at).filter(|grant| time(**grant) >= time(at));
        let grant = granted.and_then(|grant| order.iter().position(|(_, line)| line == grant));
        let place = grant.map_or_else(
            || order.partition_point(|(earlier, _)| *earlier < time(at)),
            |place| place + 1,
        );
        let moment = grant.map_or(time(at), |place| order[place].0);
        order.insert(place, (moment, at));
    }
    order
}

/// Returns the `ok` answers whose hold, by a later line of a loss, had ended by then.
fn lost_before_told(of: &Lines, process: u32, lock: u32) -> Vec<usize> {
    if of.by_place {
        return Vec::new();
    }
    let ended = ended_by(of, process, lock).into_iter();
    let void = ended.filter(|(at, told)| of.lines[*at].f == F::Lost && of.lines[*told].time >= of.lines[*at].time);
    void.map(|(_, told)| told).collect()
}

/// Returns, by the line of a signal, the line of the last grant that it ends. A process that has given up a grant and asks again after a
/// loss does not lose the new one by that.
fn ended_by(of: &Lines, process: u32, lock: u32) -> BTreeMap<usize, usize> {
    let time = |at: usize| if of.by_place { at as u64 } else { of.lines[at].time };
    let own = (of.lines.iter().enumerate())
        .filter(|(_, line)| line.process == process && line.lock.is_none_or(|of| of == lock));
    // Each grant with its call, and whether the one before was given up by then.
    let mut grants: Vec<(usize, usize, bool)> = Vec::new();
    let (mut called, mut given_up) = (0, true);
    let mut ended = BTreeMap::new();
    for (at, line) in own {
        match (line.f, line.kind) {
            (F::Lost | F::Died, _) => {
                let goes_on = |(_, call, is_next): &&(usize, usize, bool)| {
                    line.f == F::Lost && *is_next && time(at) < time(*call)
                };
                let later = grants.iter().rev().take_while(goes_on).count();
                if let Some((grant, ..)) = grants[..grants.len() - later].last() {
                    ended.insert(at, *grant);
                    given_up |= later == 0;
                }
            }
            (F::Acquire, Kind::Ok) => {
                grants.push((at, called, given_up));
                given_up = false;
            }
            (f, Kind::Invoke) => {
                called = at;
                given_up |= f == F::Release;
            }
            _ => {}
        }
    }
    ended
}

fn reply_of(lines: &[RandomLine], call: usize) -> Option<usize> {
    let own = |at: &usize| lines[*at].process == lines[call].process && lines[*at].kind != Kind::Signal;
    (call + 1..lines.len()).find(own)
}

/// The steps of one process on one lock, by its own lines.
struct Teller<'a> {
    of: &'a Lines,
    model: Model,
    steps: Vec<Step>,
    process: u32,
    /// The number of its holds or permits, and their mode.
    has: u32,
    mode: Mode,
    /// Losses without a later release.
    lapsed: u32,
    /// Steps that have ended; of a plain mutex, the latest grant.
    over: Vec<usize>,
    grant: Option<usize>,
    /// The step of the pending call, and the holds or permits of a release that will be denied.
    open: Option<usize>,
    denied: Option<u32>,
    /// Ends of its hold that may come as late as its next grant.
    ending: Vec<usize>,
    /// Answers to acquires whose holds were lost before, and the step of such an acquire whose loss is the next line.
    void: Vec<usize>,
    in_vain: Option<usize>,
}

impl Teller<'_> {
    fn add(&mut self, deed: Deed, from: u64, until: Option<u64>) -> usize {
        self.steps.push(Step {
            deed,
            process: self.process,
            from,
            until,
            must: until.is_some(),
            after: self.over.clone(),
            not_after: None,
        });
        self.steps.len() - 1
    }

    fn tell(&mut self, now: u64, at: usize) {
        let said = self.of.lines[at];
        match (said.f, said.kind) {
            (F::Lost | F::Died, _) => self.loses(now),
            (_, Kind::Signal) => {}
            (_, Kind::Invoke) => {
                let reply = reply_of(&self.of.lines, at);
                let answer = reply.map(|reply| self.of.lines[reply]);
                let until = reply.map(|reply| {
                    if self.of.by_place {
                        reply as u64
                    } else {
                        self.of.lines[reply].time
                    }
                });
                self.open = match said.f {
                    F::Acquire => {
                        self.is_seen(Deed::Asks, now);
                        self.asks(now, said, answer, until)
                    }
                    F::Release => self.lets_go(now, said, answer, until),
                    _ => self.touches(now, said, answer, until),
                };
            }
            _ => {
                self.denied = None;
                if let Some(step) = self.open.take() {
                    if self.void.contains(&at) && !self.tries() {
                        self.gets_nothing(said, step);
                        return;
                    }
                    if self.steps[step].must {
                        self.over.push(step);
                    }
                    if said.f == F::Acquire && said.kind == Kind::Ok {
                        self.gets(now, said, step);
                    }
                }
                if said.f == F::Acquire && said.kind != Kind::Info {
                    self.is_seen(Deed::IsTold, now);
                }
            }
        }
    }

    /// If contenders see each other, the ends of an acquire are events of their own. Two that only touch, the one answered at the instant
    /// of the other's call, were not necessarily pending at once: events between them at that instant, each before the next by its process
    /// or by the lock, may put the answer before the call.
    fn is_seen(&mut self, end: Deed, now: u64) {
        if self.model == Model::TryLock {
            let step = self.add(end, now, Some(now));
            self.over.push(step);
        }
    }

    fn asks(&mut self, now: u64, said: RandomLine, answer: Option<RandomLine>, until: Option<u64>) -> Option<usize> {
        let take = Deed::Take {
            mode: said.mode,
            permits: said.permits,
            token: answer.and_then(|answer| answer.token),
        };
        match answer.map_or(Kind::Info, |answer| answer.kind) {
            Kind::Ok => Some(self.add(take, now, until)),
            Kind::Fail => {
                let judged = self.tries() && answer?.error == Some("busy");
                judged.then(|| self.add(Deed::SeenTaken, now, until))
            }
            _ => {
                let taken = self.add(take, now, None);
                if self.tries() && self.of.leased && self.has == 0 {
                    let runs_out = self.add(Deed::GiveAll, now, None);
                    self.steps[runs_out].after.push(taken);
                }
                Some(taken)
            }
        }
    }

    fn tries(&self) -> bool {
        matches!(self.model, Model::TryLock | Model::ExactTryLock)
    }

    fn lets_go(&mut self, now: u64, said: RandomLine, answer: Option<RandomLine>, until: Option<u64>) -> Option<usize> {
        let kind = answer.map_or(Kind::Info, |answer| answer.kind);
        let parts = if matches!(self.model, Model::Semaphore { .. }) {
            said.permits
        } else {
            1
        };
        let lapsed = self.lapsed >= parts;
        let give = Deed::Give { permits: said.permits };
        let weighted = matches!(self.model, Model::Semaphore { .. });
        self.lapsed -= if lapsed { parts } else { 0 };
        if self.model == Model::Mutex {
            (self.has, self.lapsed) = (0, 0);
            return match kind {
                Kind::Ok => Some(self.add(give, now, until.filter(|_| !lapsed))),
                Kind::Info => Some(self.add(give, now, None)),
                _ => None,
            };
        }
        if self.has == 0 {
            return (kind == Kind::Ok && !lapsed).then(|| self.add(Deed::Impossible, now, until));
        }
        if answer.is_some_and(|answer| answer.error == Some("not held")) && !self.of.leased {
            self.denied = Some(parts);
            return Some(self.add(Deed::Impossible, now, until));
        }
        if weighted && said.permits > self.has {
            return (kind == Kind::Ok).then(|| self.add(Deed::Impossible, now, until));
        }
        self.has -= if weighted { said.permits } else { 1 };
        let late = kind == Kind::Fail && self.tries();
        let step = self.add(give, now, until.filter(|_| kind != Kind::Info && !late));
        if late {
            self.ending.push(step);
        }
        Some(step)
    }

    fn touches(&mut self, now: u64, said: RandomLine, answer: Option<RandomLine>, until: Option<u64>) -> Option<usize> {
        let kind = answer.map_or(Kind::Info, |answer| answer.kind);
        let until = until.filter(|_| kind != Kind::Info);
        let (value, expected) = (said.value.unwrap_or(0), said.expected.unwrap_or(0));
        let exact = matches!(self.model, Model::ExactCasRegister { .. });
        let deed = match (said.f, kind) {
            (F::Read, Kind::Ok) if exact || answer?.value.is_some() => Deed::Read(answer?.value),
            (F::Write, Kind::Ok | Kind::Info) => Deed::Write(value),
            (F::Cas, Kind::Ok | Kind::Info) => Deed::Swap(expected, value),
            (F::Cas, Kind::Fail) if exact && answer?.error.is_none() => Deed::SwapRefused(expected),
            _ => return None,
        };
        Some(self.add(deed, now, until))
    }

    /// It may have had the lock for a while before its answer, and has no hold after the loss, which comes next; a release may be accepted.
    /// If it had no hold before, that while allows no other orders, unless locks have no owners: there the release of another process may
    /// have ended it, and its own end may have ended another hold.
    fn gets_nothing(&mut self, said: RandomLine, step: usize) {
        (self.steps[step].must, self.steps[step].until) = (false, None);
        let parts = match self.model {
            Model::Semaphore { .. } => said.permits,
            _ => 1,
        };
        if self.model == Model::Mutex {
            (self.grant, self.has) = (Some(step), 1);
        } else if self.has > 0 {
            (self.in_vain, self.has) = (Some(step), self.has + parts);
        } else {
            (self.steps[step].deed, self.lapsed) = (Deed::Impossible, parts);
        }
    }

    fn gets(&mut self, now: u64, said: RandomLine, step: usize) {
        for ends in self.ending.drain(..) {
            let end = &mut self.steps[ends];
            (end.until, end.must) = (Some(now.max(end.from)), true);
            self.steps[step].after.push(ends);
        }
        self.grant = Some(step);
        self.lapsed = 0;
        self.has = match self.model {
            Model::Semaphore { .. } => self.has + said.permits,
            Model::ReadWrite => 1,
            _ => self.has + 1,
        };
        self.mode = said.mode;
    }

    fn loses(&mut self, now: u64) {
        if self.has == 0 {
            return;
        }
        let had = std::mem::take(&mut self.has);
        self.lapsed = had.saturating_sub(self.denied.unwrap_or(0));
        if self.model == Model::Mutex {
            let lost = self.add(Deed::Give { permits: 1 }, 0, None);
            let grant = self.grant.expect("a process that has it was granted it");
            let told = self.steps[grant].until;
            self.steps[lost].from = told.unwrap_or(self.steps[grant].from);
            self.steps[lost].after = match told {
                Some(_) => vec![grant],
                None => self.steps[grant].after.clone(),
            };
            return;
        }
        let late = self.tries();
        let until = Some(now).filter(|_| !late);
        let lost = if self.denied.take().is_some() {
            let denied = self.open.take().expect("the release that is denied is in flight");
            (
                self.steps[denied].deed,
                self.steps[denied].until,
                self.steps[denied].must,
            ) = (Deed::GiveAll, until, !late);
            denied
        } else {
            self.add(Deed::GiveAll, now, until)
        };
        if let Some(step) = self.in_vain.take() {
            self.steps[step].not_after = Some(lost);
        }
        if late {
            self.ending.push(lost);
        } else {
            self.over.push(lost);
        }
        let Some(asked) = self.open else { return };
        let Deed::Take { mode, permits, token } = self.steps[asked].deed else {
            return;
        };
        if self.model == Model::ReadWrite && self.mode == Mode::Write && mode == Mode::Read {
            // A downgrade may have had its effect before the loss as well.
            let from = self.steps[asked].from;
            let weaker = self.add(Deed::Take { mode, permits, token }, from, None);
            self.steps[weaker].after = self.steps[asked].after.clone();
            self.steps[weaker].not_after = Some(lost);
        }
        if self.steps[asked].must && !late {
            self.steps[asked].after.push(lost);
        }
    }
}

/// The state of a lock or a register between two steps.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
struct Thing {
    /// The owners: the number of their holds or permits, and whether only to read.
    by: BTreeMap<u32, (u32, bool)>,
    token: Option<u64>,
    /// Whether the token is that of the present owner.
    own_token: bool,
    value: Option<u64>,
    /// Whether its value is unknown.
    any_value: bool,
    /// The processes with pending acquires.
    asking: BTreeSet<u32>,
}

impl Thing {
    fn new(model: Model) -> Self {
        let (value, any_value) = match model {
            Model::Register { start } | Model::CasRegister { start } => (start, start.is_none()),
            Model::ExactCasRegister { start } => (start, false),
            _ => (None, false),
        };
        Self {
            value,
            any_value,
            ..Self::default()
        }
    }

    fn take(&mut self, model: Model, process: u32, mode: Mode, permits: u32, token: Option<u64>) -> bool {
        let reads = mode == Mode::Read;
        let before = self.by.get(&process).copied();
        let others = || self.by.iter().filter(|(other, _)| **other != process);
        let rises = token.is_none_or(|token| self.token.is_none_or(|last| token > last));
        match model {
            Model::Mutex => {
                let free = self.by.is_empty();
                self.by.insert(0, (1, false));
                return free;
            }
            Model::Semaphore { permits: all } => {
                let taken: u32 = self.by.values().map(|(count, _)| count).sum();
                self.by.entry(process).or_default().0 += permits;
                return taken + permits <= all;
            }
            Model::ReadWrite => {
                let shared = others().all(|(_, (_, other))| *other && reads);
                self.by.insert(process, (1, reads));
                return shared && before.is_none_or(|(_, was)| was != reads);
            }
            _ if others().next().is_some() => return false,
            _ => {}
        }
        let (limit, fenced) = match model {
            Model::Reentrant { limit } => (limit, false),
            Model::ReentrantFenced { limit } => (limit, true),
            Model::Fenced => (1, true),
            _ => (1, false),
        };
        let depth = before.map_or(0, |(depth, _)| depth);
        self.by.insert(process, (depth + 1, false));
        if depth == 0 {
            self.own_token = false;
        }
        let Some(token) = token.filter(|_| fenced) else {
            return depth < limit;
        };
        let fits = if self.own_token {
            self.token == Some(token)
        } else {
            rises
        };
        (self.token, self.own_token) = (Some(token), true);
        depth < limit && fits
    }

    fn give(&mut self, model: Model, process: u32, permits: Option<u32>) -> bool {
        let process = if model == Model::Mutex { 0 } else { process };
        let Some((count, _)) = self.by.get_mut(&process) else {
            return false;
        };
        let weighted = matches!(model, Model::Semaphore { .. });
        let parts = permits.map_or(*count, |permits| if weighted { permits } else { 1 });
        let enough = *count >= parts;
        *count = count.saturating_sub(parts);
        if *count == 0 {
            self.by.remove(&process);
        }
        enough
    }

    fn does(&mut self, model: Model, step: &Step) -> bool {
        match step.deed {
            Deed::Take { mode, permits, token } => self.take(model, step.process, mode, permits, token),
            Deed::Give { permits } => self.give(model, step.process, Some(permits)),
            Deed::GiveAll => self.give(model, step.process, None),
            Deed::Asks => self.asking.insert(step.process),
            Deed::IsTold => self.asking.remove(&step.process),
            Deed::SeenTaken => !self.by.is_empty() || self.asking.iter().any(|other| *other != step.process),
            Deed::Impossible => false,
            Deed::Read(Some(value)) | Deed::Swap(_, value) if self.any_value => {
                (self.value, self.any_value) = (Some(value), false);
                true
            }
            Deed::Read(value) => self.value == value,
            Deed::SwapRefused(expected) => self.value != Some(expected),
            Deed::Write(value) => {
                (self.value, self.any_value) = (Some(value), false);
                true
            }
            Deed::Swap(expected, value) => self.value.replace(value) == Some(expected),
        }
    }
}

/// Returns whether the lines about one lock have a legal order, by trying all.
pub fn is_legal(of: &Lines, model: Model, lock: u32) -> bool {
    let processes: BTreeSet<u32> = of.lines.iter().map(|said| said.process).collect();
    let mut steps = Vec::new();
    for process in processes {
        let mut teller = Teller {
            of,
            model,
            steps,
            process,
            has: 0,
            mode: Mode::Write,
            lapsed: 0,
            over: Vec::new(),
            grant: None,
            open: None,
            denied: None,
            ending: Vec::new(),
            void: lost_before_told(of, process, lock),
            in_vain: None,
        };
        own_lines(of, process, lock)
            .into_iter()
            .for_each(|(now, at)| teller.tell(now, at));
        steps = teller.steps;
    }
    has_order(&steps, model)
}

fn has_order(steps: &[Step], model: Model) -> bool {
    assert!(steps.len() <= 64, "small histories only");
    let all: u64 = steps
        .iter()
        .enumerate()
        .filter(|(_, step)| step.must)
        .map(|(at, _)| 1 << at)
        .sum();
    let mut seen: HashSet<(u64, Thing)> = HashSet::new();
    let mut open = vec![(0u64, Thing::new(model))];
    while let Some((done, thing)) = open.pop() {
        if done & all == all {
            return true;
        }
        if !seen.insert((done, thing.clone())) {
            continue;
        }
        let is_done = |at: usize| done >> at & 1 == 1;
        let earliest = steps.iter().enumerate().filter(|(at, step)| step.must && !is_done(*at));
        let bound = earliest.filter_map(|(_, step)| step.until).min().unwrap_or(u64::MAX);
        for (at, step) in steps.iter().enumerate() {
            let in_turn = step.after.iter().all(|first| is_done(*first)) && !step.not_after.is_some_and(is_done);
            if is_done(at) || step.from > bound || !in_turn {
                continue;
            }
            let mut next = thing.clone();
            if next.does(model, step) {
                open.push((done | 1 << at, next));
            }
        }
    }
    false
}
