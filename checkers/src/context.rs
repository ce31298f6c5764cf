//! The context of a check: the history and its derived facts, each derived once.
//!
//! These are certain holds, the server's grants, fault windows, overlaps of holds, and the bounds that apply.

use std::sync::OnceLock;

use crate::extensions::Extensions;
use crate::finding::Property;
use crate::grants::{Grants, ServerGrant};
use crate::history::event::Bounds;
use crate::history::names::{FastMap, FastSet, NONE, Symbol};
use crate::history::{BusyTime, History, Mode, OrderBasis, PackedEvent, Standstill, Window, is_client};
use crate::holds::{Holds, LockHold};
use crate::limits;
use crate::model::Model;
use crate::observer_sight::ObserverSight;
use crate::options::Options;
use crate::overlaps::{self, Conflict, Overlap};
use crate::releases::Releases;
use crate::standstill;
use crate::watched::{self, NotWatched};

/// A span without an excuse for a lock that makes no progress; see [`crate::calm`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CalmSpan {
    pub from_ns: u64,
    pub to_ns: u64,
    /// Time that is added to the bound: an earlier fault may have left a lease behind.
    pub patience_ns: u64,
    /// Time that is added for connections that are silent because of TCP retransmission.
    pub retransmission_ns: u64,
}

/// The history and the facts that are derived from it.
pub(crate) struct Context<'a> {
    pub history: &'a History,
    pub options: &'a Options,
    pub model: Model,
    pub holds: Holds,
    pub grants: Grants,
    /// The reason why no hold can be compared with the grants; `None` when holds can be.
    pub not_watched: Option<NotWatched>,
    pub windows: Vec<Window>,
    pub standstills: Vec<Standstill>,
    /// The beginning of the recovery, if a phase records it.
    recovery_ns: Option<u64>,
    /// Filled by [`crate::calm::spans`].
    pub calm: OnceLock<Vec<CalmSpan>>,
    /// The times in which the machine was overloaded.
    pub busy: BusyTime,
    /// Overlaps of certain holds, the longest first. Many violations follow from one of them.
    pub overlaps: Vec<Overlap>,
    /// Overlaps that are no violations, since a standstill explains them.
    pub excused: Vec<Overlap>,
    /// The overlaps by their first hold, the longest first: each is one violation of HL001.
    pub conflicts: Vec<Conflict>,
    /// The replies that began the holds of those overlaps.
    pub overlapping: FastSet<u32>,
    died: OnceLock<Vec<u64>>,
    asks: OnceLock<Vec<Vec<u32>>>,
    hold_places: OnceLock<FastMap<u32, u32>>,
    releases: OnceLock<Releases>,
    extensions: OnceLock<Extensions>,
    sight: OnceLock<ObserverSight>,
    pub bounds: Bounds,
    pub lease_ns: u64,
    /// The largest error of a stamp, in nanoseconds; 0 where the order of the file counts.
    pub clock_error_ns: u64,
    /// The step of the clients' coarse clock, in nanoseconds: two events may be closer by that than their times; 0 where the clock is fine.
    tick_ns: u64,
}

impl<'a> Context<'a> {
    /// Returns the bound of HL005, with the error of a length between stamps of two clocks, in nanoseconds.
    pub(crate) fn progress_ns(&self) -> u64 {
        limits::ns(self.bounds.progress_ms.unwrap_or(limits::PROGRESS_MS)) + self.apart_ns()
    }

    /// Returns the largest difference between the stamps of two clocks for one instant, in nanoseconds.
    pub(crate) fn apart_ns(&self) -> u64 {
        2 * self.clock_error_ns
    }

    /// Returns the largest error of a length between two stamps, whose clocks may differ and be coarse, in nanoseconds.
    pub(crate) fn inexact_ns(&self) -> u64 {
        self.apart_ns() + self.tick_ns
    }

    pub(crate) fn new(history: &'a History, options: &'a Options) -> Self {
        let model = options.model_of(history);
        let (asked, header) = (&options.bounds, &history.header.bounds);
        let holds = Holds::of(history, &model);
        let grants = Grants::of(history, &holds, &model);
        let comparable = watched::comparable(history, &holds, &grants);
        let grants = grants.compared(history, &holds, comparable);
        let standstills = history.standstills();
        let lease_ns = limits::ns(history.header.lease_ms.unwrap_or(limits::LEASE_MS));
        let clock_error_ns = match history.order {
            OrderBasis::Time => limits::at_most_a_length(options.clock_error),
            OrderBasis::Position => 0,
        };
        let found = overlaps::overlaps(history, &model, &holds, clock_error_ns);
        let is_excused = |overlap: &Overlap| standstill::explains(&standstills, overlap, (history, &grants), lease_ns);
        let (excused, overlaps): (Vec<Overlap>, Vec<Overlap>) = found.into_iter().partition(is_excused);
        let replies = overlaps
            .iter()
            .flat_map(|overlap| [overlap.first.got, overlap.second.got]);
        Self {
            history,
            options,
            model,
            not_watched: watched::why_not(history, &holds, &grants),
            holds,
            grants,
            windows: history.windows(),
            standstills,
            recovery_ns: recovery_ns(history),
            calm: OnceLock::new(),
            busy: BusyTime::of(history),
            overlapping: replies.collect(),
            conflicts: overlaps::conflicts(history, &overlaps),
            overlaps,
            excused,
            died: OnceLock::new(),
            asks: OnceLock::new(),
            hold_places: OnceLock::new(),
            releases: OnceLock::new(),
            extensions: OnceLock::new(),
            sight: OnceLock::new(),
            bounds: Bounds {
                herd: asked.herd.or(header.herd),
                requests: asked.requests.or(header.requests),
                progress_ms: asked.progress_ms.or(header.progress_ms),
                silent_ms: asked.silent_ms.or(header.silent_ms),
                passed_over: asked.passed_over.or(header.passed_over),
                starvation_ms: asked.starvation_ms.or(header.starvation_ms),
            },
            lease_ns,
            clock_error_ns,
            tick_ns: tick_ns(history),
        }
    }

    /// Returns the beginning of the recovery, unless it was before a time.
    pub(crate) fn recovery_after(&self, ns: u64) -> Option<u64> {
        self.recovery_ns.filter(|recovery_ns| *recovery_ns >= ns)
    }

    /// Returns the heal of a window, or the beginning of the recovery where the heal is not recorded.
    pub(crate) fn heal_ns(&self, window: &Window) -> Option<u64> {
        window.heal_ns.or_else(|| self.recovery_after(window.start_ns))
    }

    /// Returns the death of a process, in nanoseconds; `u64::MAX` for a process that did not die.
    #[inline]
    pub(crate) fn died_ns(&self, process: u32) -> u64 {
        self.died.get_or_init(|| self.history.deaths())[process as usize]
    }

    /// Returns the positions of the acquire calls of a lock, in order: a `Wait` is ten times as large.
    pub(crate) fn asks_of(&self, lock: usize) -> &[u32] {
        let all = self.asks.get_or_init(|| {
            let mut all = vec![Vec::new(); self.history.locks.len()];
            self.history.each_ask(|lock, position, _| all[lock].push(position));
            all
        });
        &all[lock]
    }

    /// Returns the last fault window that started at or before a time.
    pub(crate) fn window_before(&self, ns: u64) -> Option<&Window> {
        self.windows.iter().rev().find(|window| window.start_ns <= ns)
    }

    /// Returns the windows of an interval that have evidence of an effect on a client by its end, the last first.
    pub(crate) fn windows_that_touched(&self, client: u32, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Window> {
        let windows = self.windows_in(from_ns, to_ns);
        windows.filter(move |window| window.touched_client(client) && window.acted_ns() <= to_ns)
    }

    /// Returns the last of them that stopped the client's process, or else the last one: nothing else matters to a stopped process.
    pub(crate) fn window_that_touched(&self, client: u32, from_ns: u64, to_ns: u64) -> Option<&Window> {
        let touched = || self.windows_that_touched(client, from_ns, to_ns);
        touched().find(|window| window.stops()).or_else(|| touched().next())
    }

    /// Returns whether an event of a client was before one of another client, whatever the errors of their stamps are. Two events of one time
    /// have no order.
    pub(crate) fn is_before(&self, earlier: u32, later: u32) -> bool {
        let instant = |position: u32| self.history.instant(position);
        instant(earlier).saturating_add(self.apart_ns()) < instant(later)
    }

    /// Returns whether a reply began a hold of an overlap that is excused.
    pub(crate) fn is_excused(&self, got: u32) -> bool {
        self.excused.iter().any(|overlap| overlap.has(got))
    }

    /// Returns the call of the last release of a hold's lock by another process that was pending at `ns` or was answered at most `lag_ns`
    /// before.
    pub(crate) fn release_of_another(&self, hold: &LockHold, ns: u64, lag_ns: u64) -> Option<u32> {
        self.releases_of_others(hold, ns, lag_ns).next()
    }

    fn releases_of_others(&self, hold: &LockHold, ns: u64, lag_ns: u64) -> impl Iterator<Item = u32> {
        let died_ns = |process| self.died_ns(process);
        let releases = self.releases.get_or_init(|| Releases::of(self.history, died_ns));
        releases.of_others(hold.lock(self.history), hold.process, ns, lag_ns)
    }

    /// Returns the call of the last such release that may have removed the grant of the hold at `ns`.
    pub(crate) fn release_that_removed(&self, hold: &LockHold, ns: u64) -> Option<u32> {
        let mut releases = self.releases_of_others(hold, ns, limits::OBSERVER_LAG_NS);
        releases.find(|call| !self.handed_over(*call, hold))
    }

    /// Returns whether a release gave the lock to a hold: it was answered before the hold began, and a request ended its own grant before the
    /// grant of the hold. One request does not remove both.
    fn handed_over(&self, call: u32, hold: &LockHold) -> bool {
        let history = self.history;
        let release = history.event(call);
        let answered_ns = history.reply(release).map_or(u64::MAX, |reply| reply.time);
        let granted = self.grants.of_hold(history, hold).map_or(NONE, |grant| grant.granted);
        if answered_ns > history.ns(hold.from) || granted == NONE {
            return false;
        }
        let mut holds = self.holds.by_lock[hold.lock(history)].iter();
        let own = holds.find(|other| other.end == call);
        let own = own.and_then(|own| self.grants.of_hold(history, own));
        own.is_some_and(|own| {
            let ended_ns = own.revoked_ns(history);
            own.was_deleted(history) && ended_ns >= Some(release.time) && own.revoked < granted
        })
    }

    /// Returns the last hold of a grant.
    pub(crate) fn hold_of(&self, grant: &ServerGrant) -> Option<&LockHold> {
        let places = self.hold_places.get_or_init(|| {
            let holds = self.holds.by_lock.iter().flat_map(|holds| (0..).zip(holds));
            let grant = |hold: &LockHold| self.grants.of_hold(self.history, hold);
            let known = holds.filter_map(|(place, hold)| Some((grant(hold)?.first(), place)));
            known.collect()
        });
        let place = places.get(&grant.first())?;
        Some(&self.holds.by_lock[grant.lock as usize][*place as usize])
    }

    /// Returns the positions of the `ok` answers to extensions of a hold.
    pub(crate) fn extensions_of(&self, hold: &LockHold) -> impl DoubleEndedIterator<Item = u32> {
        let extensions = self.extensions.get_or_init(|| Extensions::of(self.history));
        extensions.of_hold(self.history, hold)
    }

    /// Returns the last `ok` answer to an extension of a hold up to a time.
    pub(crate) fn last_extension(&self, hold: &LockHold, ns: u64) -> Option<PackedEvent> {
        let answers = self.extensions_of(hold).map(|answer| self.history.event(answer));
        answers.rev().find(|answer| answer.time <= ns)
    }

    /// Returns the spans and the delays of the observer's sight.
    pub(crate) fn sight(&self) -> &ObserverSight {
        self.sight
            .get_or_init(|| ObserverSight::of(self.history, (&self.holds, &self.grants), &self.standstills, &self.busy))
    }

    /// Returns whether the history records the length of a lease, or that there is none.
    pub(crate) fn is_lease_known(&self) -> bool {
        let header = &self.history.header;
        header.lease_ms.is_some() || header.promises.lease == Some(false)
    }

    /// Returns whether a lease may have ended `ns` after it began: clocks and renewals are not exact.
    pub(crate) fn may_be_over(&self, ns: u64) -> bool {
        ns >= self.lease_ns / 100 * limits::LEASE_SHARE_PERCENT
    }

    /// Returns the least time that is left of a renewed lease, however late its renewal is: nothing that happens to a client shortens it.
    pub(crate) fn surely_left_ns(&self) -> u64 {
        self.least_lease_ns() / 100 * limits::RENEWED_SHARE_PERCENT
    }

    /// Returns the shortest possible lease, in nanoseconds, also for a history that does not record it.
    pub(crate) fn least_lease_ns(&self) -> u64 {
        match self.is_lease_known() {
            true => self.lease_ns,
            false => limits::ns(limits::LEAST_LEASE_MS),
        }
    }

    /// Returns the longest possible lease, in nanoseconds, also for a history that does not record it.
    pub(crate) fn longest_lease_ns(&self) -> u64 {
        match self.is_lease_known() {
            true => self.lease_ns,
            false => limits::ns(limits::MOST_LEASE_MS),
        }
    }

    /// Returns the latest time at which a grant certainly existed: its end by the observer's lines, which may come late or never, or the
    /// time at which another client had the lock alone. Of a grant whose end the observer missed, only the beginning is certain.
    pub(crate) fn stood_until(&self, lock: usize, grant: &ServerGrant) -> u64 {
        let history = self.history;
        let told_ns = grant.revoked_ns(history).unwrap_or(history.end_ns);
        let Some(granted_ns) = grant.granted_ns(history) else {
            return told_ns;
        };
        if self.grants.is_end_missed(grant) {
            return granted_ns;
        }
        if matches!(self.model, Model::Semaphore { .. }) {
            return told_ns;
        }
        // a grant that began before, and was answered late, is no evidence about the time after it
        let was_before = |owner: Symbol, asked_ns: u64| {
            let mut of_it = self.grants.of_lock(lock).iter().filter(|other| other.owner == owner);
            of_it.any(|other| {
                let ns = other.granted_ns(history);
                ns.is_some_and(|ns| (asked_ns..granted_ns).contains(&ns))
            })
        };
        let answered_ns = |hold: &LockHold| history.event(hold.got).time;
        let holds = &self.holds.by_lock[lock];
        let later = &holds[holds.partition_point(|hold| answered_ns(hold) < granted_ns)..];
        let mut later = later.iter().take_while(|hold| answered_ns(hold) < told_ns);
        let alone = later.find(|hold| {
            let owner = hold.owner(history);
            let of_another = hold.mode == Mode::Write && owner != NONE && owner != grant.owner;
            of_another && !was_before(owner, hold.asked_ns(history))
        });
        alone.map_or(told_ns, answered_ns)
    }

    /// Returns whether a fault of an interval may affect a client: each does but those that name other clients only. A standstill affects
    /// every client.
    pub(crate) fn fault_near(&self, client: u32, from_ns: u64, to_ns: u64) -> bool {
        let concerns = |window: &Window| {
            let targets = &window.started.targets;
            let others = !targets.is_empty() && targets.iter().all(|target| is_client(target));
            // a client with a wrong clock takes a lock that another client's lease still protects
            !others || window.names_client(client) || window.fault == "clock"
        };
        let stood_still = self.standstills_in(from_ns, to_ns).next().is_some();
        stood_still || self.windows_in(from_ns, to_ns).any(concerns)
    }

    /// Returns the ends of the harness's standstills that touch a span, in nanoseconds.
    pub(crate) fn harness_went_on(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = u64> {
        let stood = self.standstills_in(from_ns, to_ns);
        stood.filter(|span| span.server.is_none()).map(|span| span.to_ns)
    }

    /// Returns the standstills that may touch an interval.
    pub(crate) fn standstills_in(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Standstill> {
        let stood = self.standstills.iter();
        stood.filter(move |span| span.touches(from_ns, to_ns))
    }

    /// Returns the windows of an interval that may affect a client, the last first: those on servers, and those that name it.
    pub(crate) fn windows_that_concern(&self, client: u32, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Window> {
        let windows = self.windows_in(from_ns, to_ns);
        windows.filter(move |window| !window.is_of_clients() || window.names_client(client))
    }

    /// Returns whether the history has no fault and no standstill.
    pub(crate) fn is_undisturbed(&self) -> bool {
        self.windows.is_empty() && self.standstills.is_empty()
    }

    /// Returns the end of a stop of a client's process that touches an interval, in nanoseconds; `None` without a stop.
    pub(crate) fn stopped_until(&self, client: u32, from_ns: u64, to_ns: u64) -> Option<u64> {
        let stops = self
            .windows_in(from_ns, to_ns)
            .filter(|window| window.stops() && window.names_client(client));
        stops.map(|window| window.heal_ns.unwrap_or(u64::MAX)).max()
    }

    /// Returns the milliseconds for which the schedule lengthened a hold, so that a fault had a holder as its target.
    pub(crate) fn kept_working_ms(&self, hold: &LockHold) -> Option<u64> {
        let client = self.history.client_of(hold.process);
        let mut begun = self.windows_begun_in(self.history.ns(hold.from), self.history.ns(hold.to));
        begun.find_map(|window| window.kept_working_ms(client))
    }

    /// Returns the windows that may have begun to act in an interval, the last first.
    pub(crate) fn windows_begun_in(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Window> {
        let windows = self.windows.iter().rev();
        windows.filter(move |window| window.begins_in(from_ns, to_ns))
    }

    /// Returns the windows that may touch an interval, the last first.
    pub(crate) fn windows_in(&self, from_ns: u64, to_ns: u64) -> impl Iterator<Item = &Window> {
        let windows = self.windows.iter().rev();
        windows.filter(move |window| window.may_touch(from_ns, to_ns))
    }

    /// Returns the id of the overlap of a hold that began with the reply `got`.
    pub(crate) fn root_of(&self, got: u32) -> Option<String> {
        let overlap = self.overlaps.iter().find(|overlap| overlap.has(got))?;
        let is_of_it = |conflict: &Conflict| conflict.opening.first.got == overlap.first.got;
        let place = self.conflicts.iter().position(is_of_it)?;
        Some(Property::Hl001.violation_id(place))
    }

    /// Returns whether an acquire succeeded: without one, nothing is known about locks.
    pub(crate) fn has_acquires(&self) -> bool {
        self.history.counts.acquires_ok > 0
    }
}

fn recovery_ns(history: &History) -> Option<u64> {
    let phases = history.phases();
    let recovery = phases.iter().rev().find(|phase| phase.is_recovery());
    recovery.map(|phase| phase.start_ns)
}

/// Returns the largest step of [`limits::TICKS_NS`] of which all times of clients are multiples.
fn tick_ns(history: &History) -> u64 {
    let is_of_a_client = |event: &PackedEvent| (event.process as usize) < history.processes.len();
    let times = || history.events.iter().filter(is_of_a_client).map(|event| event.time);
    let are_whole = |tick: &u64| times().all(|time| time.is_multiple_of(*tick));
    limits::TICKS_NS.into_iter().find(are_whole).unwrap_or(0)
}
