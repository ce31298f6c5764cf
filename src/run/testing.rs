//! Runs of unit tests, and a run context for them: no servers, no links, and a history in a folder of the test.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

use super::clock::RunClock;
use super::context::RunContext;
use super::routes::Routes;
use super::terms::Terms;
use super::{RunFolder, RunSpec, recorder, setup};
use crate::clock::GroundClock;
use crate::cluster::{Runtime, RuntimeChoice};
use crate::config::Config;
use crate::event::ProgressSender;
use crate::plan::plan;

impl RunSpec {
    /// Returns a run of a test, without a receiver of its progress, and without an interrupt.
    pub fn of_test(config: Config, folder: &Path, runtime: Runtime) -> Self {
        Self {
            plan: plan(&config).unwrap(),
            config,
            name: "test".into(),
            folder: RunFolder(folder.to_owned()),
            in_memory: false,
            choice: RuntimeChoice::of(runtime, String::new()),
            progress: ProgressSender::unheard(),
            interrupt: watch::channel(false).1,
        }
    }
}

/// Returns a context whose history is written to `folder`.
pub fn context_of(folder: &Path) -> Arc<RunContext> {
    let spec = RunSpec::of_test(Config::example(), folder, Runtime::Local);
    let terms = Terms::of(&spec.config, None).unwrap();
    let header = setup::header(&spec, &terms);
    let (recorder, _closer) = recorder::start(
        Some(&spec.folder.history()),
        &header,
        RunClock::start(GroundClock::Real),
    )
    .unwrap();
    let (exchange, _notices) = setup::exchange(&spec.config);
    Arc::new(RunContext::new(
        Arc::new(spec),
        terms,
        recorder,
        exchange,
        Routes::default(),
    ))
}
