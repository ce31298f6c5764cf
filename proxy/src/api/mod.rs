//! Toxiproxy's HTTP API, served by the built-in proxy: any Toxiproxy client can inspect and change its links.
//!
//! Names, defaults, status codes and errors are Toxiproxy's. The differences: toxicity and jitter come from the seed, and a toxic that is
//! added or removed changes nothing for the others; `reset_peer` also resets connections that are older than it, after exactly its time; no
//! request waits for a connection. Every [`ApiChange`] is reported to the caller that started the API.

mod metrics;
mod proxies;
mod request;
mod routes;
mod serving;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Bytes;
use serde::Serialize;

use super::{Link, Proxy, Toxic};
use proxies::ProxyTable;
use serving::{Guard, HttpServer};

pub use serving::ApiToken;

/// A change that a client of the API made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApiChange {
    /// The link or proxy.
    pub proxy: String,
    pub did: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toxic: Option<Toxic>,
}

/// A callback for every change: called before a toxic is added, and after one is removed.
pub type OnChange = Box<dyn Fn(ApiChange) + Send + Sync>;

/// The API of a proxy, served until this is dropped.
#[derive(Debug)]
pub struct Api {
    server: HttpServer,
    proxies: Arc<ProxyTable>,
}

impl Api {
    /// Serves the clients that send the token, at `at`. They can add toxics to `links` and disable them, but not move or delete them.
    pub fn serve(
        proxy: &Proxy,
        links: Vec<Arc<Link>>,
        (at, token): (SocketAddr, ApiToken),
        seed: u64,
        hear: OnChange,
    ) -> io::Result<Self> {
        let proxies = Arc::new(ProxyTable::new(links, proxy.on.clone(), seed, hear));
        let asked = Arc::clone(&proxies);
        let answers = move |request: Request<Bytes>| -> serving::Answering {
            let proxies = Arc::clone(&asked);
            Box::pin(async move { routes::answer(&proxies, &request).await })
        };
        let any_host = false;
        let guard = Guard { token, any_host };
        let server = HttpServer::serve(&proxy.on.runtime, at, guard, Arc::new(answers))?;
        Ok(Self { server, proxies })
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Makes the proxies of a JSON list, as `POST /populate` does.
    pub async fn populate(&self, list: &[u8]) -> Result<(), String> {
        let (_, refused) = self.proxies.populate(list).await;
        refused.map_or(Ok(()), |refused| Err(refused.error))
    }

    /// Removes all toxics, enables all proxies, and refuses all later changes. The error says what could not be undone.
    pub async fn calm(&self) -> Result<(), String> {
        self.proxies.calm().await
    }
}

/// One page of text over HTTP, such as metrics for Prometheus. Each request makes it anew. Dropping it ends the server.
#[derive(Debug)]
pub struct TextPage(HttpServer);

impl TextPage {
    /// Serves on the runtime of the caller.
    pub fn serve(
        at: SocketAddr,
        path: &'static str,
        text: impl Fn() -> String + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let answers = move |request: Request<Bytes>| -> serving::Answering {
            let response = match (request.uri().path() == path, request.method().as_str()) {
                (true, "GET" | "HEAD") => routes::prometheus(text()),
                (true, _) => routes::text(405, ""),
                (false, _) => routes::text(404, "404 page not found\n"),
            };
            Box::pin(std::future::ready(response))
        };
        let on = tokio::runtime::Handle::current();
        let (token, any_host) = (ApiToken::default(), true);
        HttpServer::serve(&on, at, Guard { token, any_host }, Arc::new(answers)).map(Self)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}
