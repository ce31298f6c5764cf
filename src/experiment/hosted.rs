//! What client faults strike: the child process behind a seat, stopped, continued or killed with whatever it started.

use std::sync::Arc;

use nix::sys::signal::Signal;

use super::child::Child;
use super::crew::Crew;
use super::seat::Seat;
use crate::faults::{ClientProcess, Hosts};
use crate::wall_clock::WallClock;

/// The child that a seat had when it was aimed at; a later one is another process.
struct Hosted {
    seat: Arc<Seat>,
    child: Arc<Child>,
}

impl Hosts for Crew {
    fn process_of(&self, client: u32) -> Option<Arc<dyn ClientProcess>> {
        let seat = self.seats.iter().find(|seat| seat.hosts(client))?;
        let child = seat.living()?;
        let seat = Arc::clone(seat);
        Some(Arc::new(Hosted { seat, child }))
    }
}

impl ClientProcess for Hosted {
    fn clients(&self) -> Vec<u32> {
        self.seat.clients()
    }

    fn stop(&self) -> bool {
        self.child.stop()
    }

    fn is_stopped(&self) -> bool {
        self.child.is_stopped()
    }

    fn go_on(&self) {
        self.child.go_on();
    }

    fn wall_clock(&self) -> Option<Arc<WallClock>> {
        self.seat.wall_clock()
    }

    fn kill(&self) -> bool {
        self.seat.struck();
        self.child.signal(Signal::SIGKILL)
    }
}

#[cfg(test)]
mod tests {
    use super::super::child::{News, OnNews, Start};
    use super::*;

    #[tokio::test]
    async fn a_stopped_child_answers_only_after_the_last_of_its_stops() {
        let folder = tempfile::tempdir().unwrap();
        let start = Start {
            program: "sh".into(),
            env: Vec::new(),
            args: vec!["-c".into(), r#"read x; echo '{"type":"ok","id":1}'; cat"#.into()],
        };
        let deaf: OnNews = Arc::new(|_: News| {});
        let child = Child::start(&start, "c0".into(), &folder.path().join("log"), deaf)
            .await
            .unwrap();
        assert!(child.stop() && child.stop());
        let asked = Arc::clone(&child);
        let reply = tokio::spawn(async move { asked.ask(0, harness_workloads::protocol::Op::Close).await });
        child.go_on();
        while !child.is_stopped() {
            tokio::task::yield_now().await;
        }
        assert!(!reply.is_finished(), "one stop is left");
        child.go_on();
        assert!(reply.await.unwrap().is_some());
        assert!(child.signal(Signal::SIGKILL));
    }
}
