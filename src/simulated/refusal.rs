//! What cannot be simulated, each with the reason and the way out.

use crate::backends::Topology;
use crate::config::{Clients, Config};

/// Why a run with these options cannot be simulated, if so: a sentence with the way out. Which faults cannot, they say themselves
/// ([`Fault::applies`](crate::faults::Fault::applies)).
pub fn refusal(config: &Config) -> Option<String> {
    let real = "hint: --runtime local or --runtime docker";
    let says = |what: &str| Some(format!("--runtime simulated: {what}\n{real}"));
    if matches!(config.who, Clients::Foreign { .. }) {
        return says("a client program speaks to real servers, and there are none");
    }
    if config.recipe_name() == "zk-curator" {
        return says(
            "zk-curator is a client library that makes its own connections, and there is nothing to connect to",
        );
    }
    if !super::has_model(config.backend) {
        return says("there are only models of ZooKeeper, etcd, Redis, Valkey and NATS");
    }
    if config.topology != Topology::Plain {
        return says("models elect no master: the only model with two roles is a Redis master and its replica");
    }
    if config.churn.is_some() && config.backend.sweep.is_some() {
        return says(
            "--churn removes leftovers of locks over a connection of its own, and there is nothing to connect to",
        );
    }
    if config.auth {
        return says("--auth needs servers that ask for a password, and models ask for none");
    }
    if config.tls {
        return says("--tls encrypts the traffic of sockets, and there are none");
    }
    if config.proxy.is_toxiproxy() {
        return says(
            "a Toxiproxy carries bytes between sockets, and there are none: the simulated network obeys the faults itself",
        );
    }
    if config.proxy_api.is_some() {
        return says("--proxy-api changes the links of the built-in proxy, and there is none");
    }
    if config.server_version.is_some() {
        return says("--server-version names real servers, and models have no versions");
    }
    if config.image.is_some() || config.port_base.is_some() {
        return says("--image and --port-base are options of real servers, and there are none");
    }
    None
}
