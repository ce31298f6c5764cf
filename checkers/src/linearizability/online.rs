//! Linearizability while a history grows: the same sweeps as offline, over the few events that are still needed.
//!
//! Events wait in the order of time until no earlier one can follow, and then go to the sweep, those of one instant together. From time to
//! time the history forgets all events to which no pending operation and no hold refers.

use std::collections::VecDeque;

use super::counterexample::Counterexample;
use super::finder::CounterexampleFinder;
use super::lock::Lock;
use super::order::{OrderedEvent, RankedEvent};
use super::possible::PossibleLocks;
use super::sweep::{Sweep, changes_something};
use crate::history::event::{Header, Kind};
use crate::history::names::{FastSet, NONE, Symbol};
use crate::history::{Entry, EventFields, F, FormError, History, HistoryBuilder, Mode, PackedEvent, Rare, RareFields};
use crate::model::{Model, NotOnline};
use crate::signal_grants::GrantedLocks;

/// Events after which a monitor forgets for the first time: so many that forgetting costs nothing, so few that they stay in a processor's
/// cache.
const FIRST_LIMIT: usize = 1 << 13;

/// A function that is called with a lock that has no legal order, by its number, while the history still has the events that prove it.
pub(crate) type TellFault<'a> = dyn FnMut(&History, u32, &Counterexample) + 'a;

/// The sweep of a history that grows, with memory for pending operations and holds.
#[derive(Debug, Clone)]
pub(crate) struct OnlineSweep {
    pub model: Model,
    leased: bool,
    builder: HistoryBuilder,
    locks: Vec<Lock>,
    /// The possible states of try-locks.
    possible: PossibleLocks,
    /// Waiting events, in order.
    queue: VecDeque<RankedEvent>,
    /// By dense process, the locks that it acquired.
    granted: Vec<GrantedLocks>,
    /// The longest delay of a signal after its time.
    pub delay_ns: u64,
    /// The latest time of an event that is no signal.
    pub latest_ns: u64,
    /// The instant up to which all events were handled, plus one.
    passed: u64,
    /// Events that were pushed.
    pub events: u64,
    /// Those of them that came after the delay.
    pub late: u64,
    /// Events in memory at which some are forgotten: the least number, and the present one.
    least: usize,
    limit: usize,
    same: Vec<OrderedEvent>,
    /// The lock of the last event, with the number of its name.
    named: Option<(String, Symbol)>,
}

impl OnlineSweep {
    /// Creates a sweep for a history with this header, by a model with owners. `delay_ns` is the longest delay of a signal after its time.
    pub(crate) fn new(header: Header, model: Model, delay_ns: u64) -> Result<Self, NotOnline> {
        if model == Model::Mutex || !model.is_lock() {
            return Err(NotOnline { model });
        }
        Ok(Self {
            model,
            leased: header.may_have_lease(),
            builder: HistoryBuilder::new(header),
            locks: Vec::new(),
            possible: PossibleLocks::default(),
            queue: VecDeque::new(),
            granted: Vec::new(),
            delay_ns,
            latest_ns: 0,
            passed: 0,
            events: 0,
            late: 0,
            least: FIRST_LIMIT,
            limit: FIRST_LIMIT,
            same: Vec::new(),
            named: None,
        })
    }

    /// Sets a smaller memory, at the cost of more work.
    #[cfg(test)]
    fn with_limit(self, events: usize) -> Self {
        Self {
            least: events,
            limit: events,
            ..self
        }
    }

    /// Handles the next event of a lock.
    pub(crate) fn push(&mut self, entry: &Entry<'_>, tell: &mut TellFault<'_>) -> Result<(), FormError> {
        self.take(entry)?;
        self.see_certain(false, tell);
        if self.builder.len() >= self.limit {
            self.forget();
        }
        Ok(())
    }

    /// Handles a line of the nemesis, by which busy answers are excused; returns the history with its window.
    pub(crate) fn see_nemesis(&mut self, entry: &Entry<'_>) -> &History {
        self.builder.see_nemesis(entry);
        self.builder.history()
    }

    /// Advances the time without an event.
    pub(crate) fn advance(&mut self, time_ns: u64, tell: &mut TellFault<'_>) {
        self.latest_ns = self.latest_ns.max(time_ns);
        self.see_certain(false, tell);
    }

    pub(crate) fn finish(mut self, tell: &mut TellFault<'_>) {
        self.see_certain(true, tell);
        if self.model.judges_busy() {
            self.see_end(tell);
        }
    }

    /// Adds an event to the history and to the queue.
    fn take(&mut self, entry: &Entry<'_>) -> Result<(), FormError> {
        let lock = self.symbol_of(entry.lock);
        let error = entry.error.filter(|_| entry.kind == Kind::Fail);
        let permits = entry.permits.filter(|permits| *permits != 1);
        let rare = (error.is_some() || permits.is_some()).then(|| RareFields {
            rare: Rare {
                error: error.map_or(NONE, |error| self.builder.names().intern(error)),
                permits: permits.unwrap_or(NONE),
                ..Rare::default()
            },
            wire: None,
        });
        // The other fields are not needed here.
        let fields = EventFields {
            lock,
            ..EventFields::of(entry)
        };
        self.builder.add(&fields, rare.as_ref())?;
        self.events += 1;
        let history = self.builder.history();
        if self.locks.len() < history.locks.len() {
            self.locks.resize(history.locks.len(), Lock::new());
        }
        if self.granted.len() < history.processes.len() {
            self.granted.resize_with(history.processes.len(), GrantedLocks::default);
        }
        let position = history.events.len() as u32 - 1;
        let event = history.events.last().expect("an event was added");
        let lock = history.number_of(event.lock);
        if matches!(event.f, F::Lost | F::Died) {
            self.take_signal(event, position, lock);
            return Ok(());
        }
        let (instant, rank) = (event.time, self.events * 2);
        if event.is_ok(F::Acquire) {
            let called = history.events.time(event.mate);
            self.granted[event.process as usize].insert(lock, called, (instant, rank), self.passed);
        } else if event.is_call(F::Release) {
            self.granted[event.process as usize].releases(lock);
        }
        self.latest_ns = self.latest_ns.max(instant);
        if changes_something(&self.model, event.f, event.kind, true) && !self.is_known_at_call(event) {
            self.wait((instant, rank), position, lock);
        }
        Ok(())
    }

    /// Returns whether this answers a release that still waits in the queue: the release will find the answer, which alone changes nothing.
    fn is_known_at_call(&self, event: PackedEvent) -> bool {
        let said = event.f == F::Release && matches!(event.kind, Kind::Ok | Kind::Info);
        said && !self.model.judges_busy() && self.builder.history().events.time(event.mate) >= self.passed
    }

    /// Returns the number of a lock's name. Neighbours often have the same lock.
    fn symbol_of(&mut self, lock: Option<&str>) -> Symbol {
        let Some(name) = lock else { return NONE };
        match &self.named {
            Some((last, symbol)) if last == name => *symbol,
            _ => {
                let symbol = self.builder.names().intern(name);
                self.named = Some((name.to_owned(), symbol));
                symbol
            }
        }
    }

    /// Queues a signal: it comes first among the events of its process at its time, though never before the reply that began the hold which
    /// it ends, as in [`super::order`].
    fn take_signal(&mut self, event: PackedEvent, position: u32, lock: u32) {
        let is_lost = event.f == F::Lost;
        let mut ended: Vec<u32> = if is_lost && lock != NONE {
            vec![lock]
        } else {
            self.granted[event.process as usize].locks().collect()
        };
        ended.sort_unstable();
        for lock in ended {
            let granted = &mut self.granted[event.process as usize];
            let place = match granted.of_signal(lock, is_lost.then_some(event.time)) {
                Some((began, rank)) if began >= event.time => {
                    if is_lost {
                        make_void(&mut self.queue, began, rank);
                    }
                    (began, rank + 1)
                }
                _ => (event.time, 0),
            };
            self.wait(place, position, lock);
        }
    }

    /// Puts an event into the queue, by its instant and its rank.
    fn wait(&mut self, (instant, rank): (u64, u64), position: u32, lock: u32) {
        self.late += u64::from(instant < self.passed);
        let waiting = RankedEvent {
            instant: instant.max(self.passed),
            rank,
            position,
            lock,
            void: false,
        };
        if self.queue.back().is_none_or(|last| *last < waiting) {
            self.queue.push_back(waiting);
        } else {
            let place = self.queue.partition_point(|other| *other < waiting);
            self.queue.insert(place, waiting);
        }
    }

    /// Handles all events that no other event can precede any more; at the end, all events.
    fn see_certain(&mut self, ended: bool, tell: &mut TellFault<'_>) {
        while let Some(first) = self.queue.front().copied() {
            if !ended && first.instant.saturating_add(self.delay_ns) >= self.latest_ns {
                return;
            }
            let alone = self.queue.get(1).is_none_or(|next| next.instant > first.instant);
            self.same.clear();
            if alone {
                self.same.push(first.ordered());
            } else {
                let same = self.queue.iter().take_while(|next| next.instant == first.instant);
                self.same.extend(same.map(RankedEvent::ordered));
            }
            if !ended && self.same.iter().any(|event| self.awaits_answer(event)) {
                return;
            }
            if alone {
                self.queue.pop_front();
            } else {
                self.queue.drain(..self.same.len());
            }
            self.passed = first.instant + 1;
            let mut sweep = Sweep {
                history: self.builder.history(),
                model: &self.model,
                locks: std::mem::take(&mut self.locks),
                leased: self.leased,
                online: true,
                tied: false,
            };
            if self.model.judges_busy() {
                self.possible.see_instant(&mut sweep, &self.same);
            } else {
                sweep.see_instant(&self.same);
            }
            self.locks = sweep.locks;
            for at in 0..self.same.len() {
                let lock = self.same[at].lock;
                if let Some(Lock { fault: Some(fault), .. }) = self.locks.get(lock as usize)
                    && !self.possible.is_open(lock as usize)
                {
                    tell(self.builder.history(), lock, fault);
                }
            }
        }
    }

    /// Handles busy answers of try-locks that have no explanation at the end.
    fn see_end(&mut self, tell: &mut TellFault<'_>) {
        for (number, lock) in std::mem::take(&mut self.locks).into_iter().enumerate() {
            let fault = lock.finish().filter(|_| !self.possible.may_be_legal(number));
            if let Some(fault) = fault {
                tell(self.builder.history(), number as u32, &fault);
            }
        }
    }

    /// Returns whether the effect of an event depends on an answer that is still to come. Few do: most effects of an answer can be handled
    /// when it comes.
    fn awaits_answer(&self, ordered: &OrderedEvent) -> bool {
        if matches!(self.model, Model::OwnerMutex | Model::Fenced | Model::Election) {
            return false;
        }
        let history = self.builder.history();
        let call = history.event(ordered.position);
        if call.kind != Kind::Invoke || call.mate != NONE || self.builder.has_died(call.process) {
            return false;
        }
        let several = self.same.len() > 1;
        let own = || {
            let lock = &self.locks[ordered.lock as usize];
            lock.own(call.process).map(|place| lock.active[place])
        };
        match (self.model, call.f) {
            // A "not held" ends the whole hold, another answer a part of it, or nothing if it releases too much.
            (Model::Reentrant { .. } | Model::ReentrantFenced { .. } | Model::Semaphore { .. }, F::Release) => {
                let partly = |depth: u32, permits: u64| depth > 1 || permits != u64::from(history.permits(call));
                !self.leased && (several || own().is_some_and(|own| partly(own.depth, own.permits)))
            }
            // A downgrade that is refused has no effect.
            (Model::ReadWrite, F::Acquire) => call.mode == Mode::Read && (several || own().is_some()),
            // An acquire with an unknown outcome may hold, and at one time a release that was answered earlier comes first.
            (Model::ExactTryLock, F::Acquire) => true,
            (Model::TryLock | Model::ExactTryLock, F::Release) => several,
            _ => false,
        }
    }

    /// Forgets the events to which no pending operation and no hold refers.
    #[cold]
    fn forget(&mut self) {
        let history = self.builder.history();
        let mut positions: Vec<u32> = self.queue.iter().map(|waiting| waiting.position).collect();
        positions.extend(self.locks.iter().flat_map(Lock::positions));
        positions.extend(self.possible.all().flat_map(Lock::positions));
        if self.model.is_reentrant() || matches!(self.model, Model::Semaphore { .. }) {
            for (number, lock) in self.locks.iter().enumerate() {
                positions.extend(self.parts_of(history, number, lock));
            }
        }
        let live = |process: &u32| !self.builder.is_gone(*process);
        let locks = self.locks.iter().chain(self.possible.all());
        let lapsed = locks.flat_map(|lock| lock.lapsed.keys().copied());
        let processes: FastSet<u32> = lapsed.filter(live).collect();
        let renumbered = self.builder.keep_only(&positions, &processes);
        self.named = None;
        for waiting in &mut self.queue {
            waiting.position = renumbered.position(waiting.position);
        }
        let before = std::mem::take(&mut self.granted);
        let processes = self.builder.history().processes.len();
        self.granted = vec![GrantedLocks::default(); processes];
        for (process, mut granted) in before.into_iter().enumerate() {
            // A signal ends no hold if its lock is not held, and was not at any time that a signal may still have.
            let (locks, possible) = (&self.locks, &self.possible);
            let concerned = |lock: u32| {
                let mut states = possible.of(lock).chain([&locks[lock as usize]]);
                states.any(|state| state.concerns(process as u32))
            };
            granted.retain(|lock, instant| instant >= self.passed || concerned(lock));
            if let Some(kept) = self.granted.get_mut(renumbered.process(process as u32) as usize) {
                *kept = granted;
            }
        }
        for lock in &mut self.locks {
            lock.renumber(&renumbered);
        }
        self.possible.renumber(&renumbered);
        let kept = self.builder.len() + self.granted.len() + self.locks.len();
        self.limit = self.least.max(kept * 2);
    }

    /// Returns the events of the holds of one lock, if a hold has several acquires.
    fn parts_of(&self, history: &History, number: usize, lock: &Lock) -> Vec<u32> {
        let finder = CounterexampleFinder {
            history,
            model: &self.model,
            lock: number,
        };
        let parts = lock
            .active
            .iter()
            .flat_map(|active| finder.parts(active, (self.passed.saturating_sub(1), u32::MAX)));
        parts.flat_map(|part| part.positions).collect()
    }
}

/// Marks a grant in the queue as lost before its answer.
fn make_void(queue: &mut VecDeque<RankedEvent>, instant: u64, rank: u64) {
    let place = queue.partition_point(|other| (other.instant, other.rank) < (instant, rank));
    if let Some(grant) = queue.get_mut(place).filter(|found| found.rank == rank) {
        grant.void = true;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::random::{LOCKS, random};
    use super::super::{Decision, decisions};
    use super::*;
    use crate::history::event::Process;
    use crate::options::{Budget, Clock};

    /// Lines of random histories have a time of at most this much before that of the line above.
    const LATEST_NS: u64 = 60;

    /// Returns the locks with violations, by a sweep that forgets whenever it stores so many events.
    fn forgetful(history: &History, model: Model, limit: usize) -> Vec<String> {
        let sweep = OnlineSweep::new(history.header().clone(), model, LATEST_NS).expect("a model with owners");
        let (mut sweep, mut told) = (sweep.with_limit(limit), BTreeSet::new());
        let mut tell = |history: &History, lock: u32, _: &Counterexample| {
            told.insert(history.lock_name(lock as usize).to_owned());
        };
        for entry in history.entries() {
            let of_lock = matches!(entry.f, F::Acquire | F::Release | F::Extend | F::Lost | F::Died);
            if of_lock && matches!(entry.process, Process::Client(_)) {
                sweep.push(&entry, &mut tell).expect("well formed");
            }
        }
        sweep.finish(&mut tell);
        told.into_iter().collect()
    }

    #[test]
    fn what_is_forgotten_is_not_needed() {
        let online = |model: &Model| *model != Model::Mutex;
        for model in LOCKS.into_iter().filter(online) {
            let mut violated = 0;
            for seed in 1..=1_500u64 {
                let history = random(seed, model);
                let decisions = decisions(&history, &model, Budget::default(), Clock::still());
                let illegal = decisions
                    .iter()
                    .enumerate()
                    .filter(|(_, decision)| **decision != Decision::Legal);
                let mut expected: Vec<&str> = illegal.map(|(lock, _)| history.lock_name(lock)).collect();
                expected.sort_unstable();
                violated += expected.len();
                for limit in [1, 7] {
                    let found = forgetful(&history, model, limit);
                    assert_eq!(found, expected, "seed {seed} under {model}, forgetting after {limit}");
                }
            }
            assert!(violated > 30, "{model}: {violated}");
        }
    }

    #[test]
    fn windows_that_are_over_are_forgotten() {
        let sweep = OnlineSweep::new(Header::of_locks(["l0"]), Model::OwnerMutex, 100).expect("a model with owners");
        let mut sweep = sweep.with_limit(50);
        let mut tell = |_: &History, _: u32, fault: &Counterexample| panic!("{fault:?}");
        let mut most = 0;
        for round in 0..1_000 {
            let time_ns = round * 1_000_000_000;
            for phase in ["start", "heal"] {
                let raw = format!(r#"{{"f":"partition","phase":"{phase}"}}"#);
                let line = Entry::new(round, time_ns, Process::Nemesis, Kind::Info, F::Nemesis);
                let (name, raw) = (Some("partition"), Some(raw.as_str()));
                sweep.see_nemesis(&Entry { name, raw, ..line });
            }
            for f in [F::Acquire, F::Release] {
                for kind in [Kind::Invoke, Kind::Ok] {
                    let entry = Entry::new(round, time_ns, Process::Client(0), kind, f);
                    assert_eq!(sweep.push(&entry, &mut tell), Ok(()));
                }
            }
            most = most.max(sweep.builder.history().windows().len());
        }
        assert!(most > 1 && most < 100, "{most} windows are remembered");
        sweep.finish(&mut tell);
    }

    /// Clients that never come back, with every outcome that leaves a state.
    #[test]
    fn processes_that_are_gone_are_forgotten() {
        let sweep = OnlineSweep::new(Header::of_locks(["l0"]), Model::OwnerMutex, 100).expect("a model with owners");
        let mut sweep = sweep.with_limit(500);
        let mut tell = |_: &History, _: u32, fault: &Counterexample| panic!("{fault:?}");
        let (mut index, mut most) = (0, 0);
        for process in 0..20_000 {
            let ends = [
                (Kind::Signal, F::Lost),
                (Kind::Signal, F::Died),
                (Kind::Invoke, F::Release),
                (Kind::Invoke, F::Release),
            ];
            let end = ends[process as usize % 4];
            let acquired = [(Kind::Invoke, F::Acquire), (Kind::Ok, F::Acquire), end];
            let unknown = (end.1 == F::Release).then_some((Kind::Info, F::Release));
            let lost = (end.1 == F::Lost).then_some([(Kind::Invoke, F::Acquire), (Kind::Info, F::Acquire)]);
            for (kind, f) in acquired.into_iter().chain(unknown).chain(lost.into_iter().flatten()) {
                index += 1;
                let entry = Entry::new(index, index * 10, Process::Client(process), kind, f);
                assert_eq!(sweep.push(&entry, &mut tell), Ok(()), "event {index}");
            }
            let remembered = [sweep.builder.len(), sweep.granted.len(), sweep.locks[0].lapsed.len()];
            most = most.max(remembered.into_iter().max().unwrap_or(0));
        }
        assert!(most <= 600, "{most} of {index} events are remembered");
        sweep.finish(&mut tell);
    }
}
