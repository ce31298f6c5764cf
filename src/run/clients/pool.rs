//! The client pool: the lock clients of a run, their process numbers, and the processes that host them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use harness_workloads::protocol::OpenRequest;

use super::child::ClientSpawner;
use super::logical_client::LogicalClient;
use super::process::ClientProcess;
use crate::clock::GroundClock;
use crate::run::RunSpec;
use crate::run::context::RunContext;

/// All clients of a run.
pub struct ClientPool {
    pub processes: Vec<Arc<ClientProcess>>,
    pub spawner: Arc<dyn ClientSpawner>,
    next_process: AtomicU32,
    clock: GroundClock,
}

impl ClientPool {
    /// Returns the clients of a run, each with the request with which it opens.
    pub fn new(spec: &RunSpec, spawner: Arc<dyn ClientSpawner>, clock: GroundClock, opens: Vec<OpenRequest>) -> Self {
        let opens = (0..).zip(opens);
        let clients: Vec<_> = opens.map(|(number, open)| LogicalClient::new(number, open)).collect();
        let next_process = AtomicU32::new(clients.len() as u32);
        let process = |members: &[Arc<LogicalClient>]| {
            let log = spec.folder.clients().join(format!("c{}.log", members[0].number));
            Arc::new(ClientProcess::new(Arc::clone(&spawner), clock, log, members.to_vec()))
        };
        Self {
            processes: clients.chunks(spec.config.per_process as usize).map(process).collect(),
            spawner,
            next_process,
            clock,
        }
    }

    /// Starts every child and opens every client; fails with the first that fails.
    pub async fn open(&self, run: &Arc<RunContext>) -> Result<(), String> {
        let mut opening = run.clock.by.tasks();
        for process in &self.processes {
            let (process, run) = (Arc::clone(process), Arc::clone(run));
            opening.spawn(async move { process.open(&run).await });
        }
        while let Some(opened) = opening.next().await {
            opened?;
        }
        Ok(())
    }

    /// Returns each client and its process.
    pub fn clients(&self) -> impl Iterator<Item = (&Arc<ClientProcess>, &Arc<LogicalClient>)> {
        self.processes
            .iter()
            .flat_map(|process| process.members.iter().map(move |client| (process, client)))
    }

    /// Returns the number of acquires of each client.
    pub fn acquired(&self) -> Vec<u64> {
        self.clients()
            .map(|(_, client)| client.acquired.load(Relaxed))
            .collect()
    }

    /// Whether every client had an error as an answer.
    pub fn have_all_failed(&self) -> bool {
        self.clients().all(|(_, client)| client.failed.load(Relaxed) > 0)
    }

    /// Gives a client a new process number: its previous one never acts again.
    pub fn retire(&self, client: &LogicalClient) {
        client.become_process(self.next_process.fetch_add(1, Relaxed));
    }

    /// Closes every client and ends every child.
    pub async fn close(&self) {
        let mut closing = self.clock.tasks();
        for process in &self.processes {
            let process = Arc::clone(process);
            closing.spawn(async move { process.close().await });
        }
        closing.all().await;
    }
}
