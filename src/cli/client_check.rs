//! `harness client-check`: runs the client protocol with a client program, and prints a remark on each step.

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tokio::sync::watch;

use super::Failure;
use super::args::ClientCheckArgs;
use super::interrupt::interrupted;
use super::settings::{parse_run, warn_of_file, warn_of_variables};
use super::stdout::{print, print_json, print_table};
use crate::cluster::leftovers::claim::Claim;
use crate::cluster::{ClusterError, Runtime, RuntimeChoice, RuntimeRequest};
use crate::config::Config;
use crate::exit::Exit;
use crate::in_virtual_time;
use crate::plan::plan;
use crate::run::client_check::{CheckMark, CheckRemark, ClientCheck};
use crate::run::{RunError, RunFolder, RunSpec};

/// The `schema` in the output of `--json`.
const SCHEMA: &str = "harness-client-check/1";

pub fn client_check(args: &ClientCheckArgs) -> Result<Exit, Failure> {
    warn_of_variables("client-check");
    warn_of_file("client-check");
    let config = config(args)?;
    let claim = Claim::make("client-check").map_err(Failure::environment)?;
    let shows = !args.json;
    let made = super::runtime().block_on(async {
        let on_remark = move |remark: &CheckRemark| {
            if shows {
                print_table(&line(remark));
            }
        };
        let check = ClientCheck::new(config.clone(), claim.folder(), on_remark).map_err(Failure::environment)?;
        let check = Arc::new(check);
        match played(&check, config, claim.folder()).await {
            Ok(()) => Ok(Some(check.remarks())),
            Err(RunError::Cluster(ClusterError::Interrupted)) => Ok(None),
            Err(error) => Err(Failure::environment(error)),
        }
    });
    // the remarks already quote the logs
    drop(claim);
    let Some(made) = made? else {
        return Ok(Exit::Interrupted);
    };
    let of = |mark: CheckMark| made.iter().filter(|remark| remark.mark == mark).count();
    let [wrong, not_judged, right] = [CheckMark::Wrong, CheckMark::NotJudged, CheckMark::Right].map(of);
    if args.json {
        print_json(&json!({
            "schema": SCHEMA, "wrong": wrong, "not_judged": not_judged, "right": right, "remarks": made,
        }));
    } else {
        print(&format!("{wrong} wrong, {not_judged} not judged, {right} right\n"));
    }
    Ok(if wrong > 0 { Exit::Violated } else { Exit::Holds })
}

/// Runs all steps: those with servers in virtual time, unless another runtime is requested or the programs cannot run there.
async fn played(check: &Arc<ClientCheck>, config: Config, folder: &Path) -> Result<(), RunError> {
    let mut interrupt = interrupted();
    let is_fit = tokio::select! {
        biased;
        Ok(_) = interrupt.wait_for(|wanted| *wanted) => return Err(ClusterError::Interrupted.into()),
        is_fit = check.alone() => is_fit?,
    };
    if !is_fit {
        return Ok(());
    }
    let asked = config.runtime;
    let is_auto = asked == RuntimeRequest::Auto;
    if asked == RuntimeRequest::Virtual || is_auto && in_virtual_time::refusal(&config).is_none() {
        let kept = check.remarks().len();
        let spec = quiet_run(config.clone(), folder, interrupt.clone())?;
        match in_virtual_time::check_client(Arc::clone(check), spec).await {
            Err(error) if is_auto && !matches!(error, RunError::Cluster(ClusterError::Interrupted)) => {
                eprintln!("client-check: not in virtual time: {error}\nclient-check: in real time:");
                check.take_back(kept);
            }
            made => return made,
        }
    }
    let chosen = config.choose_runtime().await?;
    check.on_servers(&chosen.runtime, interrupt).await
}

/// Returns the run without faults in whose world the steps are made.
fn quiet_run(config: Config, folder: &Path, interrupt: watch::Receiver<bool>) -> Result<RunSpec, RunError> {
    let (name, folder) = ("client-check".to_owned(), RunFolder(folder.to_owned()));
    let plan = plan(&config).map_err(|error| RunError::Clients(error.to_string()))?;
    let choice = RuntimeChoice::of(Runtime::Virtual, String::new());
    Ok(RunSpec {
        interrupt,
        ..RunSpec::of(config, plan, name, folder, choice)
    })
}

/// Returns the configuration of a run with these clients.
fn config(args: &ClientCheckArgs) -> Result<Config, Failure> {
    let mut words = vec![
        format!("--backend={}", args.backend),
        format!("--client={}", args.client),
        format!("--lease={}", args.lease),
        format!("--open-limit={}", args.open_limit),
        format!("--runtime={}", args.runtime),
    ];
    // two clients that contend, and one that receives invalid requests
    words.extend(["--clients=3", "--fault=none"].map(str::to_owned));
    words.extend(args.promise.iter().map(|promise| format!("--promise={promise}")));
    words.extend(args.auth.then(|| "--auth".to_owned()));
    words.extend(args.nodes.map(|nodes| format!("--nodes={nodes}")));
    let run =
        parse_run(words).map_err(|error| Failure::usage(error.to_string().trim_start_matches("error: ").trim_end()))?;
    run.config(0).map_err(Failure::usage)
}

/// `right        acquire of a free lock        ok after 2 ms`
fn line(remark: &CheckRemark) -> String {
    let mark = match remark.mark {
        CheckMark::Right => "right",
        CheckMark::Wrong => "WRONG",
        CheckMark::NotJudged => "not judged",
    };
    let indented = remark.seen.replace('\n', "\n            ");
    format!("{mark:<10}  {}: {indented}\n", remark.step)
}
