//! An HTTP server on one address, which refuses requests that a web page in a browser could have sent.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN, USER_AGENT};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use super::request::ApiError;
use super::routes::{ApiResponse, text};
use crate::limits::{API_BODY, API_REQUEST};

pub type Answering = Pin<Box<dyn Future<Output = ApiResponse> + Send>>;
/// Answers a whole request that was not refused.
pub type Answers = dyn Fn(Request<Bytes>) -> Answering + Send + Sync;

/// The token that clients must send, if there is one.
#[derive(Clone, Default)]
pub struct ApiToken(Option<Arc<str>>);

impl ApiToken {
    /// Makes a token that clients must send as `Authorization: Bearer <token>`.
    pub fn new(token: &str) -> Self {
        Self(Some(token.into()))
    }

    /// Whether a client may be answered: it sent the token, or there is none.
    fn is_shown_by(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.0 else { return true };
        let shown = headers
            .get(AUTHORIZATION)
            .and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        shown.is_some_and(|shown| same(shown, token.as_bytes()))
    }

    /// The least length of a token, in letters.
    const SHORTEST: usize = 16;

    /// Reads the token in a file, without white space around it. The error is a sentence.
    pub fn read(path: &Path) -> Result<Self, String> {
        let text =
            std::fs::read_to_string(path).map_err(|error| format!("could not read {}: {error}", path.display()))?;
        let token = text.trim();
        if token.len() < Self::SHORTEST || !token.bytes().all(|letter| letter.is_ascii_graphic()) {
            return Err(format!(
                "{} has no token: expected one line of at least {} letters without spaces\nhint: openssl rand -hex 16 > {}",
                path.display(),
                Self::SHORTEST,
                path.display()
            ));
        }
        Ok(Self::new(token))
    }

    /// Returns a warning about an API that other machines can reach without a token.
    pub fn warning(&self, at: SocketAddr) -> Option<String> {
        let open = self.0.is_none() && !at.ip().is_loopback();
        open.then(|| {
            format!("other machines can reach the API at {at} without a token, and it can open ports on this machine")
        })
    }
}

impl std::fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() {
            "ApiToken(…)"
        } else {
            "ApiToken(none)"
        })
    }
}

/// The condition under which a request is answered.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    pub token: ApiToken,
    /// Whether clients may name any host: for servers on which nothing can be changed.
    pub any_host: bool,
}

/// Compares without an early end: its time would show how much of a guess is right.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |all, (one, other)| all | (one ^ other));
    one.len() == other.len() && differences == 0
}

/// An HTTP server. Dropping it ends it.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl HttpServer {
    pub fn serve(on: &Handle, at: SocketAddr, guard: Guard, answers: Arc<Answers>) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(at)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let serving = on.spawn(accept(listener, Arc::new(guard), answers));
        Ok(Self { address, serving })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn accept(listener: std::net::TcpListener, guard: Arc<Guard>, answers: Arc<Answers>) {
    let listener = TcpListener::from_std(listener).expect("a bound, non-blocking listener inside a runtime");
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                connections.spawn(converse(stream, Arc::clone(&guard), Arc::clone(&answers)));
            }
            // out of file descriptors, or the peer is gone already: neither ends the API
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn converse(stream: TcpStream, guard: Arc<Guard>, answers: Arc<Answers>) {
    let service = service_fn(move |request| {
        let (guard, answers) = (Arc::clone(&guard), Arc::clone(&answers));
        async move { Ok::<_, Infallible>(respond(&guard, &*answers, request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(API_REQUEST);
    // an error concerns this client alone
    let _ = http.serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(guard: &Guard, answers: &Answers, request: Request<Incoming>) -> ApiResponse {
    let (head, body) = request.into_parts();
    let mut response = match refusal(&head.headers, guard) {
        Some(refused) => refused,
        None => match timeout(API_REQUEST, Limited::new(body, API_BODY).collect()).await {
            Ok(Ok(body)) => answers(Request::from_parts(head, body.to_bytes())).await,
            Ok(Err(error)) => ApiError::bad_body(error).into(),
            Err(_) => ApiError::bad_body("it did not arrive").into(),
        },
    };
    response.headers_mut().insert("x-toxiproxy-request-id", request_id());
    response
}

/// Returns the response to a request that is refused. No page in a browser may reach this machine through it: a browser sends its own name
/// and the page's origin, and a page whose name resolves to this address (DNS rebinding) sends that name as the host.
fn refusal(headers: &HeaderMap, guard: &Guard) -> Option<ApiResponse> {
    let agent = headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    if agent.is_some_and(|agent| agent.starts_with("Mozilla/")) {
        return Some(text(403, "User agent not allowed\n"));
    }
    if headers.contains_key(ORIGIN) || headers.contains_key("sec-fetch-site") {
        return Some(text(403, "web pages are not answered\n"));
    }
    // a client that knows the token is no page, whichever host it names
    let token = &guard.token;
    let known = guard.any_host || token.0.is_some() && token.is_shown_by(headers);
    if !known && headers.get(HOST).is_some_and(|host| !names_this_machine(host)) {
        let why = "the host must be an address or localhost, or the request needs a token\n";
        return Some(text(403, why));
    }
    (!token.is_shown_by(headers)).then(|| text(401, "Authorization: Bearer TOKEN is needed\n"))
}

/// Whether a host is an address or `localhost`, with a port or without.
fn names_this_machine(host: &HeaderValue) -> bool {
    let Ok(host) = host.to_str() else { return false };
    let is_port = |text: &str| text.bytes().all(|digit| digit.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (!name.contains(':') || name.ends_with(']')) => name,
        _ => host,
    };
    let bare = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'))
        .unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

/// Returns a unique number for each request. Toxiproxy sends an id, too.
fn request_id() -> HeaderValue {
    static LAST: AtomicU64 = AtomicU64::new(0);
    HeaderValue::from(LAST.fetch_add(1, Relaxed) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn status(pairs: &[(&'static str, &'static str)], token: &ApiToken) -> Option<u16> {
        let (token, any_host) = (token.clone(), false);
        let refused = refusal(&headers(pairs), &Guard { token, any_host });
        refused.map(|response| response.status().as_u16())
    }

    #[test]
    fn what_a_web_page_can_send_is_refused() {
        let open = ApiToken::default();
        for host in "127.0.0.1:8474 localhost LOCALHOST:1 [::1]:8474 [::1] ::1 192.168.1.7".split(' ') {
            assert_eq!(status(&[("host", host)], &open), None, "{host}");
        }
        // the last one is empty
        for host in "evil.example evil.example:8474 127.0.0.1.evil.example localhost.evil.example:1 ".split(' ') {
            assert_eq!(status(&[("host", host)], &open), Some(403), "{host}");
        }
        assert_eq!(
            status(&[], &open),
            None,
            "HTTP/1.0 needs no host, and no browser speaks it"
        );
        for header in [
            ("origin", "http://localhost:8474"),
            ("sec-fetch-site", "none"),
            ("user-agent", "Mozilla/5.0"),
        ] {
            assert_eq!(status(&[("host", "localhost"), header], &open), Some(403), "{header:?}");
        }
    }

    #[test]
    fn a_token_is_asked_for_and_then_any_name_will_do() {
        let token = ApiToken::new("0123456789abcdef");
        let (local, right) = (("host", "localhost"), ("authorization", "Bearer 0123456789abcdef"));
        assert_eq!(status(&[local], &token), Some(401));
        for wrong in ["Bearer 0123456789abcdeg", "Bearer 0123456789abcde"] {
            assert_eq!(status(&[local, ("authorization", wrong)], &token), Some(401), "{wrong}");
        }
        assert_eq!(status(&[local, right], &token), None);
        assert_eq!(status(&[("host", "proxy.internal:8474"), right], &token), None);
        assert_eq!(status(&[right, ("origin", "http://localhost")], &token), Some(403));
        assert!(!format!("{token:?}").contains("0123"));
    }

    #[test]
    fn an_open_api_without_a_token_is_warned_of() {
        let [open, local] = ["0.0.0.0:8474", "127.0.0.1:8474"].map(|at| at.parse().unwrap());
        assert!(ApiToken::default().warning(open).is_some());
        assert_eq!(ApiToken::default().warning(local), None);
        assert_eq!(ApiToken::new("0123456789abcdef").warning(open), None);
    }

    #[test]
    fn a_token_that_can_be_guessed_is_refused() {
        let path = std::env::temp_dir().join(format!("harness-token-{}", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            ApiToken::read(&path)
        };
        assert!(read("0123456789abcdef\n").is_ok());
        assert!(read("short\n").unwrap_err().contains("openssl"));
        assert!(read("two words of enough letters").is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(ApiToken::read(&path).unwrap_err().contains("could not read"));
    }
}
