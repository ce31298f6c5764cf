//! Runs of real, unmodified servers and clients in virtual time (`--runtime virtual`): the programs of this machine as processes whose
//! time, waits, network and random numbers are a world's ([`harness_simulation`]).
//!
//! [`execute`] corresponds to [`run::execute`](crate::run::execute) in real time. A run is a function of its configuration, its seed and
//! the programs: made twice, it has the same history, byte by byte. The network is the simulated one; the library that is loaded into each
//! process is in `loaded/`, and [`page`] is the memory that both share. `docs/virtual.md` has the parts that are real.

mod breakpoint;
mod client_check;
mod clients;
mod disk;
mod ends;
mod family;
mod fork_server;
mod hindrance;
mod library;
mod links;
mod machine;
mod memory;
mod network;
mod numbers;
#[expect(dead_code, reason = "harness uses one part of it, and the library another")]
mod page;
mod page_disk;
mod processes;
mod refusal;
mod routes;
mod servers;
mod startup;
mod streams;
#[cfg(test)]
mod tests;
mod trace;
mod wall_clock;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use harness_simulation::World;
use tokio::runtime::Handle;

pub use breakpoint::Breakpoint;
pub use client_check::check_client;
pub use fork_server::ForkServer;
pub use refusal::refusal;

use crate::clock::GroundClock;
use crate::cluster::{Cluster, ClusterError, ClusterParts, Node, NotWritten, ProbedServer, ProductQueries, probed};
use crate::config::Clients;
use crate::event::ProgressEvent;
use crate::limits::READY_POLL;
use crate::run::{self, ClientPool, ConnectObserver, Ground, OnLine, RunError, RunOutcome, RunSpec};
use crate::simulated::address_of;
use crate::wall_clock::WallClockControl;
use clients::FamilySpawner;
use machine::{KeptMachine, WorldMachine};
use servers::{FamilyNodes, FamilyServers, FamilyServersHandle, ServerPorts, peers, ports_of, reached};
use startup::execute_static;
use wall_clock::FamilyClock;

/// The uptime of a machine when a run begins: programs take the time 0 for none.
const UPTIME: Duration = Duration::from_secs(100);

/// The note of a run where the kernel draws the addresses of programs.
const ADDRESSES: &str = "the kernel draws the addresses of programs here, so a replay may differ; in Docker, \
    --security-opt seccomp=unconfined keeps them";

/// Makes the run, on a thread of its own, which stops at a breakpoint if there is one. The history is complete and on disk when this
/// returns, and nothing of the run is left but the fork server, which may be that of several runs.
pub async fn execute(breakpoint: Option<Breakpoint>, spec: RunSpec, fork_server: Arc<ForkServer>) -> RunOutcome {
    let runtime = Handle::current();
    let seed = run::world_seed(&spec.config);
    let in_world = move |world| in_world(world, breakpoint, spec, runtime, fork_server);
    let made = run::on_a_thread(move || World::run(seed, in_world)).await;
    made.unwrap_or_else(RunOutcome::not_made)
}

async fn in_world(
    world: World,
    breakpoint: Option<Breakpoint>,
    mut spec: RunSpec,
    runtime: Handle,
    fork_server: Arc<ForkServer>,
) -> RunOutcome {
    let mut outcome = RunOutcome::default();
    run::hear_interrupt(world, &mut spec);
    let machine = match machine(world, &spec, runtime, fork_server).await {
        Ok(machine) => machine,
        Err(error) => return RunOutcome::not_made(error),
    };
    let on_line = breakpoint.map(|breakpoint| breakpoint.on_line(machine));
    let made = unhindered(machine, attempt(machine, Arc::new(spec), on_line, &mut outcome)).await;
    outcome.error = made.err();
    let _ = std::mem::take(&mut outcome.teardown).run().await;
    machine.get().end();
    outcome
}

/// Makes a machine for the processes of `world`, and lets its uptime pass.
async fn machine(
    world: World,
    spec: &RunSpec,
    runtime: Handle,
    fork_server: Arc<ForkServer>,
) -> Result<KeptMachine, RunError> {
    world.sleep(UPTIME).await;
    let draws = (spec.config.seed, spec.config.threads_by_seed);
    let machine = WorldMachine::lay_out(world, draws, runtime, fork_server).map_err(RunError::Clients)?;
    let traces = trace::lay_out(std::env::var_os(trace::VARIABLE), &spec.name, machine.folder());
    traces.map_err(|error| RunError::Clients(format!("could not make the folder of traces: {error}")))?;
    Ok(world.keep(machine))
}

/// Returns the result of `work`, or the reason for which a family blocks the world: that says more than the errors that follow from it.
async fn unhindered(machine: KeptMachine, work: impl Future<Output = Result<(), RunError>>) -> Result<(), RunError> {
    let failed = Arc::clone(&machine.get().failed);
    let made = tokio::select! {
        biased;
        made = work => made,
        _ = failed.wait() => Ok(()),
    };
    failed.get().map_or(made, |why| Err(RunError::Clients(why.clone())))
}

async fn attempt(
    machine: KeptMachine,
    spec: Arc<RunSpec>,
    on_line: Option<OnLine>,
    outcome: &mut RunOutcome,
) -> Result<(), RunError> {
    if let Some(why) = refusal(&spec.config) {
        return Err(RunError::Clients(why));
    }
    if !memory::may_lie_still() {
        spec.progress.send(ProgressEvent::Note(ADDRESSES.to_owned()));
    }
    let (ground, cluster) = ground(machine, &spec).await?;
    let ground = Ground { on_line, ..ground };
    let played = run::play(spec, ground, outcome).await;
    cluster.stop().await;
    played
}

/// Makes servers that serve, links and clients on a machine.
async fn ground(machine: KeptMachine, spec: &RunSpec) -> Result<(Ground, Cluster), RunError> {
    let (config, world) = (&spec.config, machine.world());
    let clock = GroundClock::Virtual(world);
    let software = config.backend.software;
    let count = config.nodes + spec.plan.replicas;
    let ports: Vec<ServerPorts> = (0..count).map(|_| ports_of(world, software)).collect();
    let servers = FamilyServers::new(machine.get(), spec, &ports);
    let servers = world.keep(servers);
    let (exchange, notices) = run::exchange(config);
    let links = links::of_clients(machine, config, &exchange);
    let peer_links = links::between_servers(machine, config, count);
    let cluster = started(servers, spec).await?;
    let server_clocks = servers.get().clocks();
    let server_clocks = server_clocks.into_iter().filter(|_| spec.plan.steps_clocks);
    let served = ports.iter().map(|ports| ports[0]).collect();
    let ground = Ground {
        clock,
        clients: client_pool(machine, served, spec)?,
        links,
        peer_links,
        servers: cluster.control(),
        version: cluster.version.clone(),
        server_clocks: server_clocks.map(|clock| clock as Arc<dyn WallClockControl>).collect(),
        server_disks: servers.get().gates(),
        observe: config
            .backend
            .observe
            .map(|observe| Box::new(observe) as ConnectObserver),
        sweep: None,
        exchange,
        notices,
        on_line: None,
    };
    Ok((ground, cluster))
}

/// Starts the servers and waits until all of them serve.
async fn started(servers: FamilyServersHandle, spec: &RunSpec) -> Result<Cluster, RunError> {
    let (config, software) = (&spec.config, spec.config.backend.software);
    let peers = peers(spec);
    let node = |server: u32| Node {
        name: format!("n{}", server + 1),
        address: address_of(server as usize, software.ports[0]),
        log: servers.get().log(server as usize),
        peer_proxy: peers.get(server as usize).copied(),
    };
    let nodes: Vec<Node> = (0..config.nodes + spec.plan.replicas).map(node).collect();
    let reach = reached(servers);
    let dialled = |server: ProbedServer| ProbedServer {
        reach: reach.clone(),
        ..server
    };
    let members = servers.get().addresses();
    let probes: Vec<ProbedServer> = probed(&nodes, &members, None).into_iter().map(dialled).collect();
    for server in 0..nodes.len() {
        servers.get().start(server)?;
    }
    let mut version = String::new();
    for (server, node) in probes.iter().zip(&nodes) {
        let deadline = reach.clock.after(config.start_limit);
        let ask = || (software.probe)(server.clone());
        let serving = reach.clock.try_until(deadline, READY_POLL, ask).await;
        version = serving
            .map(|serving| serving.version)
            .map_err(|why| ClusterError::NotReady {
                product: software.product,
                node: node.name.clone(),
                why: format!("{why}   ({})", node.log.display()),
                after: config.start_limit,
            })?;
    }
    servers.get().have_begun()?;
    if let Some(asked) = &spec.choice.version {
        asked.check(software.product, &version)?;
    }
    spec.progress.send(ProgressEvent::ClusterReady {
        took: Duration::ZERO,
        summary: format!(
            "{} {version} ×{} in virtual time",
            config.backend.product(),
            nodes.len()
        ),
    });
    Ok(Cluster::assemble(ClusterParts {
        nodes,
        version,
        primary: (spec.plan.replicas > 0).then_some(0),
        login: None,
        tls: None,
        relays: Vec::new(),
        running: Box::new(FamilyNodes { servers }),
        queries: Arc::new(ProductQueries {
            software,
            servers: probes,
        }),
        reach,
    }))
}

fn client_pool(machine: KeptMachine, served: ServerPorts, spec: &RunSpec) -> Result<ClientPool, RunError> {
    let (config, world) = (&spec.config, machine.world());
    let logs = spec.folder.clients();
    std::fs::create_dir_all(&logs).map_err(NotWritten::at(&logs))?;
    let firsts = (0..config.clients).step_by(config.per_process as usize);
    let port = config.backend.software.ports[0];
    let forks = matches!(&config.who, Clients::Foreign { promise, .. } if promise.forks == Some(true));
    let clock = |first| (first, Arc::new(FamilyClock::new(world)));
    let clocks: BTreeMap<u32, Arc<FamilyClock>> = firsts.map(clock).collect();
    let mut command = run::client_command(config, None, None)?;
    execute_static(&mut command.program, &mut command.args);
    let spawner = FamilySpawner {
        machine,
        command,
        served,
        clocks,
        steps_clocks: spec.plan.steps_clocks,
        forks: Arc::new(AtomicBool::new(forks)),
    };
    // clients reach a server at the address that it announces
    let address = |_, server: u32| address_of(server as usize, port).to_string();
    let opens = run::opens(config, &peers(spec), address);
    Ok(ClientPool::new(
        spec,
        Arc::new(spawner),
        GroundClock::Virtual(world),
        opens,
    ))
}
