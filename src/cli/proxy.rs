//! `harness proxy`: the built-in proxy alone, for whoever speaks Toxiproxy's HTTP API.

use std::net::SocketAddr;

use super::complain;
use super::stdout::print;
use crate::exit::Exit;
use crate::network::Proxy;
use crate::network::api::Api;

/// Serves until Ctrl-C.
pub fn proxy(listen: SocketAddr, seed: u64) -> Exit {
    let proxy = match Proxy::start() {
        Ok(proxy) => proxy,
        Err(error) => return complain(Exit::Environment, format!("no thread for the proxy: {error}")),
    };
    let hear = Box::new(|poke: crate::network::api::ApiChange| {
        let toxic = poke.toxic.map(|toxic| format!(" {}", toxic.name)).unwrap_or_default();
        eprintln!("{}: {}{toxic}", poke.proxy, poke.did);
    });
    let api = match Api::serve(&proxy, Vec::new(), listen, seed, hear) {
        Ok(api) => api,
        Err(error) => {
            return complain(
                Exit::Environment,
                format!("could not serve the API at {listen}: {error}"),
            );
        }
    };
    print(&format!("serving Toxiproxy's API at http://{}\n", api.address()));
    let waited = super::runtime().block_on(tokio::signal::ctrl_c());
    match waited {
        Ok(()) => Exit::Holds,
        Err(error) => complain(Exit::Bug, format!("could not wait for Ctrl-C: {error}")),
    }
}
