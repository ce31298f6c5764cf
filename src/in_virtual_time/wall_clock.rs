//! The wall clock of a family, which a fault can step ([`FamilyClock`]).

use std::io;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicI64, AtomicU64};

use harness_simulation::World;

use super::memory::SharedPage;
use crate::clock::GroundClock;
use crate::wall_clock::WallClockControl;

/// A wall clock that outlives the processes that see it: a process that is started again sees the same.
#[derive(Debug, Default)]
pub struct FamilyClock {
    /// Its reading when the clock of the world is 0, in nanoseconds since 1970.
    pub epoch: i64,
    offset: AtomicI64,
    shifted: AtomicU64,
}

impl FamilyClock {
    /// Returns the wall clock of a machine on which no fault acts.
    pub fn new(world: World) -> Self {
        let now = GroundClock::Virtual(world).since_1970().as_nanos() as i64;
        Self {
            epoch: now - world.clock_ns() as i64,
            ..Self::default()
        }
    }

    /// Writes the clock as it is now to the page of the family.
    pub fn show_to(&self, page: &SharedPage) {
        page.epoch.store(self.epoch, SeqCst);
        page.offset.store(self.offset.load(SeqCst), SeqCst);
    }

    /// Adds the readings of the stepped clock that the page has counted.
    pub fn hear_of(&self, page: &SharedPage) {
        self.shifted.fetch_add(page.shifted.swap(0, SeqCst), SeqCst);
    }
}

impl WallClockControl for FamilyClock {
    fn step(&self, nanoseconds: i64) -> io::Result<()> {
        self.offset.fetch_add(nanoseconds, SeqCst);
        Ok(())
    }

    fn shifted_readings(&self) -> u64 {
        self.shifted.load(SeqCst)
    }
}
