//! Tests of single programs in virtual time: calls are answered as by the kernel, and a program that cannot run there is refused.

use std::cell::RefCell;
use std::fs;
use std::io::Write;
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use harness_simulation::World;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::Pid;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::process::Command;
use tokio::runtime::Runtime;

use super::disk::ServerDisk;
use super::ends::{FamilySaid, OnSaid};
use super::machine::{FamilyPlace, StartedFamily, WorldMachine};
use super::memory::SharedPage;
use super::page::{CONNECTIONS, connection, state, why};
use super::processes::{FamilyProcesses, FirstProcess};
use super::routes::Router;
use super::startup::{FIRST_NUMBER, FamilyLot, execute_static};
use super::trace;
use super::wall_clock::FamilyClock;

/// The result of a program.
struct RanProgram {
    output: String,
    /// Its end in words, or the hindrance.
    ended: String,
    took: Duration,
}

/// Runs a program in virtual time, in a folder, to its end.
fn run(program: &[&str], folder: &Path) -> RanProgram {
    run_as(program, "", folder, false)
}

/// Runs a program with an input, with or without a drawn order of threads.
fn run_as(program: &[&str], input: &str, folder: &Path, threads_by_seed: bool) -> RanProgram {
    run_on(None, program, input, folder, threads_by_seed)
}

/// Runs a program on a disk, if it has one on which faults act.
fn run_on(disk: Option<Rc<ServerDisk>>, program: &[&str], input: &str, folder: &Path, drawn_order: bool) -> RanProgram {
    let runtime = Runtime::new().unwrap();
    let handle = runtime.handle().clone();
    let (mut first, arguments) = (program[0].to_owned(), &program[1..]);
    let mut arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
    execute_static(&mut first, &mut arguments);
    let ran = World::run(1, |world: World| async move {
        world.sleep(super::UPTIME).await;
        let machine = world.keep(WorldMachine::lay_out(world, (1, drawn_order), handle, Arc::default()).unwrap());
        let failed = Arc::clone(&machine.get().failed);
        let mut command = Command::new(first);
        command.args(arguments).current_dir(folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let clock = Arc::new(FamilyClock::new(world));
        let nowhere: Router = Rc::new(|_| None);
        let (name, address) = ("the program".to_owned(), Ipv4Addr::new(10, 0, 1, 1));
        let nowhere = FamilyPlace {
            disk,
            ..FamilyPlace::of_client(name, "p".to_owned(), clock, address, nowhere)
        };
        let started = machine.get().begin(command, nowhere);
        let StartedFamily {
            family,
            input: to,
            output,
        } = started.unwrap();
        let said: Rc<RefCell<Vec<u8>>> = Rc::default();
        let hearing = Rc::clone(&said);
        let on_said: OnSaid = Rc::new(move |what| {
            if let FamilySaid::Bytes(bytes) = what {
                hearing.borrow_mut().extend(bytes);
            }
        });
        family.add_end(output.unwrap(), Some(on_said), None);
        let end = family.add_end(to.unwrap(), None, None);
        let began = world.clock_ns();
        // it has the turn from its start on, in parallel with harness
        family.step();
        family.write(end, input.as_bytes());
        family.close(end, connection::CLOSED);
        family.step();
        while !family.is_over() {
            world.sleep(Duration::from_millis(1)).await;
        }
        let hindered = failed.get().cloned();
        RanProgram {
            output: String::from_utf8_lossy(&said.borrow()).into_owned(),
            ended: hindered.or(family.ended()).unwrap_or_default(),
            took: Duration::from_nanos(world.clock_ns() - began),
        }
    });
    runtime.shutdown_background();
    ran
}

/// Compiles a program. Returns its path.
fn compiled(source: &str, folder: &Path, arguments: &[&str]) -> String {
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    fs::write(&file, source).unwrap();
    let mut compiler = std::process::Command::new("cc");
    let made = compiler
        .args(["-O1", "-o"])
        .arg(&program)
        .arg(file)
        .arg("-lpthread")
        .args(arguments)
        .status();
    assert!(made.unwrap().success());
    program.display().to_string()
}

/// Compiles a program, and runs it.
fn run_text(source: &str, arguments: &[&str]) -> RanProgram {
    let folder = tempfile::tempdir().unwrap();
    run(&[&compiled(source, folder.path(), arguments)], folder.path())
}

#[test]
fn every_call_that_is_replaced_answers_as_the_kernel_does() {
    calls_are_answered_as_by_the_kernel(&[]);
}

#[test]
fn so_are_the_calls_of_a_static_program() {
    calls_are_answered_as_by_the_kernel(&["-static"]);
}

/// Compares all replaced calls of a program that is compiled with these arguments.
fn calls_are_answered_as_by_the_kernel(arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let source = include_str!("../../tests/virtual_time/calls.c");
    let program = compiled(source, folder.path(), arguments);
    let mut child = std::process::Command::new(&program)
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    let real = child.wait_with_output().unwrap();
    let real = String::from_utf8_lossy(&real.stdout).into_owned();
    assert!(real.lines().count() > 130, "{real}");
    for threads_by_seed in [false, true] {
        let run = || run_as(&[&program], "one\ntwo\n", folder.path(), threads_by_seed);
        let (ran, again) = (run(), run());
        assert_eq!(ran.output, real);
        assert_eq!(ran.ended, "exit status: 13");
        assert_eq!(again.ended, ran.ended, "after {}", again.output);
        assert_eq!((again.output, again.took), (ran.output, ran.took));
    }
}

#[test]
fn a_family_can_dial_before_harness_has_a_processor_again() {
    let folder = tempfile::tempdir().unwrap();
    let lot = FamilyLot {
        path: folder.path().join("p"),
        first_seed: 1,
        startup: None,
        address: Ipv4Addr::LOCALHOST,
        numbers: FIRST_NUMBER,
        order: 0,
        dice: ChaCha8Rng::seed_from_u64(1),
    };
    let lay_out = || {
        let plot = lot.lay_out().unwrap();
        UnixStream::connect(lot.path.with_extension("net")).unwrap();
        assert!(plot.dialled.accept().is_ok());
        plot
    };
    // the second one is that of a client that could not be forked: what the fork does to its page has no effect
    let (fork, started) = (lay_out(), lay_out());
    fork.page.owner.store(0, SeqCst);
    assert_eq!(started.page.owner.load(SeqCst), 1);
}

#[test]
fn the_input_of_a_program_ends_while_others_start() {
    // each that starts has a copy of it for a moment
    let world = || {
        for _ in 0..10 {
            let ran = run_as(&["cat"], "one", Path::new("/"), false);
            assert_eq!((&*ran.output, &*ran.ended), ("one", "exit status: 0"));
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(world))));
}

#[test]
fn a_trace_is_beside_the_page_of_its_family() {
    let [traces, world, fork_server] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let path = world.path().join("p");
    assert!(!trace::begin(&path).unwrap());
    trace::lay_out(Some(traces.path().into()), "run", world.path()).unwrap();
    trace::share(&path, fork_server.path()).unwrap();
    // the second time is that of a client that could not be forked
    for path in [&path, &path, &fork_server.path().join("f")] {
        assert!(trace::begin(path).unwrap());
        fs::write(path.with_extension("trace"), "a call").unwrap();
        let name = path.with_extension("trace");
        let traced = traces.path().join("run").join(name.file_name().unwrap());
        assert_eq!(fs::read_to_string(traced).unwrap(), "a call");
    }
    // a job of a hunt beside it
    let beside = tempfile::tempdir().unwrap();
    trace::lay_out(Some(traces.path().into()), "another run", beside.path()).unwrap();
    assert!(trace::begin(&beside.path().join("p")).unwrap());
    assert_eq!(fs::read_to_string(traces.path().join("run/p.trace")).unwrap(), "a call");
}

#[test]
fn the_threads_of_a_process_that_is_over_are_given_no_turn() {
    let folder = tempfile::tempdir().unwrap();
    let page = SharedPage::make(&folder.path().join("page")).unwrap();
    page.slots_used.store(4, SeqCst);
    // the numbers of places wrap around
    page.head.store(u32::MAX - 1, SeqCst);
    page.tail.store(u32::MAX - 1, SeqCst);
    for (slot, pid) in [(0, 7), (1, 8), (2, 7), (3, 8)] {
        page.slots[slot].pid.store(pid, SeqCst);
        page.enqueue(slot, why::WOKEN);
    }
    page.free_slots(|slot| slot.pid.load(SeqCst) == 7);
    let turns = [(); 3].map(|()| page.pass_turn());
    assert_eq!(turns, [Some(1), Some(3), None]);
}

#[test]
fn the_number_of_an_open_connection_is_not_given_to_another() {
    let folder = tempfile::tempdir().unwrap();
    let page = SharedPage::make(&folder.path().join("page")).unwrap();
    assert_eq!(page.number_connection(connection::OPEN), 0);
    for _ in 1..CONNECTIONS {
        page.number_connection(connection::CLOSED);
    }
    assert_eq!(page.number_connection(connection::DIALLING), 1);
    // all are in use
    for _ in 2..CONNECTIONS + 3 {
        page.number_connection(connection::OPEN);
    }
}

#[test]
fn a_process_that_has_ended_is_not_killed_with_its_family() {
    let folder = tempfile::tempdir().unwrap();
    let page = SharedPage::make(&folder.path().join("page")).unwrap();
    page.slots_used.store(3, SeqCst);
    for (place, pid) in [7, 8, 9].into_iter().enumerate() {
        page.processes[place].pid.store(pid, SeqCst);
        page.slots[place].pid.store(pid, SeqCst);
        page.slots[place].state.store(state::WAITS, SeqCst);
    }
    page.free_slots(|slot| slot.pid.load(SeqCst) == 8);
    let processes = FamilyProcesses::of(FirstProcess::Forked(Pid::from_raw(7)), PathBuf::new(), page);
    assert_eq!(processes.pids(), [7, 9]);
}

#[test]
fn an_hour_of_sleep_takes_an_hour_of_virtual_time_and_none_of_real_time() {
    let began = Instant::now();
    let hour = Duration::from_secs(3600);
    for program in [&["sleep", "3600"][..], &["sh", "-c", "sleep 1800; (sleep 1800 & wait)"]] {
        let ran = run(program, Path::new("/"));
        assert_eq!(ran.ended, "exit status: 0");
        assert_eq!(ran.took.as_secs(), 3600);
    }
    assert!(began.elapsed() < hour / 2);
}

#[test]
fn a_full_disk_refuses_what_needs_a_block_and_a_slow_one_holds_a_sync_back() {
    let source = "#define _GNU_SOURCE\n#include <errno.h>\n#include <fcntl.h>\n#include <sys/statfs.h>\n#include <sys/uio.h>\n\
                  #include <unistd.h>\n#define NO_SPACE(call) (errno = 0, (call) == -1 && errno == ENOSPC)\n\
                  static char bytes[8192];\n\
                  int main(void) {\n\
                  int file = open(\"file\", O_RDWR), end = open(\"file\", O_WRONLY | O_APPEND);\n\
                  struct iovec both[2] = {{bytes, 4096}, {bytes, 1}};\n\
                  struct statfs about;\n\
                  if (pwrite(file, bytes, 4096, 0) != 4096 || pwrite(file, bytes, 8192, 0) != 4096) return 1;\n\
                  if (!NO_SPACE(pwrite(file, bytes, 1, 4096)) || !NO_SPACE(write(end, bytes, 1))) return 2;\n\
                  if (!NO_SPACE(pwrite(end, bytes, 1, 0)) || !NO_SPACE(pwritev(file, both, 2, 0))) return 3;\n\
                  if (write(file, bytes, 100) != 100 || pwritev2(file, both, 1, -1, 0) != -1 || errno != ENOSPC) return 4;\n\
                  if (!NO_SPACE(fallocate(file, 0, 0, 8192)) || fallocate(file, 0, 0, 4096)) return 5;\n\
                  if (statfs(\"file\", &about) || about.f_bavail) return 6;\n\
                  return fsync(file) ? 8 : 7;\n\
                  }";
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(source, folder.path(), &[]);
    fs::write(folder.path().join("file"), [1; 4096]).unwrap();
    let disk = Rc::new(ServerDisk::new(folder.path().to_owned(), None));
    disk.fill(true);
    disk.gate.slow_down(Duration::from_secs(5));
    let ran = run_on(Some(Rc::clone(&disk)), &[&program], "", folder.path(), false);
    assert_eq!((&*ran.ended, ran.took.as_secs()), ("exit status: 7", 5));
    assert_eq!((disk.gate.reported(), disk.gate.delayed()), (1, 1));
    // a refused write writes nothing
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), [0; 4096]);
}

#[test]
fn what_cannot_be_kept_in_virtual_time_is_said_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <unistd.h>\nint main(void) { for (;;) pause(); }";
    let program = compiled(source, folder.path(), &["-static"]);
    let timer = "#include <sys/time.h>\nint main(void) { struct itimerval t = {{1, 0}, {1, 0}}; return setitimer(ITIMER_PROF, &t, 0); }";
    let stops = "#include <signal.h>\nint main(void) { return raise(SIGSTOP); }";
    let says = |ran: RanProgram, parts: &[&str]| {
        for part in parts {
            assert!(ran.ended.contains(part), "{}", ran.ended);
        }
    };
    let ran = run(&["env", "-i", &program], folder.path());
    says(ran, &["static program", "--runtime local"]);
    let ran = run(&["env", "-i", "/bin/sleep", "9"], folder.path());
    says(ran, &["did not load", "/sleep"]);
    says(run_text(timer, &[]), &["setitimer"]);
    says(run_text(stops, &[]), &["waits in the kernel"]);
}

#[test]
fn a_static_program_is_kept_however_it_is_started() {
    let folder = tempfile::tempdir().unwrap();
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\nint never[5000];\n\
                  int main(int count, char **words) { sleep(100); printf(\"%d %s %s %d\", count, words[1], getenv(\"TOLD\"), never[4999]); return 3; }";
    for kind in ["-static", "-static-pie"] {
        let program = compiled(source, folder.path(), &[kind]);
        for shell in ["$0 one two", "TOLD=x exec $0 one two", "($0 one two) | cat; exit 3"] {
            let shell = format!("TOLD=x; export TOLD; {shell}");
            let ran = run(&["sh", "-c", &shell, &program], folder.path());
            assert_eq!(
                (&*ran.output, &*ran.ended),
                ("3 one x 0", "exit status: 3"),
                "{kind} {shell}"
            );
            assert_eq!(ran.took.as_secs(), 100);
        }
        let ran = run(&[&program, "one", "two"], folder.path());
        assert_eq!(
            (&*ran.output, &*ran.ended),
            ("3 one (null) 0", "exit status: 3"),
            "{kind}"
        );
    }
}

/// Makes a test of each row: a program, with arguments of the compiler, that ends with 7 if its calls have the right answers.
macro_rules! programs {
    ($($name:ident($source:expr $(, $argument:expr)*))*) => {
        $(#[test] fn $name() { assert_eq!(run_text($source, &[$($argument),*]).ended, "exit status: 7"); })*
    };
}

programs! {
    a_child_that_was_killed_has_ended_when_kill_returns(
        "#include <signal.h>\n#include <sys/resource.h>\n#include <sys/wait.h>\n#include <unistd.h>\n\
         int main(void) { struct rusage used = { .ru_maxrss = 1 }; pid_t child = fork(); if (!child) for (;;) pause(); \
         usleep(1000); kill(child, SIGKILL); return wait4(child, 0, WNOHANG, &used) != child ? 8 : used.ru_maxrss ? 9 : 7; }"
    )
    // for longer than harness waits before it looks
    a_process_goes_on_without_its_first_thread(
        "#include <pthread.h>\n#include <unistd.h>\n\
         void *other(void *_) { for (volatile long i = 0; i < 50000000; i++) ; _exit(7); }\n\
         int main(void) { pthread_t thread; pthread_create(&thread, 0, other, 0); pthread_exit(0); }", "-pthread"
    )
    // the signal is pending when the thread, which alone does not block it, begins
    a_handler_that_runs_first_in_a_thread_reads_the_time_of_the_world(
        "#define _GNU_SOURCE\n#include <sched.h>\n#include <signal.h>\n#include <sys/syscall.h>\n#include <time.h>\n#include <unistd.h>\n\
         static char stack[65536]; static long seen[2];\n\
         void looks(int _) { syscall(SYS_clock_gettime, CLOCK_REALTIME, seen); }\n\
         int begins(void *_) { for (;;) pause(); }\n\
         int main(void) { sigset_t set; sigemptyset(&set); sigaddset(&set, SIGUSR1); signal(SIGUSR1, looks); \
         clone(begins, stack + sizeof stack, CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, 0); \
         sigprocmask(SIG_BLOCK, &set, 0); kill(getpid(), SIGUSR1); usleep(1000); \
         long ago = time(0) - seen[0]; _exit(ago >= 0 && ago < 2 ? 7 : 8); }"
    )
    a_thread_that_executes_a_program_is_its_first_one(
        "#define _GNU_SOURCE\n#include <pthread.h>\n#include <unistd.h>\n\
         void *executes(void *_) { execl(\"/proc/self/exe\", \"again\", \"again\", (char *)0); return 0; }\n\
         int main(int count, char **_) { pthread_t thread; if (count > 1) return getpid() == gettid() ? 7 : 8; \
         pthread_create(&thread, 0, executes, 0); pthread_join(thread, 0); return 9; }", "-pthread"
    )
    // the kernel says of a file in place of a socket that nobody listens
    the_interfaces_the_disks_and_the_services_of_the_machine_are_not_shown(
        "#include <dirent.h>\n#include <errno.h>\n#include <sys/socket.h>\n#include <sys/un.h>\n\
         int main(void) { struct sockaddr_un name = {AF_UNIX, \"/run/../dev/null\"}; \
         if (socket(AF_NETLINK, SOCK_RAW, 0) >= 0 || errno != EAFNOSUPPORT) return 8; \
         if (!connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, sizeof name) || errno != ENOENT) return 10; \
         return opendir(\"/sys/class/net\") || opendir(\"/sys/block\") ? 9 : 7; }"
    )
    no_call_opens_a_file_on_the_load_of_the_machine(
        "#define _GNU_SOURCE\n#include <errno.h>\n#include <fcntl.h>\n#include <stdint.h>\n#include <unistd.h>\n\
         int main(void) { uint64_t how[3] = {0}; if (open(\"/proc/loadavg\", O_RDONLY) >= 0 || errno != ENOENT) return 8; \
         return syscall(437, AT_FDCWD, \"/proc/loadavg\", how, sizeof how) >= 0 || errno != ENOSYS ? 9 : 7; }"
    )
    // a time that no kernel sets; the C library would not make the calls
    no_program_sets_the_clock_of_the_machine(
        "#define _GNU_SOURCE\n#include <errno.h>\n#include <sys/syscall.h>\n#include <unistd.h>\n\
         int main(void) { long never[2] = {0, -1}; \
         if (syscall(SYS_clock_settime, 0, never) != -1 || errno != ENOSYS) return 8; \
         return syscall(SYS_settimeofday, never, 0) != -1 || errno != ENOSYS ? 9 : 7; }"
    )
}

#[test]
fn a_signal_that_harness_ignores_is_not_ignored_in_virtual_time() {
    #[expect(unsafe_code, reason = "no handler runs")]
    // SAFETY: no code runs when the signal comes.
    unsafe { signal(Signal::SIGHUP, SigHandler::SigIgn) }.unwrap();
    let source = "#include <signal.h>\nint main(void) { return signal(SIGHUP, SIG_DFL) == SIG_DFL ? 7 : 8; }";
    assert_eq!(run_text(source, &[]).ended, "exit status: 7");
}

#[test]
fn the_status_of_a_process_is_the_same_each_time() {
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n\
                  int main(void) { char line[1024]; FILE *f = fopen(\"/proc/self/stat\", \"r\"); int place = 2; \
                  if (!f || !fgets(line, sizeof line, f) || atol(line) != getpid()) return 8; \
                  for (char *p = strtok(strrchr(line, ')'), \" \"); p; p = strtok(0, \" \"), place++) \
                  if (place == 3 || place == 14 || place == 22 || place == 24 || place == 39) printf(\"%s \", p); \
                  return fopen(\"/proc/self/statm\", \"r\") ? 9 : 7; }";
    let ran = run_text(source, &[]);
    assert_eq!((&*ran.output, &*ran.ended), ("R 0 0 16384 0 ", "exit status: 7"));
}

#[test]
fn a_thread_that_looks_at_a_clock_until_a_time_gets_there_with_few_looks() {
    let source = "#include <stdio.h>\n#include <time.h>\n\
                  int main(void) { long looks = 0; time_t end = time(0) + 20; struct timespec now; \
                  do { looks++; clock_gettime(CLOCK_REALTIME, &now); } while (now.tv_sec < end); printf(\"%ld\", looks); return 0; }";
    let ran = run_text(source, &[]);
    assert!((19..=20).contains(&ran.took.as_secs()), "{:?}", ran.took);
    let looks: u64 = ran.output.parse().unwrap();
    assert!((19_000_000..=20_100_000).contains(&looks), "{looks}");
}

#[test]
fn a_program_goes_on_that_fills_a_small_pipe() {
    // as those of users with many pipes are
    let source = "#define _GNU_SOURCE\n#include <fcntl.h>\n#include <poll.h>\n#include <unistd.h>\n\
                  int main(void) { static char line[1000]; usleep(1000); fcntl(1, F_SETPIPE_SZ, 8192); \
                  fcntl(1, F_SETFL, O_WRONLY | O_NONBLOCK); for (int i = 0; i < 100; i++) { struct pollfd room = {1, POLLOUT, 0}; poll(&room, 1, -1); \
                  if (write(1, line, sizeof line) != sizeof line) return 8; } return 7; }";
    let ran = run_text(source, &[]);
    assert_eq!((&*ran.ended, ran.output.len()), ("exit status: 7", 100_000));
}

#[test]
fn threads_that_call_one_another_and_never_wait_for_time_do_not_stop_it() {
    // one that polls, and two that pass a byte on for ever, until a third has slept
    let poll = "struct pollfd none = {0, 0, 0}; poll(&none, 1, 0);";
    let pass = "write(there[1], &byte, 1); read(back[0], &byte, 1);";
    for (made, what) in [("", poll), ("pthread_create(&thread, 0, other, 0);", pass)] {
        let source = format!(
            "#include <poll.h>\n#include <pthread.h>\n#include <unistd.h>\n\
             int there[2], back[2]; volatile int slept; char byte;\n\
             void *other(void *_) {{ char byte; while (read(there[0], &byte, 1) == 1) write(back[1], &byte, 1); return 0; }}\n\
             void *sleeper(void *_) {{ sleep(2); slept = 1; return 0; }}\n\
             int main(void) {{ pthread_t thread; pipe(there); pipe(back); pthread_create(&thread, 0, sleeper, 0); {made} \
             while (!slept) {{ {what} }} _exit(7); }}"
        );
        let ran = run_text(&source, &["-pthread"]);
        assert_eq!(ran.ended, "exit status: 7");
        assert!((2..3).contains(&ran.took.as_secs()), "{:?}", ran.took);
    }
}
