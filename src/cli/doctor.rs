//! `harness doctor`: lists the servers that this machine can run (programs, images) and the leftovers of earlier runs (processes,
//! containers, folders).

use std::sync::Arc;

use harness_workloads::Login;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::args::DoctorArgs;
use super::run_to_end;
use super::stdout::{print_json, print_table};
use crate::backends;
use crate::backends::stored_data::RunTraces;
use crate::cluster::leftovers::{self, Found, LeftAlone, Leftover, Sight};
use crate::cluster::{Endpoints, ServerSoftware, image_present, look_up};
use crate::config::parse_backend;
use crate::exit::Exit;

pub fn doctor(args: &DoctorArgs) -> Exit {
    run_to_end(examine(args))
}

async fn examine(args: &DoctorArgs) -> Exit {
    let sight = if args.all { Sight::OverOrUnseen } else { Sight::Over };
    let Found {
        leftovers: mut found,
        left_alone,
        unknown,
    } = leftovers::all(sight).await;
    let (mut removed, mut stuck, mut forgotten) = (Vec::new(), Vec::new(), Vec::new());
    if args.clean {
        for leftover in std::mem::take(&mut found) {
            match remove(&leftover).await {
                Ok(()) => {
                    if !args.json {
                        print_table(&format!("removed  {leftover}"));
                    }
                    removed.push(leftover);
                }
                Err(error) => {
                    // with --forget, entries that cannot be removed from other servers are not reported again
                    let claim = leftover.claim_elsewhere().filter(|_| args.forget);
                    match claim.map(leftovers::remove_claim) {
                        None => stuck.push((leftover, error)),
                        Some(Ok(())) => forgotten.push((leftover, error)),
                        Some(Err(error)) => stuck.push((leftover, error)),
                    }
                }
            }
        }
    }
    let exit = if stuck.is_empty() {
        Exit::Holds
    } else {
        Exit::Environment
    };
    if args.json {
        let with_errors = |some: &[(Leftover, String)]| {
            let each = some.iter();
            each.map(|(leftover, error)| json!({ "leftover": leftover, "error": error }))
                .collect::<Vec<_>>()
        };
        print_json(&json!({
            "servers": servers_in_json().await, "leftovers": found, "removed": removed,
            "stuck": with_errors(&stuck), "forgotten": with_errors(&forgotten), "left_alone": left_alone, "unknown": unknown,
        }));
        return exit;
    }
    for (word, some) in [("stuck  ", &stuck), ("forgot ", &forgotten)] {
        for (leftover, error) in some {
            print_table(&format!("{word}  {leftover}: {error}"));
        }
    }
    if stuck.iter().any(|(leftover, _)| leftover.claim_elsewhere().is_some()) {
        print_table("hint: `harness doctor --clean --forget` forgets leftovers on servers that are gone");
    }
    for backend in backends::all() {
        print_table(&about(backend.software).await);
    }
    for sentence in left_alone.sentences() {
        print_table(&format!("alone    {sentence}"));
    }
    for what in &unknown {
        print_table(&format!("unknown  {what}"));
    }
    let is_known = unknown.is_empty() && left_alone == LeftAlone::default() && stuck.is_empty();
    print_table(&about_leftovers(&found, is_known));
    exit
}

/// Removes a leftover, after its entries on servers.
async fn remove(leftover: &Leftover) -> Result<(), String> {
    if let Leftover::Traces { traces, .. } = leftover {
        let backend = parse_backend(&traces.backend)?;
        let what: RunTraces = serde_json::from_str(&traces.traces).map_err(|error| error.to_string())?;
        let addresses = look_up(&traces.servers).await?;
        let login = backend.id.and_then(Login::of_environment).map(Arc::new);
        let (_sender, endpoints) = watch::channel(Endpoints::new(addresses, None).with_login(login));
        backend.data.remove(endpoints, what).await?;
    }
    leftovers::remove(leftover).await
}

async fn servers_in_json() -> Vec<Value> {
    let mut servers = Vec::new();
    for backend in backends::all() {
        let (missing, image) = ((backend.software.missing)(), image_present(backend.software).await);
        let (image, no_image) = (image.as_ref().ok(), image.as_ref().err());
        servers.push(json!({ "backend": backend.name(), "missing": missing, "image": image, "no_image": no_image }));
    }
    servers
}

async fn about(software: &ServerSoftware) -> String {
    let missing = (software.missing)();
    let local = if missing.is_empty() {
        "installed".to_owned()
    } else {
        format!("no: {} not found; {}", missing.join(" and "), software.install_hint)
    };
    let docker = match image_present(software).await {
        Ok(image) => format!("image {image} is present"),
        Err(why) => format!("no: {why}"),
    };
    format!("{:<9}local   {local}\n{:<9}docker  {docker}\n", software.backend, "")
}

/// `is_known`: every leftover could be examined, and none was skipped.
fn about_leftovers(found: &[Leftover], is_known: bool) -> String {
    if found.is_empty() {
        return match is_known {
            true => "earlier runs left nothing\n".to_owned(),
            false => "earlier runs left nothing else that is known\n".to_owned(),
        };
    }
    let lines: String = found.iter().map(|leftover| format!("left     {leftover}\n")).collect();
    format!(
        "{lines}hint: `harness doctor --clean` removes {}\n",
        if found.len() == 1 { "it" } else { "them" }
    )
}
