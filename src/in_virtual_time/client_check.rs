//! `harness client-check` in virtual time: the steps with servers take as long as the programs compute.

use std::sync::Arc;

use harness_simulation::World;
use tokio::runtime::Handle;

use super::machine::KeptMachine;
use super::{ground, machine, unhindered};
use crate::run::client_check::{CheckGround, CheckPlace, ClientCheck};
use crate::run::{self, Ground, RunError, RunSpec};
use crate::simulated::address_of;

/// Makes the steps of a check that need servers, on those of a run that is never made.
pub async fn check_client(check: Arc<ClientCheck>, spec: RunSpec) -> Result<(), RunError> {
    let runtime = Handle::current();
    let seed = run::world_seed(&spec.config);
    run::on_a_thread(move || World::run(seed, |world| in_world(world, check, spec, runtime))).await?
}

async fn in_world(world: World, check: Arc<ClientCheck>, mut spec: RunSpec, runtime: Handle) -> Result<(), RunError> {
    run::hear_interrupt(world, &mut spec);
    let machine = machine(world, &spec, runtime, Arc::default()).await?;
    let made = unhindered(machine, played(machine, &check, &spec)).await;
    machine.get().end();
    made
}

async fn played(machine: KeptMachine, check: &ClientCheck, spec: &RunSpec) -> Result<(), RunError> {
    let (laid, cluster) = ground(machine, spec).await?;
    let Ground {
        clock,
        clients,
        links,
        servers,
        observe,
        exchange,
        mut notices,
        ..
    } = laid;
    // notices of messages, which nobody counts here
    let unheard = clock.spawn(async move { while notices.recv().await.is_some() {} });
    let backend = spec.config.backend;
    let port = backend.software.ports[0];
    let told = backend.told_of(spec.config.nodes);
    let ground = CheckGround {
        place: CheckPlace {
            clock,
            spawner: clients.spawner,
        },
        endpoints: told
            .map(|server| address_of(server as usize, port).to_string())
            .collect(),
        servers: servers.watch_endpoints(),
        observe,
    };
    let checked = check.together(&ground, spec.interrupt.clone()).await;
    unheard.end().await;
    drop((links, exchange));
    cluster.stop().await;
    checked
}
