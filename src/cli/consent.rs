//! Consent: asks before a run uses servers that harness did not start and that hold other data (`--servers`, `--yes`).

use std::io::{self, BufRead, IsTerminal, Write};

use super::Failure;
use super::args::RunArgs;
use crate::run;

/// Returns the options of a run, after the user has agreed if the servers of `--servers` hold other data.
pub async fn confirmed(args: &RunArgs, seed: u64) -> Result<RunArgs, Failure> {
    let mut args = args.clone();
    if !args.config.attach.is_attached() || args.dry_run {
        return Ok(args);
    }
    let config = args.config(seed).map_err(Failure::usage)?;
    let survey = run::survey(&config).await.map_err(Failure::environment)?;
    let Some(what) = run::consent_to(&config, &survey) else {
        return Ok(args);
    };
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let sentence = format!("{what}\nhint: --yes agrees to it; without a terminal harness cannot ask");
        return Err(Failure::usage(sentence));
    }
    eprint!("{what}\n  faults: {}\ngo on? [y/N] ", config.fault_text());
    let _ = io::stderr().flush();
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => {
            args.config.attach.yes = true;
            Ok(args)
        }
        _ => Err(Failure::usage("nothing was done".to_owned())),
    }
}
