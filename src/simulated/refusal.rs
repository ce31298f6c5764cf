//! The refusal of runs that models do not support, each with the reason and a hint.

use crate::backends::Topology;
use crate::config::{Clients, Config};

/// Returns a sentence, with a hint, if a run with these options cannot be simulated. Faults refuse themselves
/// ([`Fault::applies`](crate::faults::Fault::applies)).
pub fn refusal(config: &Config) -> Option<String> {
    let what = match config.who {
        Clients::Foreign { .. } => "a client program speaks to real servers, and there are none",
        _ if config.recipe_name() == "zk-curator" => {
            "zk-curator is a client library that makes its own connections, and there is nothing to connect to"
        }
        _ if !super::has_model(config.backend) => "there are only models of ZooKeeper, etcd, Redis, Valkey and NATS",
        _ if config.topology != Topology::Plain => {
            "models elect no master: the only model with two roles is a Redis master and its replica"
        }
        _ if config.churn.is_some() && config.backend.sweep.is_some() => {
            "--churn removes leftovers of locks over a connection of its own, and there is nothing to connect to"
        }
        _ if config.auth => "--auth needs servers that ask for a password, and models ask for none",
        _ if config.tls => "--tls encrypts the traffic of sockets, and there are none",
        _ if config.proxy.is_toxiproxy() => {
            "a Toxiproxy carries bytes between sockets, and there are none: the simulated network obeys the faults itself"
        }
        _ if config.proxy_api.is_some() => "--proxy-api changes the links of the built-in proxy, and there is none",
        _ if config.server_version.is_some() => "--server-version names real servers, and models have no versions",
        _ if config.image.is_some() || config.port_base.is_some() => {
            "--image and --port-base are options of real servers, and there are none"
        }
        Clients::Recipe(_) => return None,
    };
    let real = "hint: --runtime local or --runtime docker";
    Some(format!("--runtime simulated: {what}\n{real}"))
}
