//! A bottleneck: bandwidth that the connections of several links share, as those behind one router do. The rate of a
//! [`Flow`](crate::Flow) is for each connection alone.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tokio::time::Instant;

/// A connection takes at most the bytes of this part of a second, then another one has its turn.
const TURNS_PER_SECOND: u32 = 100;
/// A bottleneck that was not used for a while makes up for at most this much of it.
const CATCH_UP: Duration = Duration::from_millis(20);

/// One direction of a bottleneck.
#[derive(Debug)]
pub struct Bottleneck {
    bytes_per_second: u32,
    /// The time at which all bytes that were taken have passed.
    busy_until: Mutex<Instant>,
}

impl Bottleneck {
    pub fn new(bytes_per_second: u32, now: Instant) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            busy_until: Mutex::new(now),
        }
    }

    /// Returns how many bytes may pass now. The error is the time at which to ask again.
    pub fn turn(&self, now: Instant) -> Result<usize, Instant> {
        let busy_until = *self.busy_until();
        if busy_until > now {
            return Err(busy_until);
        }
        Ok((self.bytes_per_second / TURNS_PER_SECOND).max(1) as usize)
    }

    /// Notes that bytes pass, at most those of a turn.
    pub fn pass(&self, now: Instant, bytes: usize) {
        let time = Duration::from_secs_f64(bytes as f64 / f64::from(self.bytes_per_second));
        let mut busy_until = self.busy_until();
        *busy_until = (*busy_until).max(now - CATCH_UP) + time;
    }

    fn busy_until(&self) -> MutexGuard<'_, Instant> {
        let locked = self.busy_until.lock();
        locked.expect("no one panics while holding a bottleneck")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_share_it_get_its_rate_together() {
        let start = Instant::now();
        let bottleneck = Bottleneck::new(10_000, start);
        let mut taken = 0;
        for ms in 0..2000 {
            let now = start + Duration::from_millis(ms);
            for _connection in 0..5 {
                let turn = bottleneck.turn(now).unwrap_or(0);
                bottleneck.pass(now, turn);
                taken += turn;
            }
        }
        assert!((19_500..=20_400).contains(&taken), "{taken} bytes in 2 s");
    }

    #[test]
    fn a_turn_takes_the_time_of_the_bytes_that_pass_in_it() {
        let start = Instant::now();
        let bottleneck = Bottleneck::new(10_000, start);
        assert_eq!([bottleneck.turn(start), bottleneck.turn(start)], [Ok(100); 2]);
        bottleneck.pass(start, 50);
        assert_eq!(bottleneck.turn(start), Err(start + Duration::from_millis(5)));
    }
}
