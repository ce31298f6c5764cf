//! Toxiproxy's HTTP API, served by the built-in proxy: any Toxiproxy client can inspect and change its links.
//!
//! Names, defaults, status codes and errors are Toxiproxy's. Better than there: toxicity and jitter come from the seed and a
//! live connection keeps its lot whatever else comes or goes; `reset_peer` resets connections that were there before it,
//! after exactly its time; nothing here waits for a connection. Every [`ApiChange`] is reported to the caller that started it.

mod metrics;
mod proxies;
mod routes;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, USER_AGENT};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::{Link, Proxy, Toxic};
use crate::limits::{API_BODY, API_REQUEST};
use proxies::ProxyTable;
use routes::{ApiError, ApiResponse};

/// A change that a client of the API made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ApiChange {
    /// The link or proxy.
    pub proxy: String,
    pub did: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toxic: Option<Toxic>,
}

/// Is told of every change: before a toxic comes, after one has gone.
pub type OnChange = Box<dyn Fn(ApiChange) + Send + Sync>;

/// The API of a proxy, served until this is dropped.
#[derive(Debug)]
pub struct Api {
    address: SocketAddr,
    proxies: Arc<ProxyTable>,
    serving: JoinHandle<()>,
}

impl Api {
    /// Serves at `at`. `links` can be poisoned and turned off, and neither led elsewhere nor deleted.
    pub fn serve(proxy: &Proxy, links: Vec<Arc<Link>>, at: SocketAddr, seed: u64, hear: OnChange) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let proxies = Arc::new(ProxyTable::new(links, proxy.on.clone(), seed, hear));
        let serving = proxy.on.runtime.spawn(accept(listener, Arc::clone(&proxies)));
        Ok(Self {
            address,
            proxies,
            serving,
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes the proxies of a JSON list, as `POST /populate` does.
    pub async fn populate(&self, list: &[u8]) -> Result<(), String> {
        let (_, refused) = self.proxies.populate(list).await;
        refused.map_or(Ok(()), |refused| Err(refused.error))
    }

    /// Takes away what was put on, and refuses more from now on. The error says what could not be undone.
    pub async fn calm(&self) -> Result<(), String> {
        self.proxies.calm().await
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn accept(listener: std::net::TcpListener, proxies: Arc<ProxyTable>) {
    let listener = TcpListener::from_std(listener).expect("a bound, non-blocking listener inside a runtime");
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(converse(stream, Arc::clone(&proxies)));
            }
            // out of file descriptors, or the peer is gone already: neither ends the API
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn converse(stream: TcpStream, proxies: Arc<ProxyTable>) {
    let service = service_fn(move |request| {
        let proxies = Arc::clone(&proxies);
        async move { Ok::<_, Infallible>(respond(&proxies, request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(API_REQUEST);
    // a client that breaks off has its reasons
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

/// A unique number for each request; Toxiproxy sends an id, too.
fn request_id() -> HeaderValue {
    static LAST: AtomicU64 = AtomicU64::new(0);
    HeaderValue::from(LAST.fetch_add(1, Relaxed) + 1)
}

async fn respond(proxies: &ProxyTable, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let agent = head.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    let answer = if agent.is_some_and(|agent| agent.starts_with("Mozilla/")) {
        // a page in a browser must not be able to reach it
        ApiResponse::text(403, "User agent not allowed\n")
    } else {
        match timeout(API_REQUEST, Limited::new(body, API_BODY).collect()).await {
            Ok(Ok(body)) => routes::answer(proxies, &head.method, head.uri.path(), &body.to_bytes()).await,
            Ok(Err(error)) => ApiError::bad_body(error).into(),
            Err(_) => ApiError::bad_body("it did not arrive").into(),
        }
    };
    let mut response = Response::new(Full::from(answer.body));
    response.headers_mut().insert("x-toxiproxy-request-id", request_id());
    *response.status_mut() = answer.status;
    if let Some(content) = answer.content {
        response.headers_mut().insert(CONTENT_TYPE, content);
    }
    response
}
