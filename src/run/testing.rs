//! Runs of unit tests, and a run context for them: no servers, no links, and a history in a folder of the test.

use std::path::Path;
use std::sync::Arc;

use super::clock::RunClock;
use super::context::RunContext;
use super::routes::Routes;
use super::terms::Terms;
use super::{RunFolder, RunSpec, recorder, setup};
use crate::clock::GroundClock;
use crate::cluster::{Runtime, RuntimeChoice};
use crate::config::Config;
use crate::plan::plan;

impl RunSpec {
    /// Returns a run of a test.
    pub fn of_test(config: Config, folder: &Path, runtime: Runtime) -> Self {
        let plan = plan(&config).unwrap();
        let choice = RuntimeChoice::of(runtime, String::new());
        Self::of(config, plan, "test".into(), RunFolder(folder.to_owned()), choice)
    }
}

/// Returns a context whose history is written to `folder`.
pub fn context_of(folder: &Path) -> Arc<RunContext> {
    let spec = RunSpec::of_test(Config::example(), folder, Runtime::Local);
    let terms = Terms::of(&spec.config, None).unwrap();
    let header = setup::header(&spec, &terms);
    let (path, clock) = (spec.folder.history(), RunClock::start(GroundClock::Real));
    let (recorder, _closer) = recorder::start(Some(&path), &header, clock).unwrap();
    let (exchange, _notices) = setup::exchange(&spec.config);
    let (spec, routes) = (Arc::new(spec), Routes::default());
    Arc::new(RunContext::new(spec, terms, recorder, exchange, routes))
}
