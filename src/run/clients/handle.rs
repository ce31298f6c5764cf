//! The handle of a client process for faults: its child is stopped, continued or killed, with all processes that it started.

use std::sync::Arc;

use super::child::ClientChild;
use super::pool::ClientPool;
use super::process::ClientProcess;
use crate::faults::{ClientHosts, ProcessControl};
use crate::process::Activity;
use crate::wall_clock::WallClockControl;

/// The child of a process when it became the target; a later one is another process.
struct ProcessHandle {
    process: Arc<ClientProcess>,
    child: Arc<dyn ClientChild>,
}

impl ClientHosts for ClientPool {
    fn process_of(&self, client: u32) -> Option<Arc<dyn ProcessControl>> {
        let process = self.processes.iter().find(|process| process.hosts(client))?;
        let child = process.living()?;
        let process = Arc::clone(process);
        Some(Arc::new(ProcessHandle { process, child }))
    }
}

impl ProcessControl for ProcessHandle {
    fn clients(&self) -> Vec<u32> {
        self.process.clients()
    }

    fn stop(&self) -> bool {
        self.child.stop()
    }

    fn is_stopped(&self) -> bool {
        self.child.activity() == Activity::Stopped
    }

    fn go_on(&self) {
        self.child.go_on();
    }

    fn wall_clock(&self) -> Option<Arc<dyn WallClockControl>> {
        self.process.wall_clock()
    }

    fn kill(&self) -> bool {
        self.process.expect_kill();
        self.child.kill()
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::ClientAccess;
    use super::super::child::{ChildCommand, ChildEvent, ChildProcess, OnChildEvent};
    use super::*;

    #[tokio::test]
    async fn a_stopped_child_answers_only_after_the_last_of_its_stops() {
        let folder = tempfile::tempdir().unwrap();
        let script = r#"read x; echo '{"type":"ok","id":1}'; cat"#;
        let start = ChildCommand::of_shell(script.into(), ClientAccess::default());
        let deaf: OnChildEvent = Arc::new(|_: ChildEvent| {});
        let child = ChildProcess::start(&start, "c0".into(), &folder.path().join("log"), deaf)
            .await
            .unwrap();
        assert!(child.stop() && child.stop());
        let asked = Arc::clone(&child);
        let reply = tokio::spawn(async move { asked.ask(0, harness_workloads::protocol::ClientOp::Close).await });
        child.go_on();
        while child.activity() != Activity::Stopped {
            tokio::task::yield_now().await;
        }
        assert!(!reply.is_finished(), "one stop is left");
        child.go_on();
        assert!(reply.await.unwrap().is_some());
        assert!(child.kill());
    }
}
