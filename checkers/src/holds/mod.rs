//! Certain holds: the intervals in which a process certainly had a lock by its own answers and signals.
//!
//! A certain hold lasts from the reply to the acquire to the first of its release call, the time of a lost signal, and the death of its
//! process. It is never longer than the true hold. The server's grants are not considered here; see `grants`.

mod building;
mod own;

use crate::history::event::Kind;
use crate::history::names::{NONE, Symbol};
use crate::history::{F, History, Mode, PackedEvent};
use crate::model::Model;

/// The reason for the end of a certain hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// It had not ended at the end of the history.
    Open,
    /// Its own release call, whatever the answer.
    Released,
    /// A signal of the client library.
    Lost,
    /// The death of its process.
    Died,
    /// An acquire of the same process in another mode.
    Changed,
}

/// The reason for a `lost` signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockLoss {
    /// Its process was told.
    Told,
    /// A call before it has an unknown outcome: such a process never acts again, so its application gives up the lock.
    OutcomeUnknown,
    /// Nobody was told: no later renewal was answered `ok`, in a history of renewals.
    NotRenewed,
}

impl LockLoss {
    /// Returns that of the signal at a position.
    pub(crate) fn at(history: &History, signal: u32) -> Self {
        if history.is_renewed {
            return Self::NotRenewed;
        }
        let process = history.event(signal).process;
        let mut loss = Self::Told;
        let is_unknown = |f, kind| kind == Kind::Info && f != F::Extend;
        history.events.each_of(is_unknown, |position, event| {
            if event.process == process && position < signal {
                loss = Self::OutcomeUnknown;
            }
        });
        loss
    }
}

/// One certain hold, for reports.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CertainHold<'a> {
    /// The name of the lock.
    pub lock: &'a str,
    /// The process.
    pub process: u32,
    /// The client of the process.
    pub client: u32,
    /// Whether it shared the lock with readers.
    pub mode_read: bool,
    /// The time of the call, in nanoseconds of the history.
    pub asked_ns: u64,
    /// The time of the answer.
    pub from_ns: u64,
    /// The time of its end; the end of the history for an open hold.
    pub to_ns: u64,
    /// The reason for its end.
    pub ended: Ended,
    /// The token in its answer.
    pub token: Option<u64>,
    /// The server's name for the owner.
    pub owner: Option<&'a str>,
    /// The index of the reply that began it.
    pub got_index: u64,
    /// The index of the event that ended it.
    pub end_index: Option<u64>,
}

/// One certain hold, in 34 bytes, since holds are a third of the memory for a large history. `from` and `to` are instants of the history
/// (see `History::instant`).
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(2))]
pub(crate) struct LockHold {
    pub from: u64,
    /// `u64::MAX` while it is open.
    pub to: u64,
    pub process: u32,
    /// Positions of the reply, and of the event that ended it.
    pub got: u32,
    pub end: u32,
    pub permits: u32,
    pub mode: Mode,
    pub ended: Ended,
}

impl LockHold {
    /// Returns the number of its lock by a look-up; [`Holds::with_locks`] has the numbers of all holds.
    #[inline]
    pub(crate) fn lock(&self, history: &History) -> usize {
        let lock = history.lock_number(history.event(self.got));
        lock.expect("an acquire is of a lock")
    }

    /// Returns the token of the reply.
    pub(crate) fn token(&self, history: &History) -> Option<u64> {
        history.token_at(self.got)
    }

    /// Returns the server's name for the owner, from the reply or else from the call; `NONE` if neither has it.
    pub(crate) fn owner(&self, history: &History) -> Symbol {
        let reply = history.event(self.got);
        match history.owner(reply) {
            NONE => history.owner(history.event(reply.mate)),
            owner => owner,
        }
    }

    /// Returns the position of the call.
    #[inline]
    pub(crate) fn call(&self, history: &History) -> u32 {
        history.events.mate(self.got)
    }

    /// Returns the time of the call, in nanoseconds.
    #[inline]
    pub(crate) fn asked_ns(&self, history: &History) -> u64 {
        history.events.time(self.call(history))
    }

    /// Returns whether it contains no instant.
    pub(crate) fn is_empty(&self) -> bool {
        self.to <= self.from
    }

    /// Returns whether it ends more than a length after an instant.
    pub(crate) fn lasts_beyond(&self, instant: u64, length: u64) -> bool {
        self.to > instant.saturating_add(length)
    }
}

/// The place of a process's hold among the holds of its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct HoldPlace {
    lock: u32,
    from: u64,
    place: u32,
}

/// All certain holds: for each lock, by beginning.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holds {
    pub by_lock: Vec<Vec<LockHold>>,
    /// The holds of each process, by lock and beginning; only for a history with writes.
    by_process: Vec<Vec<HoldPlace>>,
}

impl Holds {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LockHold> {
        self.by_lock.iter().flatten()
    }

    /// Returns all holds, each with the number of its lock.
    pub(crate) fn with_locks(&self) -> impl Iterator<Item = (usize, &LockHold)> {
        let by_lock = self.by_lock.iter().enumerate();
        by_lock.flat_map(|(lock, holds)| holds.iter().map(move |hold| (lock, hold)))
    }

    pub(crate) fn count(&self) -> usize {
        self.by_lock.iter().map(Vec::len).sum()
    }

    /// Returns the hold of a process on a lock that contains an instant, ends not included.
    pub(crate) fn around(&self, lock: usize, process: u32, instant: u64) -> Option<&LockHold> {
        let own = self.by_process.get(process as usize)?;
        let after = own.partition_point(|hold| (hold.lock as usize, hold.from) < (lock, instant));
        let before = own[..after].last().filter(|before| before.lock as usize == lock)?;
        let hold = &self.by_lock[lock][before.place as usize];
        (hold.to > instant).then_some(hold)
    }

    fn index_by_process(&mut self, processes: usize) {
        self.by_process = vec![Vec::new(); processes];
        for (lock, holds) in self.by_lock.iter().enumerate() {
            for (place, hold) in holds.iter().enumerate() {
                self.by_process[hold.process as usize].push(HoldPlace {
                    lock: lock as u32,
                    from: hold.from,
                    place: place as u32,
                });
            }
        }
        for own in &mut self.by_process {
            own.sort_unstable();
        }
    }
}

impl History {
    /// Returns the certain holds of all locks, for timelines: by lock, then by beginning. They are those of a check without options: under
    /// the model of the header, or a reentrant one if the lock promises that.
    pub fn certain_holds(&self) -> Vec<CertainHold<'_>> {
        let holds = Holds::of(self, &Model::of_history(self));
        holds.iter().map(|hold| self.show(hold)).collect()
    }

    pub(crate) fn show(&self, hold: &LockHold) -> CertainHold<'_> {
        CertainHold {
            lock: self.lock_name(hold.lock(self)),
            process: self.processes[hold.process as usize],
            client: self.client_of(hold.process),
            mode_read: hold.mode == Mode::Read,
            asked_ns: hold.asked_ns(self),
            from_ns: self.ns(hold.from),
            to_ns: self.ns(hold.to),
            ended: hold.ended,
            token: hold.token(self),
            owner: self.name(hold.owner(self)),
            got_index: self.index(hold.got),
            end_index: (hold.end != NONE).then(|| self.index(hold.end)),
        }
    }

    /// Returns the time of an instant; the end of the history for an open end.
    pub(crate) fn ns(&self, instant: u64) -> u64 {
        match self.order {
            crate::history::OrderBasis::Time => instant.min(self.end_ns),
            crate::history::OrderBasis::Position => self
                .events
                .get(instant as usize)
                .map_or(self.end_ns, |event| event.time),
        }
    }

    /// Returns the permits of an acquire or release: in the reply, in its call, or 1.
    pub(crate) fn permits(&self, event: PackedEvent) -> u32 {
        if !self.says_permits {
            return 1;
        }
        let said = |event: PackedEvent| Some(self.rare(event).permits).filter(|permits| *permits != NONE);
        said(event).or_else(|| said(self.reply(event)?)).unwrap_or(1)
    }
}
