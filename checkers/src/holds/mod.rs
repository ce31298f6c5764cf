//! Certain holds: when a process surely believed that it held a lock.
//!
//! From the reply to its acquire to the first of: its release call, the time of a lost signal, its death. Never longer
//! than the truth. Whether the server thought so, too, is not asked here; see `grants`.

mod building;
mod own;

use crate::history::names::{NONE, Symbol};
use crate::history::{History, Mode, PackedEvent};
use crate::model::Model;

/// Why a certain hold ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ended {
    /// It did not, as far as the history goes.
    Open,
    /// By its own release call, whatever the answer.
    Released,
    /// By a signal of the client library.
    Lost,
    /// With its process.
    Died,
    /// By an acquire of the same process in another mode.
    Changed,
}

/// One certain hold, for reports.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct CertainHold<'a> {
    /// The name of the lock.
    pub lock: &'a str,
    /// The process that held.
    pub process: u32,
    /// Its client.
    pub client: u32,
    /// Whether it shared the lock with readers.
    pub mode_read: bool,
    /// When it called, in nanoseconds of the history.
    pub asked_ns: u64,
    /// When it was answered.
    pub from_ns: u64,
    /// The end of the history when it is open.
    pub to_ns: u64,
    /// How it ended.
    pub ended: Ended,
    /// The token that came with it.
    pub token: Option<u64>,
    /// The server's name for the owner.
    pub owner: Option<&'a str>,
    /// Index of the reply that began it.
    pub got_index: u64,
    /// Index of the event that ended it.
    pub end_index: Option<u64>,
}

/// One certain hold, in 34 bytes: of a large history they are a third of the memory. `from` and `to` are instants of the history
/// (see `History::instant`).
#[derive(Debug, Clone, Copy)]
#[repr(C, packed(2))]
pub(crate) struct LockHold {
    pub from: u64,
    /// `u64::MAX` while it is open.
    pub to: u64,
    pub process: u32,
    /// Positions of the reply, and of what ended it.
    pub got: u32,
    pub end: u32,
    pub permits: u32,
    pub mode: Mode,
    pub ended: Ended,
}

impl LockHold {
    /// The number of its lock: looked up, and so for few holds. [`Holds::with_locks`] has it for all.
    #[inline]
    pub(crate) fn lock(&self, history: &History) -> usize {
        let lock = history.lock_number(history.event(self.got));
        lock.expect("an acquire is of a lock")
    }

    /// The token that came with the reply.
    pub(crate) fn token(&self, history: &History) -> Option<u64> {
        history.token_at(self.got)
    }

    /// The server's name for the owner, by the reply or else by the call; `NONE` where neither says.
    pub(crate) fn owner(&self, history: &History) -> Symbol {
        let reply = history.event(self.got);
        match history.owner(reply) {
            NONE => history.owner(history.event(reply.mate)),
            owner => owner,
        }
    }

    /// The position of the call.
    #[inline]
    pub(crate) fn call(&self, history: &History) -> u32 {
        history.events.mate(self.got)
    }

    /// When its process called, in nanoseconds.
    #[inline]
    pub(crate) fn asked_ns(&self, history: &History) -> u64 {
        history.events.time(self.call(history))
    }

    /// Whether there was an instant in which it was certain.
    pub(crate) fn is_empty(&self) -> bool {
        self.to <= self.from
    }
}

/// Where a hold of a process is: in the holds of its lock.
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
    /// Each process's holds, by lock and beginning; there only when the history has writes.
    by_process: Vec<Vec<HoldPlace>>,
}

impl Holds {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &LockHold> {
        self.by_lock.iter().flatten()
    }

    /// The same, each with the number of its lock.
    pub(crate) fn with_locks(&self) -> impl Iterator<Item = (usize, &LockHold)> {
        let by_lock = self.by_lock.iter().enumerate();
        by_lock.flat_map(|(lock, holds)| holds.iter().map(move |hold| (lock, hold)))
    }

    pub(crate) fn count(&self) -> usize {
        self.by_lock.iter().map(Vec::len).sum()
    }

    /// The hold of a process on a lock that contains an instant, ends not included.
    pub(crate) fn around(&self, lock: usize, process: u32, instant: u64) -> Option<&LockHold> {
        let own = self.by_process.get(process as usize)?;
        let after = own.partition_point(|hold| (hold.lock as usize, hold.from) < (lock, instant));
        let before = own[..after].last().filter(|before| before.lock as usize == lock)?;
        let hold = &self.by_lock[lock][before.place as usize];
        (hold.to > instant).then_some(hold)
    }

    /// What is left of each hold without so much of its beginning and of its end; those of which nothing is left are left out.
    pub(crate) fn narrowed(&self, by: u64) -> Self {
        let narrow = |hold: &LockHold| {
            let to = match hold.to {
                u64::MAX => u64::MAX,
                to => to.saturating_sub(by),
            };
            let from = hold.from.saturating_add(by);
            (from < to).then_some(LockHold { from, to, ..*hold })
        };
        let by_lock = self.by_lock.iter();
        let by_lock = by_lock.map(|holds| holds.iter().filter_map(narrow).collect());
        Self {
            by_lock: by_lock.collect(),
            by_process: Vec::new(),
        }
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
    /// Certain holds of all locks under the model that the header names, for timelines: by lock, then by beginning.
    pub fn certain_holds(&self) -> Vec<CertainHold<'_>> {
        let holds = Holds::of(self, &Model::of_header(&self.header));
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

    /// The time of an instant; the end of the history for an open end.
    pub(crate) fn ns(&self, instant: u64) -> u64 {
        match self.order {
            crate::history::OrderBasis::Time => instant.min(self.end_ns),
            crate::history::OrderBasis::Position => self
                .events
                .get(instant as usize)
                .map_or(self.end_ns, |event| event.time),
        }
    }

    /// Permits that an acquire or release is about: said by the reply, by its call, or 1.
    pub(crate) fn permits(&self, event: PackedEvent) -> u32 {
        if !self.says_permits {
            return 1;
        }
        let said = |event: PackedEvent| Some(self.rare(event).permits).filter(|permits| *permits != NONE);
        said(event).or_else(|| said(self.reply(event)?)).unwrap_or(1)
    }
}
