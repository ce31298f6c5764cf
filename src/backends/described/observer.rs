//! The observer of a described store: a command that prints grants and revocations, one JSON object a line.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout};

use super::commands::shell;
use super::{StoreDescription, Template};
use crate::backends::lock_keys::LockKeys;
use crate::backends::observer::{ObservationLog, Unasked, observing};
use crate::backends::owners::Contender;
use crate::backends::{ConnectingObserver, Observe};
use crate::cluster::EndpointsReceiver;
use crate::process;

/// The name of its source in the history.
const SOURCE: &str = "store";
/// The time without a line after which the store is out of sight: the command prints `alive` several times a second.
const SILENT: Duration = Duration::from_secs(1);

/// A line of the command's output.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "f", rename_all = "lowercase", deny_unknown_fields)]
enum ObservedLine {
    Granted {
        lock: String,
        owner: Option<String>,
        token: Option<u64>,
    },
    Revoked {
        lock: String,
        owner: Option<String>,
        token: Option<u64>,
        cause: Option<Unasked>,
    },
    /// There was no other event until now.
    Alive,
}

/// Returns the connector of the observer with this command.
pub fn of(store: &'static StoreDescription, command: &'static Template) -> Observe {
    let connect = move |endpoints: EndpointsReceiver, keys: LockKeys| {
        let mut observer = CommandObserver {
            store,
            command,
            endpoints,
            keys,
            running: None,
        };
        let connecting: ConnectingObserver = Box::pin(async move {
            observer.start().await?;
            Ok(observing(move |log| observer.observe(log)))
        });
        connecting
    };
    Box::leak(Box::new(connect))
}

struct CommandObserver {
    store: &'static StoreDescription,
    command: &'static Template,
    endpoints: EndpointsReceiver,
    keys: LockKeys,
    /// The command and its output; dropping it kills the command.
    running: Option<(Child, Lines<BufReader<ChildStdout>>)>,
}

/// The owners of each granted lock, the latest last: several of a lock that is shared.
#[derive(Debug, Default)]
struct Granted(BTreeMap<String, Vec<Contender>>);

impl Granted {
    /// Adds a grant, unless it is the latest: a restarted command reports it again. Returns whether it is added.
    fn add(&mut self, lock: &str, contender: &Contender) -> bool {
        let owners = self.0.entry(lock.to_owned()).or_default();
        let is_new = owners.last() != Some(contender);
        if is_new {
            owners.push(contender.clone());
        }
        is_new
    }

    /// Removes the grant that a revocation is of, and returns its contender: that of the revocation if no such grant is known.
    fn remove(&mut self, lock: &str, revoked: Contender) -> Contender {
        let owners = self.0.entry(lock.to_owned()).or_default();
        let place = owners.iter().rposition(|owner| is_same(owner, &revoked));
        place.map_or(revoked, |place| owners.remove(place))
    }
}

impl CommandObserver {
    /// Starts the command. The error has the reason for a failure.
    async fn start(&mut self) -> Result<(), String> {
        let servers = self.endpoints.borrow().servers();
        let values = self
            .store
            .of_servers(&servers, self.keys.mark.as_deref().unwrap_or_default());
        let line = self.command.fill(&values);
        let mut command = shell(&line, self.store.folder());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let child = process::spawn(command).await;
        let mut child = child.map_err(|error| format!("`{line}`: {error}"))?;
        let output = child.stdout.take().expect("its output is piped");
        self.running = Some((child, BufReader::new(output).lines()));
        Ok(())
    }

    /// Returns the next line of the observer, or `None` if the command ended, or printed something else.
    async fn next(&mut self) -> Option<ObservedLine> {
        let (_, lines) = self.running.as_mut()?;
        let line = lines.next_line().await.ok().flatten()?;
        serde_json::from_str(&line).ok()
    }

    async fn observe(mut self, log: ObservationLog) {
        let mut granted = Granted::default();
        let mut heard = log.clock.now_ns();
        let mut is_lost = false;
        // a command that never prints it may be quiet
        let mut prints_alive = false;
        loop {
            let next = self.next();
            let line = match prints_alive && !is_lost {
                true => log.clock.within_real(SILENT, next).await,
                false => Some(next.await),
            };
            let Some(line) = line else {
                log.lost(SOURCE, heard);
                is_lost = true;
                continue;
            };
            let at = log.clock.now_ns();
            if let Some(line) = line {
                prints_alive |= line == ObservedLine::Alive;
                if is_lost {
                    log.back(SOURCE);
                    is_lost = false;
                }
                self.saw(line, at, &mut granted, &log);
                heard = at;
                continue;
            }
            if !is_lost {
                log.lost(SOURCE, heard);
                is_lost = true;
            }
            for (lock, owners) in std::mem::take(&mut granted).0 {
                for owner in owners {
                    log.lost_sight(&lock, &owner, at);
                }
            }
            log.pause().await;
            // the next one is tried when this one ends
            let _ = self.start().await;
        }
    }

    fn saw(&self, line: ObservedLine, at: u64, granted: &mut Granted, log: &ObservationLog) {
        match line {
            ObservedLine::Alive => {}
            ObservedLine::Granted { lock, owner, token } => {
                let Some(lock) = self.keys.lock_at(&lock) else { return };
                let contender = Contender { owner, token };
                if granted.add(&lock, &contender) {
                    log.granted(&lock, &contender, at);
                }
            }
            ObservedLine::Revoked {
                lock,
                owner,
                token,
                cause,
            } => {
                let Some(lock) = self.keys.lock_at(&lock) else { return };
                let ended = granted.remove(&lock, Contender { owner, token });
                log.ended(&lock, &ended, cause.unwrap_or(Unasked::Unknown), at);
            }
        }
    }
}

/// Whether a revocation, which may lack owner and token, is of this grant.
fn is_same(known: &Contender, revoked: &Contender) -> bool {
    let owner = revoked.owner.is_none() || revoked.owner == known.owner;
    let token = revoked.token.is_none() || revoked.token == known.token;
    owner && token
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_holder_of_a_shared_lock_is_known_until_its_end() {
        let holder = |token: u64| Contender {
            owner: Some(format!("c{token}")),
            token: Some(token),
        };
        let mut granted = Granted::default();
        assert!((1..=3).all(|token| granted.add("l0", &holder(token))));
        assert!(!granted.add("l0", &holder(3)), "reported again");
        let unnamed = |token| Contender { owner: None, token };
        assert_eq!(granted.remove("l0", unnamed(Some(2))), holder(2));
        assert_eq!(granted.remove("l0", holder(4)), holder(4), "of no known grant");
        assert_eq!(granted.0["l0"], [holder(1), holder(3)]);
        assert_eq!(granted.remove("l0", unnamed(None)), holder(3), "the latest");
    }

    #[test]
    fn lines_of_an_observer_are_read_and_others_are_not() {
        let line = |text: &str| serde_json::from_str::<ObservedLine>(text);
        let granted = line(r#"{"f":"granted","lock":"l0","owner":"a","token":3}"#).unwrap();
        assert!(matches!(granted, ObservedLine::Granted { token: Some(3), .. }));
        let revoked = line(r#"{"f":"revoked","lock":"l0","cause":"expired"}"#).unwrap();
        assert!(matches!(
            revoked,
            ObservedLine::Revoked {
                cause: Some(Unasked::Expired),
                ..
            }
        ));
        assert_eq!(line(r#"{"f":"alive"}"#).unwrap(), ObservedLine::Alive);
        for other in [
            "",
            "hello",
            r#"{"f":"granted"}"#,
            r#"{"f":"granted","lock":"l0","ownr":"a"}"#,
            r#"{"f":"revoked","lock":"l0","cause":"unknown"}"#,
        ] {
            assert!(line(other).is_err(), "{other}");
        }
    }
}
