//! The models against real servers, through the session traits: the same steps on both, and the same transcripts.
//!
//! Random scripts have answers without times, and the same errors in the model as in the server must show. Timed scripts go through links
//! that are stalled and reset, over the real proxy and over the simulated network, and say when each answer came. At last each model gets
//! an error (a mutant), and a script must notice. Where a server's program is missing the test says so, and passes.

mod etcd;
mod etcd_timed;
mod redis;
mod redis_timed;
mod servers;
mod stage;
mod zk;
mod zk_timed;

use std::future::Future;
use std::time::Duration;

use harness_proxy::Proxy;
use harness_workloads::SessionError;

use crate::mutants::with_mutant;

/// An answer without the words of its error.
fn plain<T: std::fmt::Debug>(answer: Result<T, SessionError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(SessionError::Definite(_)) => "definite".into(),
        Err(SessionError::Indefinite(_)) => "indefinite".into(),
        Err(SessionError::Lost(_)) => "lost".into(),
    }
}

/// What happened in a timed script, and when.
type TimedLines = Vec<(Duration, String)>;

/// Times of two lines that may differ: the machine is busy, and the server is another process.
const TOLERANCE: Duration = Duration::from_millis(150);

/// How often a timed script that differs is run again on the real server: a busy machine may be late, a wrong model always is.
const REPEATS: usize = 2;

/// Random scripts for each model and its real server.
const SCRIPTS: u64 = 200;
/// Scripts that run on a real server at once.
const AT_ONCE: u64 = 50;

/// What all random scripts say on a real server, in their order.
async fn transcripts<F>(run: impl Fn(u64) -> F) -> Vec<Vec<String>>
where
    F: Future<Output = Vec<String>> + 'static,
{
    let mut transcripts = Vec::new();
    for first in (0..SCRIPTS).step_by(AT_ONCE as usize) {
        let scripts = first..(first + AT_ONCE).min(SCRIPTS);
        let batch: Vec<_> = scripts.map(|number| tokio::task::spawn_local(run(number))).collect();
        for script in batch {
            transcripts.push(script.await.unwrap());
        }
    }
    transcripts
}

/// Checks that the model answers every random script as the real server did, and that some script notices each mutant.
fn assert_same_answers(real: &[Vec<String>], on_the_model: impl Fn(u64) -> Vec<String>, mutants: &[&'static str]) {
    let lines: usize = real.iter().map(Vec::len).sum();
    let differ = (0..).zip(real).filter_map(|(number, real)| {
        let model = on_the_model(number);
        let place = real.iter().zip(&model).position(|(real, model)| real != model)?;
        let before = place.saturating_sub(8);
        Some(format!(
            "script {number}\nreal  {:#?}\nmodel {:#?}",
            &real[before..=place],
            &model[before..=place]
        ))
    });
    let differ: Vec<String> = differ.collect();
    assert!(
        differ.is_empty(),
        "{} of {SCRIPTS} differ:\n{}",
        differ.len(),
        differ[..differ.len().min(4)].join("\n")
    );
    for mutant in mutants {
        let caught = (0..)
            .zip(real)
            .any(|(number, real)| *real != with_mutant(mutant, || on_the_model(number)));
        assert!(caught, "no script notices the error {mutant:?}");
    }
    eprintln!("{SCRIPTS} scripts, {lines} lines, {} mutants caught", mutants.len());
}

/// Runs every script on a real server, and those again that differ from the model. `None`: there is no server here.
fn timed_on_real<S>(
    scripts: &[S],
    run: impl AsyncFn(&Proxy, &S) -> Option<TimedLines>,
    differs: impl Fn(&S, &TimedLines) -> bool,
) -> Option<Vec<TimedLines>> {
    in_real_time(async {
        let proxy = Proxy::start().expect("a proxy on loopback");
        let mut transcripts = Vec::new();
        for script in scripts {
            let mut transcript = run(&proxy, script).await?;
            for _ in 0..REPEATS {
                if differs(script, &transcript) {
                    transcript = run(&proxy, script).await?;
                }
            }
            transcripts.push(transcript);
        }
        Some(transcripts)
    })
}

/// Why two timed transcripts are not the same, if they are not.
fn difference(real: &TimedLines, model: &TimedLines, tolerance: Duration) -> Option<String> {
    let same = |(one, other): (&(Duration, String), &(Duration, String))| {
        one.1 == other.1 && one.0.abs_diff(other.0) <= tolerance
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
