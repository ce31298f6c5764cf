//! `harness client-check`: plays the client protocol with a client program, and says line by line what is right and what is not.

use serde_json::json;

use super::Failure;
use super::args::ClientCheckArgs;
use super::interrupt::interrupted;
use super::settings::parse_run;
use super::stdout::{print, print_json, print_plain};
use crate::cluster::ClusterError;
use crate::cluster::leftovers::claim::Claim;
use crate::config::Config;
use crate::exit::Exit;
use crate::run::RunError;
use crate::run::client_check::{CheckMark, CheckRemark, ClientCheckSpec, check_client};

/// The `schema` of what `--json` prints.
const SCHEMA: &str = "harness-client-check/1";

pub fn client_check(args: &ClientCheckArgs) -> Result<Exit, Failure> {
    let config = config(args)?;
    let claim = Claim::make("client-check").map_err(Failure::environment)?;
    let made = super::runtime().block_on(async {
        let chosen = config.choose_runtime().await;
        let spec = ClientCheckSpec {
            runtime: chosen.map_err(Failure::environment)?.runtime,
            config,
            folder: claim.folder().to_owned(),
            interrupt: interrupted(),
            on_remark: match args.json {
                true => Box::new(|_| {}),
                false => Box::new(|remark| print_plain(&line(remark))),
            },
        };
        match check_client(spec).await {
            Err(RunError::Cluster(ClusterError::Interrupted)) => Ok(None),
            made => made.map(Some).map_err(Failure::environment),
        }
    });
    // the logs are quoted where they matter
    drop(claim);
    let Some(made) = made? else {
        return Ok(Exit::Interrupted);
    };
    let of = |mark: CheckMark| made.iter().filter(|remark| remark.mark == mark).count();
    let (wrong, not_judged) = (of(CheckMark::Wrong), of(CheckMark::NotJudged));
    if args.json {
        print_json(&json!({ "schema": SCHEMA, "wrong": wrong, "not_judged": not_judged, "remarks": made }));
    } else {
        print(&format!(
            "{wrong} wrong, {not_judged} not judged, {} right\n",
            of(CheckMark::Right)
        ));
    }
    Ok(if wrong > 0 { Exit::Violated } else { Exit::Holds })
}

/// The configuration of a run with these clients.
fn config(args: &ClientCheckArgs) -> Result<Config, Failure> {
    let mut words = vec![
        format!("--backend={}", args.backend),
        format!("--client={}", args.client),
        format!("--lease={}", args.lease),
        format!("--open-limit={}", args.open_limit),
        format!("--runtime={}", args.runtime),
    ];
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
