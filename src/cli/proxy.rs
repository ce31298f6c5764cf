//! `harness proxy`: the built-in proxy alone, controlled through Toxiproxy's HTTP API.

use std::net::SocketAddr;
use std::path::Path;

use super::Failure;
use super::stdout::print;
use crate::exit::Exit;
use harness_proxy::Proxy;
use harness_proxy::api::{Api, ApiToken};

/// Makes the proxies of the file `config` and serves until Ctrl-C.
pub fn proxy(listen: SocketAddr, token: Option<&Path>, config: Option<&Path>, seed: u64) -> Result<Exit, Failure> {
    let token = token.map_or_else(|| Ok(ApiToken::default()), ApiToken::read);
    let token = token.map_err(Failure::usage)?;
    if let Some(warning) = token.warning(listen) {
        eprintln!("warning: {warning}\nhint: --token-file FILE requires one");
    }
    let proxy = Proxy::start()
        .map_err(|error| Failure::environment(format!("could not start the thread of the proxy: {error}")))?;
    let hear = Box::new(|change: harness_proxy::api::ApiChange| {
        let toxic = change.toxic.map(|toxic| format!(" {}", toxic.name)).unwrap_or_default();
        eprintln!("{}: {}{toxic}", change.proxy, change.did);
    });
    let api = Api::serve(&proxy, Vec::new(), (listen, token), seed, hear)
        .map_err(|error| Failure::environment(format!("could not serve the API at {listen}: {error}")))?;
    let runtime = super::runtime();
    if let Some(path) = config {
        let list = std::fs::read(path)
            .map_err(|error| Failure::usage(format!("could not read {}: {error}", path.display())))?;
        let made = runtime.block_on(api.populate(&list));
        made.map_err(|why| Failure::usage(format!("{}: {why}", path.display())))?;
    }
    print(&format!("serving Toxiproxy's API at http://{}\n", api.address()));
    let waited = runtime.block_on(tokio::signal::ctrl_c());
    waited.expect("a handler for Ctrl-C can be installed");
    Ok(Exit::Holds)
}
