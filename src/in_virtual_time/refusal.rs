//! Refusals of runs in virtual time, each with the reason and the way out.

use super::library;
use crate::config::Config;

/// Returns why a run with these options cannot be made in virtual time, if so: a sentence with the way out. Faults have their own refusals
/// ([`Fault::applies`](crate::faults::Fault::applies)).
pub fn refusal(config: &Config) -> Option<String> {
    if let Some(why) = library::missing() {
        return Some(format!("--runtime virtual: {why}"));
    }
    let software = config.backend.software;
    let missing = (software.missing)();
    let what = match () {
        () if config.backend.id.is_none() => {
            "harness cannot ask the servers of a described store over the simulated network"
        }
        // the programs of a version are fetched
        () if !missing.is_empty() && config.server_version.is_none() => {
            let (missing, hint) = (missing.join(" and "), software.install_hint);
            return Some(format!("--runtime virtual: {missing} not found\nhint: {hint}"));
        }
        () if config.attach.is_attached() => "--servers are running already, in real time",
        () if config.auth => "--auth works only in real time",
        () if config.tls => "--tls encrypts the messages that the simulated network must read",
        () if config.proxy.is_toxiproxy() => {
            "a Toxiproxy carries bytes in real time: the simulated network obeys the faults itself"
        }
        () if config.proxy_api.is_some() => "--proxy-api changes the links of the built-in proxy, and there is none",
        () if config.image.is_some() || config.port_base.is_some() => {
            "--image and --port-base work only in real time: here there are no containers and no ports"
        }
        () => return None,
    };
    Some(format!(
        "--runtime virtual: {what}\nhint: --runtime local or --runtime docker"
    ))
}
