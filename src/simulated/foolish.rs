//! Foolish clients on models, without a lock: two that loop, and one that always answers at once and wrongly.

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::time::Duration;

    use async_trait::async_trait;
    use harness_simulation::World;
    use harness_workloads::protocol::AcquireRequest;
    use harness_workloads::{LockClient, LockError, LockGrant, LockResult, RecipeHost, RecipeOptions};

    use super::super::clients::SimulatedSpawner;
    use super::super::execute_on;
    use crate::backends;
    use crate::clock::GroundClock;
    use crate::cluster::{Cluster, Runtime};
    use crate::config::{Clients, Config, FaultRequest};
    use crate::run::{self, ClientPool, Ground, RunOutcome, RunSpec};

    /// A client that grants every acquire, up to its tenth request.
    struct FoolishLock {
        kind: String,
        host: Rc<dyn RecipeHost>,
        asked: u32,
    }

    #[async_trait(?Send)]
    impl LockClient for FoolishLock {
        async fn open(&mut self) -> LockResult<LockGrant> {
            Ok(LockGrant::default())
        }

        async fn acquire(&mut self, _: &AcquireRequest) -> LockResult<LockGrant> {
            self.asked += 1;
            match &*self.kind {
                _ if self.asked < 10 => Ok(LockGrant::default()),
                "loops" => loop {
                    self.host.sleep(Duration::ZERO).await;
                },
                "spins" => loop {
                    std::hint::spin_loop();
                },
                _ => Err(LockError::Unknown("no such server".into())),
            }
        }

        async fn release(&mut self, _: &str) -> LockResult<()> {
            Ok(())
        }

        async fn close(&mut self) {}
    }

    /// Returns a ground with clients of the kind that is the run's name.
    fn ground(world: World, spec: &RunSpec) -> (Ground, Cluster) {
        let (ground, cluster) = super::super::ground(world, spec);
        let kind = spec.name.clone();
        let spawner = SimulatedSpawner {
            world,
            make: Arc::new(move |_, process, _| {
                Box::new(FoolishLock {
                    kind: kind.clone(),
                    host: process.host(),
                    asked: 0,
                })
            }),
            contract: RecipeOptions::named("redis-set-px-lua").unwrap().contract(),
            steps_clocks: false,
        };
        let opens = run::opens(&spec.config, &[], |_, _| String::new());
        let clients = ClientPool::new(spec, Arc::new(spawner), GroundClock::Virtual(world), opens);
        (Ground { clients, ..ground }, cluster)
    }

    fn run_of(kind: &str) -> RunOutcome {
        let options = RecipeOptions::named("redis-set-px-lua").unwrap();
        let config = Config {
            backend: backends::of(options.recipe.backend),
            nodes: 1,
            clients: 5,
            who: Clients::Recipe(options),
            faults: vec![FaultRequest::read("latency")],
            lease: Duration::from_secs(1),
            time: Duration::from_secs(15),
            ..Config::example()
        };
        let spec = RunSpec {
            name: kind.into(),
            in_memory: true,
            ..RunSpec::of_test(config, Path::new("unused"), Runtime::Simulated)
        };
        execute_on(ground, spec)
    }

    #[test]
    fn a_client_that_loops_ends_the_run_and_is_named() {
        let error = run_of("loops").error.expect("it cannot go on").to_string();
        assert!(
            error.starts_with('c') && error.contains("loops without letting time pass"),
            "{error}"
        );
    }

    #[test]
    fn a_client_that_never_comes_back_ends_harness_and_is_named() {
        const WITHIN: &str = "TEST_OF_A_CLIENT_THAT_SPINS";
        if std::env::var_os(WITHIN).is_some() {
            // this ends the process
            run_of("spins");
        }
        let mut itself = Command::new(std::env::current_exe().unwrap());
        let test = "simulated::foolish::tests::a_client_that_never_comes_back_ends_harness_and_is_named";
        let words = ["--exact", test, "--nocapture"];
        let ended = itself.args(words).env(WITHIN, "yes").output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert_eq!(ended.status.code(), Some(4), "{said}");
        assert!(
            said.contains("error: c") && said.contains("loops without letting time pass"),
            "{said}"
        );
    }

    #[test]
    fn a_client_that_always_fails_at_once_is_not_asked_without_end() {
        let outcome = run_of("always wrong");
        assert!(outcome.error.is_none(), "{:?}", outcome.error);
        let history = outcome.history.unwrap();
        let asked = history
            .entries()
            .filter(|entry| format!("{:?}", entry.f) == "Acquire")
            .count();
        // each of five is asked ten times a second, in 15 s and a recovery in vain, and each time answered
        assert!((500..8_000).contains(&asked), "{asked} lines of acquires");
    }
}
