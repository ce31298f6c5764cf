//! Refusals of runs in virtual time, each with the reason and the way out.

use super::library;
use crate::config::Config;

/// Returns why a run with these options cannot be made in virtual time, if so: a sentence with the way out. Faults have their own refusals
/// ([`Fault::applies`](crate::faults::Fault::applies)).
pub fn refusal(config: &Config) -> Option<String> {
    let says = |what: &str| {
        Some(format!(
            "--runtime virtual: {what}\nhint: --runtime local or --runtime docker"
        ))
    };
    if let Some(why) = library::missing() {
        return Some(format!("--runtime virtual: {why}"));
    }
    if config.backend.id.is_none() {
        return says("harness cannot ask the servers of a described store over the simulated network");
    }
    let missing = (config.backend.software.missing)();
    // the programs of a version are fetched
    if !missing.is_empty() && config.server_version.is_none() {
        return Some(format!(
            "--runtime virtual: {} not found\nhint: {}",
            missing.join(" and "),
            config.backend.software.install_hint
        ));
    }
    if config.attach.is_attached() {
        return says("--servers are running already, in real time");
    }
    if config.auth {
        return says("--auth works only in real time");
    }
    if config.tls {
        return says("--tls encrypts the messages that the simulated network must read");
    }
    if config.proxy.is_toxiproxy() {
        return says("a Toxiproxy carries bytes in real time: the simulated network obeys the faults itself");
    }
    if config.proxy_api.is_some() {
        return says("--proxy-api changes the links of the built-in proxy, and there is none");
    }
    if config.image.is_some() || config.port_base.is_some() {
        return says("--image and --port-base work only in real time: here there are no containers and no ports");
    }
    None
}
