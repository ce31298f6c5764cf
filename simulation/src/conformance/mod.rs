//! The conformance of the models with real servers, through the session traits: the same steps on both, and the same transcripts.
//!
//! Random scripts have answers without times, and the same errors in the model as in the server must show. Timed scripts go through links
//! that are stalled and reset, over the real proxy and over the simulated network, and note when each answer came. At last each model gets
//! an error (a mutant), and a script must notice. Where a server's program is missing the test says so, and passes.

mod etcd;
mod etcd_timed;
mod nats;
mod nats_timed;
mod redis;
mod redis_timed;
mod servers;
mod stage;
mod zk;
mod zk_timed;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use harness_proxy::Proxy;
use harness_workloads::{RecipeHost, SessionError, Task};
use rand::Rng;

use self::stage::Stage;
use crate::dice;
use crate::mutants::with_mutant;

/// Returns an answer without the words of its error.
fn plain<T: std::fmt::Debug>(answer: Result<T, SessionError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(SessionError::Definite(_)) => "definite".into(),
        Err(SessionError::Indefinite(_)) => "indefinite".into(),
        Err(SessionError::Lost(_)) => "lost".into(),
    }
}

/// The lines of a timed script, each with its time.
type TimedLines = Vec<(Duration, String)>;

/// The transcript of a timed script: lines with their times.
#[derive(Clone)]
struct TimedTranscript {
    host: Rc<dyn RecipeHost>,
    began: Duration,
    /// The time by which its sleeps were longer than asked: a busy machine wakes it late.
    late: Rc<Cell<Duration>>,
    lines: Rc<RefCell<TimedLines>>,
    /// Tasks beside the script.
    beside: Rc<RefCell<Vec<Task>>>,
}

impl TimedTranscript {
    /// Begins a transcript: time counts from now on.
    fn begin(host: Rc<dyn RecipeHost>) -> Self {
        TimedTranscript {
            began: host.now(),
            host,
            late: Rc::default(),
            lines: Rc::default(),
            beside: Rc::default(),
        }
    }

    fn say(&self, line: String) {
        let at = self.host.now() - self.began - self.late.get();
        self.lines.borrow_mut().push((at, line));
    }

    async fn sleep(&self, ms: u64) {
        let (asked, began) = (Duration::from_millis(ms), self.host.now());
        self.host.sleep(asked).await;
        let late = (self.host.now() - began).saturating_sub(asked);
        self.late.set(self.late.get() + late);
    }

    /// Runs a task beside the script, until it is done or the script ends.
    fn beside(&self, work: impl Future<Output = ()> + 'static) {
        let task = self.host.spawn(Box::pin(work));
        self.beside.borrow_mut().push(task);
    }

    /// Asks beside the script, and writes the answer down.
    fn ask_beside(&self, what: &'static str, asked: impl Future<Output = String> + 'static) {
        let transcript = self.clone();
        self.beside(async move {
            let answer = asked.await;
            transcript.say(format!("{what} {answer}"));
        });
    }

    /// Plays a script: its steps have commas between, and the number of one is in milliseconds. `own` does the steps of a store, and
    /// answers those that wait for an answer.
    async fn play(&self, stage: &dyn Stage, script: &str, mut own: impl AsyncFnMut(&str, u64) -> Option<String>) {
        for step in script.split(',').map(str::trim) {
            let (word, ms) = step.split_once(' ').unwrap_or((step, "0"));
            let ms = ms.parse().expect("milliseconds");
            match word {
                "sleep" => self.sleep(ms).await,
                "stall" => stage.stall(),
                "delay" => stage.delay(ms),
                "heal" => stage.heal(),
                "reset" => stage.reset(),
                "pause" => stage.pause(true),
                "go-on" => stage.pause(false),
                _ => {
                    if let Some(answer) = own(word, ms).await {
                        self.say(format!("{word} {answer}"));
                    }
                }
            }
        }
    }

    /// Ends the script. Returns its lines in order of their words: two at about the same time may come in either order.
    fn end(&self) -> TimedLines {
        drop(self.beside.take());
        let mut lines = self.lines.take();
        lines.sort_by(|(_, one), (_, other)| one.cmp(other));
        lines
    }
}

/// Times of two lines that may differ: the machine is busy, and the server is another process.
const TOLERANCE: Duration = Duration::from_millis(150);

/// The number of times that a script that differs is run again on the real server: a busy machine may be late, a wrong model always is.
const REPEATS: usize = 6;

/// Random scripts for each model and its real server.
const SCRIPTS: u64 = 200;
/// Scripts that run on a real server at once, and those that run again.
const AT_ONCE: usize = 100;
const AGAIN_AT_ONCE: usize = 10;
/// Timed scripts that run at once, each on a server of its own.
const TIMED_AT_ONCE: usize = 4;

/// Steps of a random script, and the clients that do them.
const STEPS: usize = 40;
const CLIENTS: usize = 3;

/// Makes the kinds of steps of a random script, each with how often it is among those that are drawn.
macro_rules! kinds {
    ($name:ident: $($kind:ident $count:literal,)+) => {
        #[derive(Debug, Clone, Copy, PartialEq)]
        enum $name { $($kind,)+ }

        impl $name {
            /// Those that are drawn.
            fn drawn() -> Vec<Self> {
                [$(vec![Self::$kind; $count]),+].concat()
            }
        }
    };
}
use kinds;

/// The choices of a random script, each of so many.
fn draws(script: u64, store: &'static str) -> impl FnMut(usize) -> usize {
    let mut dice = dice::stream(script, store);
    move |below| (dice.next_u64() % below as u64) as usize
}

/// Numbers that differ from run to run, in the order in which a script saw them: their places do not differ.
#[derive(Default)]
struct SeenNumbers<T>(Vec<T>);

impl<T: Copy + PartialOrd> SeenNumbers<T> {
    /// Returns the place of a number, and whether it is larger than all that were seen before.
    fn ranked(&mut self, number: T) -> String {
        let is_newest = self.0.iter().all(|seen| *seen < number);
        let place = self.0.iter().position(|seen| *seen == number);
        let place = place.unwrap_or_else(|| {
            self.0.push(number);
            self.0.len() - 1
        });
        format!("r{place}{}", if is_newest { " newest" } else { "" })
    }
}

/// Takes the steps of a random script. Returns each with its answer.
async fn answered<S: std::fmt::Debug>(script: Vec<S>, mut step: impl AsyncFnMut(&S) -> String) -> Vec<String> {
    let mut transcript = Vec::new();
    for next in script {
        let answer = step(&next).await;
        transcript.push(format!("{next:?}: {answer}"));
    }
    transcript
}

/// Returns the transcripts of random scripts on a real server, in the order of their numbers.
async fn transcripts<F>(numbers: &[u64], run: impl Fn(u64) -> F) -> Vec<Vec<String>>
where
    F: Future<Output = Vec<String>> + 'static,
{
    let mut transcripts = Vec::new();
    let is_first = numbers.len() as u64 == SCRIPTS;
    for numbers in numbers.chunks(if is_first { AT_ONCE } else { AGAIN_AT_ONCE }) {
        let batch: Vec<_> = numbers
            .iter()
            .map(|number| tokio::task::spawn_local(run(*number)))
            .collect();
        for script in batch {
            transcripts.push(script.await.unwrap());
        }
    }
    transcripts
}

/// Checks that the model answers every random script as a real server does, and that some script notices each mutant. A script that differs
/// runs again on a new server, where it has the machine more to itself.
fn assert_same_answers(
    on_a_real_server: impl Fn(&[u64]) -> Option<Vec<Vec<String>>>,
    on_the_model: impl Fn(u64) -> Vec<String>,
    mutants: &[&'static str],
) {
    let mut differing: Vec<u64> = (0..SCRIPTS).collect();
    let mut real = vec![Vec::new(); differing.len()];
    for _ in 0..=REPEATS {
        let Some(answers) = on_a_real_server(&differing) else {
            return;
        };
        for (number, answers) in differing.iter().zip(answers) {
            real[*number as usize] = answers;
        }
        differing.retain(|number| real[*number as usize] != on_the_model(*number));
        if differing.is_empty() {
            break;
        }
        eprintln!("scripts {differing:?} differ");
    }
    let shown = differing.iter().take(4).map(|number| {
        let (real, model) = (&real[*number as usize], on_the_model(*number));
        let same = real
            .iter()
            .zip(&model)
            .take_while(|(real, model)| real == model)
            .count();
        let near = |lines: &[String]| lines[same.saturating_sub(8)..(same + 1).min(lines.len())].to_vec();
        format!("script {number}\nreal  {:#?}\nmodel {:#?}", near(real), near(&model))
    });
    let shown: Vec<String> = shown.collect();
    assert!(
        differing.is_empty(),
        "{} of {SCRIPTS} differ:\n{}",
        differing.len(),
        shown.join("\n")
    );
    for mutant in mutants {
        let caught = (0..)
            .zip(&real)
            .any(|(number, real)| *real != with_mutant(mutant, || on_the_model(number)));
        assert!(caught, "no script notices the error {mutant:?}");
    }
    let lines: usize = real.iter().map(Vec::len).sum();
    eprintln!("{SCRIPTS} scripts, {lines} lines, {} mutants caught", mutants.len());
}

/// Runs every script on a real server of its own, a few at once, and those again, alone, that differ from the model. `None`: there is no
/// server here.
fn timed_on_real(
    scripts: &[&str],
    run: impl AsyncFn(&Proxy, &str) -> Option<TimedLines> + Sync,
    differs: impl Fn(&str, &TimedLines) -> bool,
) -> Option<Vec<TimedLines>> {
    let proxy = Proxy::start().expect("a proxy on loopback");
    // one that panics differs: a server that is busy may not answer the calls that set it up
    let alone = |script: &str| {
        let played = catch_unwind(AssertUnwindSafe(|| in_real_time(run(&proxy, script))));
        played.unwrap_or_else(|_| Some(vec![(Duration::ZERO, "a panic, which is told above".into())]))
    };
    let mut transcripts = Vec::new();
    for scripts in scripts.chunks(TIMED_AT_ONCE) {
        // a question whether a server is ready blocks its thread
        std::thread::scope(|scope| {
            let batch: Vec<_> = scripts.iter().map(|script| scope.spawn(|| alone(script))).collect();
            transcripts.extend(
                batch
                    .into_iter()
                    .map(|script| script.join().expect("a script is performed")),
            );
        });
    }
    let mut transcripts: Vec<TimedLines> = transcripts.into_iter().collect::<Option<_>>()?;
    for (script, transcript) in scripts.iter().zip(&mut transcripts) {
        for _ in 0..REPEATS {
            if differs(script, transcript) {
                *transcript = alone(script)?;
            }
        }
    }
    Some(transcripts)
}

/// Checks that each timed script comes out on the model as on a real server: the times of a line may differ by its `tolerance`. Some script
/// must notice each mutant.
fn assert_same_times(
    scripts: &[&str],
    on_a_real_server: impl AsyncFn(&Proxy, &str) -> Option<TimedLines> + Sync,
    on_the_model: impl Fn(&str) -> TimedLines,
    tolerance: impl Fn(&str) -> Duration,
    mutants: &[&'static str],
) {
    let why = |script: &str, real: &TimedLines| difference(real, &on_the_model(script), &tolerance);
    let differs = |script: &str, real: &TimedLines| why(script, real).is_some();
    let Some(real) = timed_on_real(scripts, on_a_real_server, differs) else {
        return;
    };
    let complaints = || -> Vec<String> {
        let each = scripts.iter().zip(&real);
        each.filter_map(|(script, real)| Some(format!("{script}\n{}", why(script, real)?)))
            .collect()
    };
    let found = complaints();
    assert!(
        found.is_empty(),
        "{} of {}\n{}",
        found.len(),
        scripts.len(),
        found.join("\n\n")
    );
    for mutant in mutants {
        let noticed = with_mutant(mutant, complaints);
        assert!(!noticed.is_empty(), "no script notices the error {mutant:?}");
    }
}

/// Returns why two timed transcripts are not the same, if they are not.
fn difference(real: &TimedLines, model: &TimedLines, tolerance: impl Fn(&str) -> Duration) -> Option<String> {
    let same = |(one, other): (&(Duration, String), &(Duration, String))| {
        one.1 == other.1 && one.0.abs_diff(other.0) <= tolerance(&one.1)
    };
    let equal = real.len() == model.len() && real.iter().zip(model).all(same);
    (!equal).then(|| {
        let lines = |lines: &TimedLines| {
            let line = |(at, what): &(Duration, String)| format!("  {:>6} ms  {what}", at.as_millis());
            lines.iter().map(line).collect::<Vec<_>>().join("\n")
        };
        format!("real\n{}\nmodel\n{}", lines(real), lines(model))
    })
}

/// Runs on a real clock, on this thread.
fn in_real_time<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, work)
}
