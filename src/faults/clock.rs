//! `clock`: the wall clock of one process is stepped, forward or back, and stepped back when the window heals.
//!
//! Only the time of day changes, not the monotonic clocks. A lock that compares deadlines of several machines must break, and so
//! must one whose server counts a time to live by the time of day.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::fault::{not_attached, not_simulated};
use super::{
    Acquires, ActiveFault, Affected, Fault, FaultDefinition, FaultFamily, HealOnDrop, Healed, Inject, Injected,
    Injection, InjectionContext, Needs, NotInjected, Pace, Planned, Shape, Target, parse_duration,
};
use crate::backends;
use crate::evidence::{Evidence, EvidenceCounter};
use crate::wall_clock::{self, WallClockControl};

pub struct ClockFault;

/// The argument for the clock of a server.
const SERVER: &str = "server";
/// The step of a clock without an argument, in leases: every lease is over after it.
const LEASES: u32 = 2;
const CLOCKS_STEPPED: EvidenceCounter = EvidenceCounter::new("clocks_stepped", "clock", "stepped");
/// Readings of a stepped clock while it was stepped.
const CLOCK_READINGS: EvidenceCounter = EvidenceCounter::new("clock_readings", "reading", "of a stepped clock");

/// The refusal for clients that read no wall clock.
pub const NO_CONCERN: &str = "clock: these clients compare no times of day (wall_clock=false), so a stepped clock cannot affect them\n\
     hint: --recipe redis-getset, a --client that promises wall_clock=true, or --fault clock=server on redis, valkey, postgres or mariadb";

impl Fault for ClockFault {
    fn definition(&self) -> FaultDefinition {
        FaultDefinition {
            name: "clock",
            summary: "the wall clock of one client, or of one server of Redis, PostgreSQL or MariaDB, is stepped",
            argument: "waiter, holder, client or server, and how far: holder-5s (default: waiter, two leases forward)",
            family: FaultFamily::Clients,
            pace: Pace::Long,
            verb: "given another time of day",
            counters: &[CLOCKS_STEPPED, CLOCK_READINGS],
            trace: &[CLOCK_READINGS],
            no_effect_hint: Some(
                "the process read no wall clock, or not through a linked C library; a client that compares no times of day \
                 promises wall_clock=false",
            ),
        }
    }

    fn applies(&self, argument: Option<&str>, shape: &Shape) -> Result<(), String> {
        let of_a_server = argument.is_some_and(|argument| argument.starts_with(SERVER));
        if of_a_server && !shape.backend.wall_clock {
            return Err(format!(
                "clock=server: the servers of {} use no wall clock that can be stepped; those of {} do\n\
                 hint: --fault server-pause stops one server for a while; clock=holder steps the clock of a client",
                shape.backend,
                backends::names(" and ", |backend| backend.wall_clock)
            ));
        }
        if of_a_server {
            not_attached("clock=server", "steps the clock of a server's process", shape)?;
            let why = "simulated servers do not count the readings of their clock, so no effect would be seen";
            let hint = "--fault clock=waiter, or --runtime local or docker";
            if !shape.virtual_time {
                not_simulated("clock=server", why, hint, shape)?;
            }
        }
        if !of_a_server && shape.reads_wall_clock == Some(false) {
            return Err(NO_CONCERN.to_owned());
        }
        // simulated processes have clocks that can be set
        let missing = wall_clock::missing().filter(|_| !shape.simulated && !shape.virtual_time);
        missing.map_or(Ok(()), |why| Err(format!("clock: {why}")))
    }

    fn survivable(&self, _: &Shape) -> Result<Duration, &'static str> {
        Err("most clients read no wall clock")
    }

    fn plan(&self, argument: Option<&str>, _: u32, shape: &Shape, rng: &mut ChaCha8Rng) -> Planned {
        let (whose, step) = parse(argument.unwrap_or("waiter"))
            .map_err(|why| format!("clock={}: {why}", argument.unwrap_or_default()))?;
        let step = step.unwrap_or(ClockStep {
            back: false,
            by: shape.lease * LEASES,
            of_a_server: whose == SERVER,
        });
        let target = match whose {
            "waiter" => Target::Waiter,
            "holder" => Target::Holder,
            "client" => Target::Clients(vec![rng.random_range(0..shape.clients)]),
            _ => Target::Servers(vec![rng.random_range(0..shape.servers)]),
        };
        let who = match &target {
            Target::Clients(clients) => format!("c{}: ", clients[0]),
            Target::Servers(servers) => format!("n{}: ", servers[0] + 1),
            _ => String::new(),
        };
        let way = if step.back { "back" } else { "forward" };
        let title = format!("{who}its wall clock steps {} ms {way}", step.by.as_millis());
        Ok(Injection::new(target, step, Acquires::GoOn, title, "step back"))
    }
}

/// The size and the direction of the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ClockStep {
    back: bool,
    by: Duration,
    of_a_server: bool,
}

impl ClockStep {
    fn nanoseconds(self) -> i64 {
        let by = i64::try_from(self.by.as_nanos()).unwrap_or(i64::MAX);
        if self.back { -by } else { by }
    }
}

#[async_trait]
impl Inject for ClockStep {
    fn needs(&self) -> Needs {
        Needs {
            wall_clocks: true,
            // a server's step ends leases: it proves nothing without one
            held_lock: self.of_a_server,
            ..Needs::default()
        }
    }

    fn clock_step_ms(&self) -> Option<i64> {
        Some(self.nanoseconds() / 1_000_000)
    }

    async fn inject(&self, context: InjectionContext<'_>) -> Result<Injected, NotInjected> {
        let env = context.env;
        let mut affected = Affected::servers(context.target.servers());
        let endpoints = env.servers.endpoints();
        let mut clocks = endpoints.of_servers(&affected.servers, &env.server_clocks);
        for process in env.clients.processes_of(&context.target.clients()) {
            affected.clients.extend(process.clients());
            clocks.extend(process.wall_clock());
        }
        if affected == Affected::default() {
            return Err(NotInjected::Missed("its process was not running"));
        }
        Ok(SteppedClocks::step(*self, clocks).on(affected))
    }
}

/// Clocks that are stepped.
struct SteppedClocks {
    step: ClockStep,
    /// Clocks with their readings before the step.
    clocks: Vec<(Arc<dyn WallClockControl>, u64)>,
}

impl SteppedClocks {
    fn step(step: ClockStep, clocks: Vec<Arc<dyn WallClockControl>>) -> HealOnDrop<Self> {
        let with_readings = |clock: Arc<dyn WallClockControl>| {
            let before = clock.shifted_readings();
            clock.step(step.nanoseconds()).ok().map(|()| (clock, before))
        };
        HealOnDrop::new(Self {
            step,
            clocks: clocks.into_iter().filter_map(with_readings).collect(),
        })
    }

    fn evidence(&self) -> Evidence {
        let since =
            |(clock, before): &(Arc<dyn WallClockControl>, u64)| clock.shifted_readings().saturating_sub(*before);
        Evidence::default()
            .with(&CLOCKS_STEPPED, self.clocks.len() as u64)
            .with(&CLOCK_READINGS, self.clocks.iter().map(since).sum())
    }

    /// Steps all of them back; the error is the first one.
    fn step_back(&mut self) -> io::Result<()> {
        let back = -self.step.nanoseconds();
        let stepped = self.clocks.drain(..).map(|(clock, _)| clock.step(back));
        stepped.fold(Ok(()), Result::and)
    }
}

#[async_trait]
impl ActiveFault for SteppedClocks {
    async fn heal(&mut self, _: Duration, _: bool) -> Healed {
        let evidence = self.evidence();
        let why = self.step_back().err();
        Healed {
            trouble: why.map(|why| format!("a clock was not stepped back: {why}")),
            ..evidence.into()
        }
    }

    fn undo(&mut self) {
        let _ = self.step_back();
    }
}

/// Parses `holder-5s`: the target, and the step if there is one.
fn parse(text: &str) -> Result<(&str, Option<ClockStep>), String> {
    let split = text.find(['+', '-']).unwrap_or(text.len());
    let (whose, step) = text.split_at(split);
    if !["waiter", "holder", "client", SERVER].contains(&whose) {
        return Err(format!(
            "`{whose}` has no clock; it takes one of waiter, holder, client and server"
        ));
    }
    let Some(by) = step.get(1..) else {
        return Ok((whose, None));
    };
    let by = parse_duration(by)?;
    if by.is_zero() {
        return Err("a step of 0 has no effect".into());
    }
    let back = step.starts_with('-');
    let of_a_server = whose == SERVER;
    Ok((whose, Some(ClockStep { back, by, of_a_server })))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    fn planned(argument: &str) -> Result<(Target, i64), String> {
        let shape = Shape::one_redis();
        let injection = ClockFault.planned(Some(argument), 0, &shape, 1)?;
        let step = injection.action_as::<ClockStep>().nanoseconds();
        Ok((injection.target, step))
    }

    #[test]
    fn the_target_and_the_step_are_as_they_were_typed() {
        assert_eq!(planned("holder-1500ms").unwrap(), (Target::Holder, -1_500_000_000));
        assert_eq!(planned("server").unwrap(), (Target::Servers(vec![0]), 4_000_000_000));
        let back = ClockFault.planned(Some("server-1500ms"), 0, &Shape::one_redis(), 1);
        assert_eq!(back.unwrap().action.clock_step_ms(), Some(-1500));
        for wrong in ["anyone", "holder+", "waiter+5", "client-0s"] {
            assert!(planned(wrong).unwrap_err().contains(wrong), "{wrong}");
        }
    }

    #[test]
    fn it_applies_to_clients_that_compare_times_of_day_or_do_not_say_and_to_servers() {
        let applies = |argument, reads_wall_clock| {
            let shape = Shape {
                reads_wall_clock,
                ..Shape::one_redis()
            };
            ClockFault.applies(argument, &shape).map_err(|_| ())
        };
        assert_eq!(applies(None, Some(true)), Ok(()));
        assert_eq!(applies(None, None), Ok(()));
        assert_eq!(applies(None, Some(false)), Err(()));
        assert_eq!(applies(Some("holder-5s"), Some(false)), Err(()));
        assert_eq!(applies(Some("server"), Some(false)), Ok(()));
    }

    const BACK: ClockStep = ClockStep {
        back: true,
        by: Duration::from_secs(7),
        of_a_server: false,
    };

    /// A clock that can be stepped once.
    #[derive(Default)]
    struct StuckClock(AtomicBool);

    impl WallClockControl for StuckClock {
        fn step(&self, _: i64) -> io::Result<()> {
            match self.0.swap(true, Relaxed) {
                false => Ok(()),
                true => Err(io::ErrorKind::StorageFull.into()),
            }
        }

        fn shifted_readings(&self) -> u64 {
            0
        }
    }

    #[tokio::test]
    async fn a_clock_that_is_not_stepped_back_ends_the_run() {
        let mut stepped = SteppedClocks::step(BACK, vec![Arc::new(StuckClock::default()) as _]);
        let healed = stepped.heal(Duration::ZERO, true).await;
        assert!(healed.trouble.unwrap().contains("not stepped back"));
    }

    #[test]
    fn a_stepped_clock_is_stepped_back_when_its_window_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let clocks = wall_clock::Clocks::lay_out(folder.path().join("clocks")).unwrap();
        let clock = clocks.clock("c0").unwrap();
        let stepped = SteppedClocks::step(BACK, vec![Arc::clone(&clock) as _]);
        assert_eq!(clock.offset_nanoseconds(), -7_000_000_000);
        let trace = ClockFault.definition().trace;
        assert!(!stepped.evidence().has_any(trace), "no process read the clock");
        drop(stepped);
        assert_eq!(clock.offset_nanoseconds(), 0);
    }
}
