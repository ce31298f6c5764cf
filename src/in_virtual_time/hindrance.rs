//! Hindrances of a world: a thread of a family that has the turn and does not pass it ([`Hindrance`]), and the limit for that
//! ([`Patience`]).

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use super::library;
use crate::process::fields_in;

/// The longest time for which a thread may compute, or wait in the kernel, before it passes the turn: in processor time, and in real time
/// where harness sees no other activity of it meanwhile.
const STEP: Duration = Duration::from_secs(4);
/// The least processor time of a thread that spins, in that time: a busy machine gives it little, and a thread that computes for less
/// than this is not to be taken for one.
const LEAST: Duration = Duration::from_secs(2);
/// The longest wait of a program before its library is loaded.
const LOADS: Duration = Duration::from_millis(500);

const REAL: &str = "hint: --runtime local runs it in real time";

/// The reason for which a family blocks the world, as the end of a sentence that begins with its name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Hindrance {
    #[error(
        "{program} is a static program, which loads no library and cannot run in virtual time\n{}",
        REAL
    )]
    Static { program: String },
    /// A program that clears the environment, or ignores it.
    #[error(
        "{program} did not load {}, the library of virtual time: it has other privileges than the program that started it, \
         or was started without LD_PRELOAD and {}\n{}",
        library::NAME,
        super::page::VARIABLE,
        REAL
    )]
    Unloaded { program: String },
    /// A system call that has no meaning in virtual time.
    #[error("it used {}, which works only in real time\n{}", call_name(*number), REAL)]
    Refused { number: u32 },
    #[error(
        "{thread} blocks the world: it has computed for {} s without a wait\nhint: a thread that spins until something \
         changes never sees the change, since no other thread runs meanwhile",
        STEP.as_secs()
    )]
    Computes { thread: String },
    #[error(
        "{thread} blocks the world: it waits in the kernel ({call}) for something outside the world\n{}",
        REAL
    )]
    Waits { thread: String, call: String },
}

fn call_name(number: u32) -> String {
    match number {
        38 => "setitimer".to_owned(),
        202 => "a futex that inherits priorities".to_owned(),
        number => format!("system call {number}"),
    }
}

/// The observations of harness during one step.
#[derive(Debug, Default)]
pub struct Patience {
    /// The thread that has the turn: its number, its processor time when first observed, and the time at which it was last seen to compute.
    seen: Option<SeenThread>,
    /// The time since which a program without the library has waited, which a loader never does.
    asleep: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct SeenThread {
    number: u32,
    computed_before: Duration,
    computed: Duration,
    moved: Instant,
    /// The count of its actions: calls, readings of clocks, first uses of pages; the next fields are of the last one.
    did: u64,
    acted: Instant,
    computed_then: Duration,
}

impl Patience {
    /// Observes the thread that has the turn; `did` counts actions of the family. The error ends the run.
    pub fn look(&mut self, (pid, thread): (u32, u32), loaded: bool, did: u64) -> Result<(), Hindrance> {
        if !loaded {
            return self.look_for_library(pid);
        }
        self.asleep = None;
        let thread = if thread == 0 { pid } else { thread };
        let ThreadWork {
            computed,
            waits,
            faults,
        } = ThreadWork::of(pid, thread);
        let did = did.wrapping_add(faults);
        let now = Instant::now();
        let fresh = SeenThread {
            number: thread,
            computed_before: computed,
            computed,
            moved: now,
            did,
            acted: now,
            computed_then: computed,
        };
        let seen = self.seen.get_or_insert(fresh);
        if seen.number != thread {
            *seen = fresh;
        }
        if computed != seen.computed || !waits {
            seen.computed = computed;
            seen.moved = now;
        }
        if did != seen.did {
            (seen.did, seen.acted, seen.computed_then) = (did, now, computed);
        }
        let spins = seen.acted.elapsed() > STEP && computed.saturating_sub(seen.computed_then) > LEAST;
        let computes = spins || computed.saturating_sub(seen.computed_before) > STEP;
        let waits = seen.moved.elapsed() > STEP;
        if (computes || waits) && is_debugged(pid, thread) {
            self.seen = None;
            return Ok(());
        }
        if computes {
            return Err(Hindrance::Computes {
                thread: in_words(pid, thread),
            });
        }
        if waits {
            return Err(Hindrance::Waits {
                thread: in_words(pid, thread),
                call: format!("system call {}", waiting_call(pid, thread)[0]),
            });
        }
        Ok(())
    }

    /// Observes a program that has not loaded the library yet.
    fn look_for_library(&mut self, pid: u32) -> Result<(), Hindrance> {
        let program = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let name = program.display().to_string();
        if is_static(Path::new(&format!("/proc/{pid}/exe"))) && !is_loader(&program) {
            return Err(Hindrance::Static { program: name });
        }
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let ThreadWork { waits, .. } = ThreadWork::of(pid, pid);
        if maps.is_empty() || maps.contains(library::NAME) || !waits {
            self.asleep = None;
            return Ok(());
        }
        match self.asleep.get_or_insert_with(Instant::now).elapsed() > LOADS {
            true => Err(Hindrance::Unloaded { program: name }),
            false => Ok(()),
        }
    }
}

/// Returns the words of the system call in which a thread waits, its number first.
fn waiting_call(pid: u32, thread: u32) -> Vec<String> {
    let call = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).unwrap_or_default();
    call.trim().split(' ').map(str::to_owned).collect()
}

/// Returns whether a debugger traces a process, or a thread of it reads a terminal, as that of an interpreter does: a user takes any time.
fn is_debugged(pid: u32, thread: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    if tracer.is_some_and(|tracer| tracer.trim() != "0") {
        return true;
    }
    match &waiting_call(pid, thread)[..] {
        [number, descriptor, ..] if number == "0" => {
            let number = u32::from_str_radix(descriptor.trim_start_matches("0x"), 16).unwrap_or_default();
            let file = fs::read_link(format!("/proc/{pid}/fd/{number}")).unwrap_or_default();
            file.starts_with("/dev/pts") || file == Path::new("/dev/tty")
        }
        _ => false,
    }
}

/// Returns "thread 12 (`redis-server`) of process 12".
fn in_words(pid: u32, thread: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm")).unwrap_or_default();
    format!("thread {thread} (`{}`) of process {pid}", name.trim())
}

/// The work of a thread, from `/proc`.
struct ThreadWork {
    /// Its processor time.
    computed: Duration,
    /// Whether it waits in the kernel, or is stopped by a signal.
    waits: bool,
    /// Its minor page faults: first uses of pages.
    faults: u64,
}

impl ThreadWork {
    fn of(pid: u32, thread: u32) -> Self {
        const TICK_MS: u64 = 10;
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).unwrap_or_default();
        let fields = fields_in(&stat);
        let number = |place: usize| fields.get(place).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Self {
            computed: Duration::from_millis(TICK_MS * (number(11) + number(12))),
            // stopped by a signal, it waits for another one
            waits: matches!(fields.first(), Some(&("S" | "T"))),
            faults: number(7),
        }
    }
}

/// Returns whether a program is the loader, started to load another one: it has no `PT_INTERP`, and loads the library as for any other.
fn is_loader(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ld-linux")
}

/// Returns whether a program is an ELF file without a segment of kind `PT_INTERP`, which names a loader.
pub fn is_static(program: &Path) -> bool {
    const INTERPRETER: usize = 3;
    let mut head = [0u8; 4096];
    let Ok(mut file) = fs::File::open(program) else {
        return false;
    };
    let read = file.read(&mut head).unwrap_or(0);
    let head = &head[..read];
    let number = |at: usize, size: usize| {
        let bytes = head.get(at..at + size)?.iter().rev();
        Some(bytes.fold(0usize, |number, byte| number << 8 | usize::from(*byte)))
    };
    let (Some(begin), Some(size), Some(count)) = (number(32, 4), number(54, 2), number(56, 2)) else {
        return false;
    };
    head.starts_with(b"\x7fELF") && !(0..count).any(|segment| number(begin + segment * size, 4) == Some(INTERPRETER))
}
