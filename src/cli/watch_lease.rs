//! `harness watch-lease`: judges candidates that harness did not start, by their logs and the Lease on its API server.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use harness_checkers::{Options, ReadOptions};
use regex::Regex;
use tokio::sync::mpsc::unbounded_channel;

use super::Failure;
use super::check::show;
use super::examined::{examine, exit_of};
use super::interrupt::interrupted;
use super::kube_args::WatchLeaseArgs;
use super::report;
use crate::exit::Exit;
use crate::kube::terms::{LeaderTerm, LineSays, SeenHolder, history, terms};
use crate::kube::{ApiAddress, ApiCallError, FollowedLine, LeaseNews, LeaseWatcher, LogSource, follow, monotonic_ns};
use crate::report::terminal::Look;
use crate::store::{self, Stored};

/// Pause before a lost API server is called again.
const AGAIN: Duration = Duration::from_millis(500);

pub fn watch_lease(args: &WatchLeaseArgs, look: Look) -> Result<Exit, Failure> {
    let (namespace, name) = args.lease.split_once('/').unwrap_or(("default", &args.lease));
    if ![namespace, name].into_iter().all(is_name) {
        return Err(Failure::usage(format!(
            "expected the namespace and name of a Lease, such as default/my-operator, and not {:?}",
            args.lease
        )));
    }
    let token = args.token_file.as_deref().map(token).transpose()?;
    let address = ApiAddress::read(&args.server, token).map_err(Failure::usage)?;
    let logs = logs(&args.log)?;
    let runtime = super::runtime();
    let mut watcher = LeaseWatcher::new(address, namespace, Some(name));
    let first = runtime.block_on(watcher.next()).map_err(|error| match error {
        ApiCallError::Unreachable(why) => Failure::environment(format!(
            "{why}\nhint: `kubectl proxy` serves the API server at http://127.0.0.1:8001; --server has another address"
        )),
        refused @ ApiCallError::Refused { .. } => Failure::environment(refused),
    })?;
    let run = format!("{}-watch-{name}", store::minute_now());
    let (run, folder) = store::create(&args.results, &run).map_err(Failure::environment)?;
    let start = monotonic_ns();
    let watched = runtime.block_on(watch_all(args, &logs, first, watcher));
    let terms = terms(&watched.lines, start, args.log_delay.as_nanos() as u64);
    let path = folder.join("history.jsonl");
    let candidates: Vec<&str> = logs.keys().map(String::as_str).collect();
    let text = history(&run, name, &candidates, &terms, &watched.holders, start);
    store::write_text(&path, &text).map_err(Failure::environment)?;
    let stored = Stored {
        folder: Some(folder),
        history: path,
        info: None,
    };
    let mut examined = examine(&stored, &ReadOptions::default(), &Options::default())?;
    let diagnosis = &mut examined.diagnosis;
    // the cause is derived for the clients and servers of a run
    let violations = diagnosis
        .findings
        .iter_mut()
        .flat_map(|finding| &mut finding.violations);
    violations.for_each(|violation| violation.likely = None);
    diagnosis.notes.extend(notes(&logs, &terms));
    if args.campaign.is_none() && exit_of(diagnosis) == Exit::Violated {
        diagnosis.notes.push(KILLED.to_owned());
    }
    if let Some(hint) = hint(&terms) {
        diagnosis.effect.hint = Some(hint.to_owned());
    }
    report::write(&stored, &mut examined).map_err(Failure::environment)?;
    show(&examined.diagnosis, args.json, look);
    Ok(exit_of(&examined.diagnosis))
}

/// <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names>
fn is_name(text: &str) -> bool {
    let is_of_it = |letter: char| matches!(letter, 'a'..='z' | '0'..='9' | '-' | '.');
    !text.is_empty() && text.chars().all(is_of_it)
}

fn token(file: &Path) -> Result<String, Failure> {
    let token = std::fs::read_to_string(file);
    let token =
        token.map_err(|error| Failure::usage(format!("could not read --token-file {}: {error}", file.display())))?;
    Ok(token.trim().to_owned())
}

/// Returns the logs by the names of their candidates.
fn logs(texts: &[String]) -> Result<BTreeMap<String, LogSource>, Failure> {
    let mut logs = BTreeMap::new();
    for text in texts {
        let named = text
            .split_once('=')
            .filter(|(name, source)| !name.is_empty() && !source.is_empty());
        let (name, source) = named
            .ok_or_else(|| Failure::usage(format!("expected NAME=FILE or NAME=command: LINE, and not {text:?}")))?;
        let source = match source.strip_prefix("command:") {
            Some(line) => LogSource::Command(line.trim().to_owned()),
            None => {
                let unreadable = |error: std::io::Error| {
                    Failure::usage(format!(
                        "could not read the log {source}: {error}\nhint: a new log: touch {source}"
                    ))
                };
                std::fs::File::open(source).map_err(unreadable)?;
                LogSource::File(PathBuf::from(source))
            }
        };
        if logs.insert(name.to_owned(), source).is_some() {
            return Err(Failure::usage(format!(
                "there are two logs of {name}\nhint: one --log for each candidate"
            )));
        }
    }
    Ok(logs)
}

/// The lines of the logs and the holders of the Lease until the end of the watch.
#[derive(Default)]
struct WatchedLease {
    lines: Vec<(LineSays, FollowedLine)>,
    holders: Vec<SeenHolder>,
}

async fn watch_all(
    args: &WatchLeaseArgs,
    logs: &BTreeMap<String, LogSource>,
    first: LeaseNews,
    watcher: LeaseWatcher,
) -> WatchedLease {
    let (sender, mut lines) = unbounded_channel();
    let mut followers = tokio::task::JoinSet::new();
    for (candidate, source) in logs.values().enumerate() {
        followers.spawn(follow(candidate, source.clone(), args.clock_error, sender.clone()));
    }
    drop(sender);
    let mut watched = WatchedLease::default();
    let mut stop = interrupted();
    let over = tokio::time::sleep(args.time.unwrap_or(Duration::from_secs(365 * 24 * 3600)));
    tokio::pin!(over);
    watched.add_news(first);
    if watched.holders.iter().all(|seen| seen.lease.is_none()) {
        eprintln!("warning: there is no Lease {} yet", args.lease);
    }
    // a stream, because a line of a log would cancel the call and start it anew
    let news = stream::unfold(watcher, |mut watcher| async move {
        let news = watcher.next().await;
        if news.is_err() {
            tokio::time::sleep(AGAIN).await;
        }
        Some((news, watcher))
    });
    tokio::pin!(news);
    let mut lost = None;
    loop {
        tokio::select! {
            () = &mut over => break,
            _ = stop.wait_for(|stop| *stop) => break,
            Some(line) = lines.recv() => watched.read(args, line),
            Some(ended) = followers.join_next() => {
                if let Ok(Err(why)) = ended {
                    eprintln!("warning: {why}");
                }
                if followers.is_empty() {
                    eprintln!("warning: no log is followed any more");
                    break;
                }
            }
            Some(told) = news.next() => match told {
                Ok(told) => {
                    lost = None;
                    watched.add_news(told);
                }
                Err(error) => {
                    if lost.as_ref() != Some(&error) {
                        eprintln!("warning: {error}");
                    }
                    lost = Some(error);
                }
            },
        }
    }
    // lines from before the end
    while let Ok(line) = lines.try_recv() {
        watched.read(args, line);
    }
    watched
}

impl WatchedLease {
    fn read(&mut self, args: &WatchLeaseArgs, line: FollowedLine) {
        let is = |wanted: &Regex| wanted.is_match(&line.text);
        let says = match () {
            () if is(&args.stopped) => LineSays::Stopped,
            () if args.campaign.as_ref().is_some_and(is) => LineSays::Campaigning,
            () if is(&args.leading) => LineSays::Leading,
            () if args.working.as_ref().is_some_and(is) => LineSays::Working,
            () => return,
        };
        self.lines.push((says, line));
    }

    fn add_news(&mut self, news: LeaseNews) {
        let at = monotonic_ns();
        let lease = match news {
            LeaseNews::Alive => return,
            LeaseNews::All(all) => all.into_iter().next(),
            LeaseNews::Changed(lease) => Some(lease),
            LeaseNews::Deleted(_) => None,
        };
        self.holders.push(SeenHolder { at, lease });
    }
}

/// The note on a violation that may be a false alarm.
const KILLED: &str = "a process that was killed has no end in its log: if its successor there may have written the --stopped line without \
                      having led, --campaign tells them apart";

/// Returns a note for each candidate: the number of its terms and how many are certain.
fn notes(logs: &BTreeMap<String, LogSource>, terms: &[LeaderTerm]) -> Vec<String> {
    let note = |(candidate, name): (usize, &String)| {
        let its = || terms.iter().filter(|term| term.candidate == candidate);
        let certain = || its().filter(|term| term.is_certain());
        let led_ns: u64 = certain().map(|term| term.led_until - term.began).sum();
        let (all, certain, seconds) = (its().count(), certain().count(), led_ns as f64 / 1e9);
        format!("c{candidate} is {name}: terms {all}, certain {certain}, for {seconds:.1}s together")
    };
    logs.keys().enumerate().map(note).collect()
}

/// Returns the option to change if no term is certain.
fn hint(terms: &[LeaderTerm]) -> Option<&'static str> {
    if terms.is_empty() {
        Some("no line matched --leading: --working proves the term of a candidate that led before the watch began")
    } else if terms.iter().any(LeaderTerm::is_certain) {
        None
    } else {
        Some("no line matched --stopped or --working late enough, so the end of a term is not known")
    }
}
