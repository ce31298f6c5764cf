//! What keeps a world from going on: a thread of a family that has the turn and does not give it away ([`Hindrance`]), and how long that
//! is borne ([`Patience`]).

use std::fmt;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use super::library;

/// How long a thread may compute, or wait in the kernel, before it gives the turn away: in processor time, and in real time where it
/// does nothing else meanwhile that harness could see.
const STEP: Duration = Duration::from_secs(4);
/// What it has to have of the processor in that time, on a machine that has too much to do.
const LEAST: Duration = Duration::from_millis(400);
/// How long a program may wait for something before its library is loaded.
const LOADS: Duration = Duration::from_millis(500);

/// Why a family cannot go on, as the end of a sentence that begins with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hindrance {
    /// A static program.
    Static {
        program: String,
    },
    /// A program that throws the environment away, or does not heed it.
    Unloaded {
        program: String,
    },
    /// A system call that has no meaning in virtual time.
    Refused(u32),
    Computes {
        thread: String,
    },
    Waits {
        thread: String,
        call: String,
    },
}

const REAL: &str = "hint: --runtime local runs it in real time";

impl fmt::Display for Hindrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static { program } => write!(
                f,
                "{program} is a static program, which loads no library and cannot run in virtual time\n{REAL}"
            ),
            Self::Unloaded { program } => write!(
                f,
                "{program} did not load {}, the library of virtual time: it has other privileges than the program that started it, \
                 or was started without LD_PRELOAD and {}\n{REAL}",
                library::NAME,
                super::page::VARIABLE
            ),
            Self::Refused(number) => write!(
                f,
                "it used {}, which works only in real time\n{REAL}",
                call_name(*number)
            ),
            Self::Computes { thread } => write!(
                f,
                "{thread} blocks the world: it has computed for {} s without a wait\nhint: a thread that spins until something \
                 changes never sees the change, since no other thread runs meanwhile",
                STEP.as_secs()
            ),
            Self::Waits { thread, call } => write!(
                f,
                "{thread} blocks the world: it waits in the kernel ({call}) for something outside the world\n{REAL}"
            ),
        }
    }
}

fn call_name(number: u32) -> String {
    let name = match number {
        38 => "setitimer",
        202 => "a futex that inherits priorities",
        number => return format!("system call {number}"),
    };
    name.to_owned()
}

/// How long one step has taken by now.
#[derive(Debug, Default)]
pub struct Patience {
    /// Of the thread that has the turn: its number, its processor time when it was first seen with it, and when it was last seen to
    /// compute.
    seen: Option<SeenThread>,
    /// Since when a program without the library was seen to wait, which a loader never does.
    asleep: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct SeenThread {
    number: u32,
    computed_before: Duration,
    computed: Duration,
    moved: Instant,
    /// When it was last seen to do something: a system call, a look at a clock, the first use of a page.
    did: u64,
    acted: Instant,
    computed_then: Duration,
}

impl Patience {
    /// Looks at the thread that has the turn; `did` counts what the family does. The error ends the run.
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

    /// Looks at a program that has not loaded the library yet.
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

/// The words of the system call in which a thread waits, its number first.
fn waiting_call(pid: u32, thread: u32) -> Vec<String> {
    let call = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).unwrap_or_default();
    call.trim().split(' ').map(str::to_owned).collect()
}

/// Whether a debugger has a process, or a thread of it reads a terminal, as the debugger of an interpreter does: a user takes any time.
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

/// `thread 12 (redis-server) of process 12`
fn in_words(pid: u32, thread: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm")).unwrap_or_default();
    format!("thread {thread} (`{}`) of process {pid}", name.trim())
}

/// What the kernel says of a thread.
struct ThreadWork {
    /// Its processor time.
    computed: Duration,
    /// Whether it waits in the kernel.
    waits: bool,
    /// Pages that it used for the first time.
    faults: u64,
}

impl ThreadWork {
    fn of(pid: u32, thread: u32) -> Self {
        const TICK_MS: u64 = 10;
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .collect();
        let number = |place: usize| fields.get(place).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Self {
            computed: Duration::from_millis(TICK_MS * (number(11) + number(12))),
            waits: fields.first() == Some(&"S"),
            faults: number(7),
        }
    }
}

/// Whether a program is the loader, started with another program to load: it names no loader, and loads the library as for any other.
fn is_loader(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("ld-linux")
}

/// Whether a program names no loader: a segment of kind `PT_INTERP` does.
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
