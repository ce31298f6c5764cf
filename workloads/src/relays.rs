//! Clients of recipes where servers speak TLS: the libraries of stores write plain text to relays in the client's process.

use async_trait::async_trait;
use harness_tls::{TlsClient, TlsFiles, TlsRelay};

use crate::client::{LockClient, LockGrant, LockResult};
use crate::protocol::{AcquireRequest, OpenRequest};

/// Opens a relay before each server of a client; returns the `open` request with the relays in place of the servers.
pub(crate) fn relayed(open: &OpenRequest, files: &TlsFiles) -> Result<(Vec<TlsRelay>, OpenRequest), String> {
    let tls = TlsClient::read(files)?;
    let relay = |endpoint: &String| {
        let server = endpoint.parse();
        let server = server.map_err(|_| format!("`{endpoint}` is not the address of a server that speaks TLS"))?;
        TlsRelay::open(server, tls.clone()).map_err(|error| format!("no relay before {endpoint}: {error}"))
    };
    let relays: Vec<TlsRelay> = open.endpoints.iter().map(relay).collect::<Result<_, String>>()?;
    let endpoints = relays.iter().map(|relay| relay.listen().to_string()).collect();
    let relayed = OpenRequest {
        endpoints,
        ..open.clone()
    };
    Ok((relays, relayed))
}

/// Returns the client together with its relays, which end with it.
pub(crate) fn with_relays(client: Box<dyn LockClient>, relays: Vec<TlsRelay>) -> Box<dyn LockClient> {
    Box::new(RelayedClient {
        client,
        _relays: relays,
    })
}

struct RelayedClient {
    client: Box<dyn LockClient>,
    _relays: Vec<TlsRelay>,
}

#[async_trait(?Send)]
impl LockClient for RelayedClient {
    async fn open(&mut self) -> LockResult<LockGrant> {
        self.client.open().await
    }

    async fn acquire(&mut self, request: &AcquireRequest) -> LockResult<LockGrant> {
        self.client.acquire(request).await
    }

    async fn release(&mut self, lock: &str) -> LockResult<()> {
        self.client.release(lock).await
    }

    async fn extend(&mut self, lock: &str) -> LockResult<()> {
        self.client.extend(lock).await
    }

    async fn close(&mut self) {
        self.client.close().await;
    }
}
