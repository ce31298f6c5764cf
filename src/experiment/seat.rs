//! A child process and the clients in it: how it is started and started again, and what is made of what it says by itself.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use harness_checkers::history::event::{Fields, Process};
use harness_workloads::protocol::{Message, Op, SignalKind};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::timeout;

use super::child::{Child, ChildError, News, OnNews, Start};
use super::crew::Client;
use super::stage::Stage;
use crate::event::Event;
use crate::limits::{CLIENT_CLOSE, CLIENT_OPEN, MAX_RESTARTS};
use crate::wall_clock::WallClock;

/// A child process and the clients in it.
pub struct Seat {
    start: Start,
    log: PathBuf,
    who: String,
    members: Vec<Arc<Client>>,
    child: RwLock<Option<Arc<Child>>>,
    /// How often it was started again; held while somebody does.
    restarts: AsyncMutex<u32>,
    tenure: Mutex<Tenure>,
    /// Whether a fault killed its child: that is not the child's own doing.
    was_struck: AtomicBool,
    wall_clock: Option<Arc<WallClock>>,
}

/// Which child is the seat's, and whether it is over. A child that was replaced may tell of its end long after.
#[derive(Debug, Default)]
struct Tenure {
    /// Counts the children.
    child: u64,
    over: bool,
}

impl Seat {
    /// A seat without a child yet. `who` names it in errors.
    pub fn new(
        who: String,
        start: Start,
        log: PathBuf,
        members: Vec<Arc<Client>>,
        wall_clock: Option<Arc<WallClock>>,
    ) -> Self {
        Self {
            start,
            log,
            who,
            members,
            child: RwLock::default(),
            restarts: AsyncMutex::new(0),
            tenure: Mutex::default(),
            was_struck: AtomicBool::new(false),
            wall_clock,
        }
    }

    pub fn members(&self) -> &[Arc<Client>] {
        &self.members
    }

    /// The child to talk to now.
    pub fn child(&self) -> Option<Arc<Child>> {
        self.child
            .read()
            .expect("no one panics while holding a seat's child")
            .clone()
    }

    /// The child to talk to now, unless it is over.
    pub fn living(&self) -> Option<Arc<Child>> {
        self.child().filter(|_| !self.tenure().over)
    }

    pub fn clients(&self) -> Vec<u32> {
        self.members.iter().map(|member| member.number).collect()
    }

    pub fn hosts(&self, client: u32) -> bool {
        self.members.iter().any(|member| member.number == client)
    }

    pub fn wall_clock(&self) -> Option<Arc<WallClock>> {
        self.wall_clock.clone()
    }

    /// A fault kills the child: its next start is not held against it.
    pub fn struck(&self) {
        self.was_struck.store(true, Relaxed);
    }

    /// Kills a child that does not answer any more.
    pub fn kill(&self) {
        if let Some(child) = self.child() {
            child.kill();
        }
    }

    /// Starts a child and opens its clients.
    pub async fn open(self: &Arc<Self>, stage: &Arc<Stage>) -> Result<(), String> {
        let number = self.begin_tenure();
        let child = Child::start(&self.start, self.who.clone(), &self.log, self.on_news(number, stage))
            .await
            .map_err(|error| error.to_string())?;
        *self.child.write().expect("no one panics while holding a seat's child") = Some(Arc::clone(&child));
        for member in &self.members {
            let asked = timeout(CLIENT_OPEN, child.ask(member.number, Op::Open(member.open.clone()))).await;
            match asked {
                Ok(Some(Message::Ok { .. })) => {}
                Ok(Some(Message::Fail { error, .. } | Message::Info { error, .. })) => {
                    return Err(format!("client c{} could not open its session: {error}", member.number));
                }
                Ok(Some(Message::Signal(_))) => unreachable!("a signal is never a reply"),
                Ok(None) => return Err(self.why_it_ended(member, stage).await),
                Err(_) => {
                    return Err(format!(
                        "client c{} did not open within {}s",
                        member.number,
                        CLIENT_OPEN.as_secs()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Why a child ended while it was opening: its last words come a moment after its end.
    async fn why_it_ended(&self, member: &Client, stage: &Stage) -> String {
        let mut fate = member.fate();
        let _ = timeout(CLIENT_CLOSE * 2, fate.wait_for(|fate| fate.died_at.is_some())).await;
        let said = stage.failure().or_else(|| stage.tally.last_error());
        said.unwrap_or_else(|| {
            format!(
                "{} ended while it was opening (its log: {})",
                self.who,
                self.log.display()
            )
        })
    }

    /// Starts a new child in place of one that is over, unless another client of this seat already did. Returns whether
    /// there is a child to talk to; a client that is cut off from every server cannot open, and tries again.
    pub async fn revive(self: &Arc<Self>, stage: &Arc<Stage>) -> bool {
        let mut restarts = self.restarts.lock().await;
        if !self.tenure().over {
            return true;
        }
        if let Err(error) = self.open(stage).await {
            stage.tally.said(&error);
            self.kill();
            self.tenure().over = true;
            return false;
        }
        *restarts += u32::from(!self.was_struck.swap(false, Relaxed));
        if *restarts > MAX_RESTARTS {
            stage.fail(format!(
                "{} ended {MAX_RESTARTS} times; see {}",
                self.who,
                self.log.display()
            ));
        }
        true
    }

    /// Closes the clients and ends their child.
    pub async fn close(&self) {
        let Some(child) = self.child() else { return };
        for member in &self.members {
            let _ = timeout(CLIENT_CLOSE, child.ask(member.number, Op::Close)).await;
        }
        child.end().await;
    }

    fn tenure(&self) -> MutexGuard<'_, Tenure> {
        self.tenure.lock().expect("no one panics while holding a seat's tenure")
    }

    /// Another child takes the seat, alive; returns its number.
    fn begin_tenure(&self) -> u64 {
        let mut tenure = self.tenure();
        tenure.child += 1;
        tenure.over = false;
        for member in &self.members {
            member.fate.send_modify(|fate| fate.died_at = None);
        }
        tenure.child
    }

    /// Called for everything that a child says by itself, in its order. What one says that was replaced, its end among it,
    /// is of nobody who is there.
    fn on_news(self: &Arc<Self>, child: u64, stage: &Arc<Stage>) -> OnNews {
        let (seat, stage) = (Arc::clone(self), Arc::clone(stage));
        Arc::new(move |news| {
            let mut tenure = seat.tenure();
            match news {
                _ if tenure.child != child => {}
                News::Signal(signal) => seat.heard(&signal, &stage),
                News::Over { error, at } => {
                    tenure.over = true;
                    seat.is_over(&error, at, &stage);
                }
            }
        })
    }

    fn heard(&self, signal: &harness_workloads::protocol::Signal, stage: &Stage) {
        let Some(client) = self.members.iter().find(|member| member.number == signal.client) else {
            return stage.fail(format!(
                "{} raised a signal for client {}, which it does not host",
                self.who, signal.client
            ));
        };
        if !stage.recorder.is_of_this_run(signal.at) {
            return stage.fail(format!(
                "client c{} raised a signal at {}, which is no CLOCK_MONOTONIC of this run in nanoseconds",
                signal.client, signal.at
            ));
        }
        let f = match signal.f {
            SignalKind::Lost => "lost",
            SignalKind::Woken => "woken",
        };
        let cause = Some(signal.cause.as_str()).filter(|cause| !cause.is_empty());
        let fields = Fields {
            lock: Some(&signal.lock),
            cause,
            ..Fields::default()
        };
        stage.recorder.signal(
            Process::Client(client.process()),
            Some(client.number),
            f,
            fields,
            Some(signal.at),
        );
        if signal.f == SignalKind::Lost {
            stage.tally.lost.fetch_add(1, Relaxed);
            stage.progress.send(Event::Lost {
                client: client.number,
                cause: signal.cause.clone(),
            });
            client.fate.send_modify(|fate| fate.losses += 1);
        }
    }

    fn is_over(&self, error: &ChildError, at: u64, stage: &Stage) {
        stage.tally.said(&error.to_string());
        if error.is_lie() {
            self.kill();
            stage.fail(error.to_string());
        }
        for member in &self.members {
            member.fate.send_modify(|fate| fate.died_at = Some(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use harness_checkers::history::event::Header;
    use serde_json::json;

    use harness_workloads::protocol::Open;

    use super::*;
    use crate::config::Config;
    use crate::event::Progress;
    use crate::experiment::crew::{Crew, Muster};
    use crate::experiment::routes::Routes;
    use crate::experiment::{outset, recorder};

    /// A process of two clients: its first child cannot open, any other one can.
    fn seat_of_two(folder: &std::path::Path) -> (Crew, Arc<Stage>) {
        let header: Header = serde_json::from_value(json!({ "format": "harness-history", "version": 1 })).unwrap();
        let (recorder, _closer) = recorder::start(&folder.join("history.jsonl"), &header).unwrap();
        let (exchange, _notices) = outset::exchange(&Config::example());
        let stage = Arc::new(Stage::new(recorder, Progress::channel().0, exchange, Routes::default()));
        let script = r#"
            if mkdir tried 2>/dev/null; then
                read line; echo '{"type":"fail","id":1,"error":"no server"}'; exec sleep 60
            fi
            read line; echo '{"type":"ok","id":1}'; read line; echo '{"type":"ok","id":2}'; exec sleep 60
        "#;
        let script = format!("cd {}; {script}", folder.display());
        let open = Open {
            backend: "zk".into(),
            endpoints: Vec::new(),
            lease_ms: 1000,
        };
        let crew = Crew::new(Muster {
            start: Start {
                program: "sh".into(),
                args: vec!["-c".into(), script],
                env: Vec::new(),
            },
            per_process: 2,
            logs: folder.to_owned(),
            opens: vec![open.clone(), open],
            clocks: Vec::new(),
        });
        (crew, stage)
    }

    #[tokio::test]
    async fn the_late_end_of_a_child_that_was_replaced_is_not_its_successors() {
        let folder = tempfile::tempdir().unwrap();
        let (crew, stage) = seat_of_two(folder.path());
        let seat = &crew.seats[0];
        seat.begin_tenure();
        seat.tenure().over = true;
        assert!(!seat.revive(&stage).await, "the first child cannot open");
        assert!(seat.revive(&stage).await, "the second one can, at once");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(
            seat.living().is_some(),
            "the end of the first child was taken for the second's"
        );
        for (_, client) in crew.clients() {
            assert_eq!(client.fate().borrow().died_at, None);
        }
        seat.kill();
        let mut fate = crew.clients().next().unwrap().1.fate();
        fate.wait_for(|fate| fate.died_at.is_some()).await.unwrap();
        assert!(seat.living().is_none(), "its own end is");
    }
}
