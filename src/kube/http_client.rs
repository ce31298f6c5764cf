//! The HTTP client of an API server (HTTP/1.1, one connection a call): `kubectl proxy`, or a server without TLS.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// The time for a connection, and for the head of an answer.
const ANSWER: Duration = Duration::from_secs(5);

/// The address of an API server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiAddress {
    /// `host:port`.
    authority: String,
    /// The prefix of the paths of the API, without a slash at its end.
    prefix: String,
    /// The token of the header `Authorization: Bearer`.
    token: Option<String>,
}

/// The reason for which a call has no usable answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApiCallError {
    #[error("{0}")]
    Unreachable(String),
    #[error("{code}: {message}")]
    Refused { code: u16, message: String },
}

impl ApiAddress {
    /// Parses `http://127.0.0.1:8001`, or `127.0.0.1:8001`. The error is a sentence.
    pub fn read(text: &str, token: Option<String>) -> Result<Self, String> {
        if text.starts_with("https:") {
            return Err(format!(
                "{text}: harness speaks no TLS to an API server\nhint: `kubectl proxy` serves it at http://127.0.0.1:8001, with your login"
            ));
        }
        let rest = text.strip_prefix("http://").unwrap_or(text);
        let (authority, prefix) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
        if host.is_empty() || port.parse::<u16>().is_err() {
            return Err(format!(
                "expected the URL of an API server, such as http://127.0.0.1:8001, and not {text:?}"
            ));
        }
        Ok(Self {
            authority: format!("{host}:{port}"),
            prefix: prefix.trim_end_matches('/').to_owned(),
            token,
        })
    }

    /// Sends a request without a body.
    pub(super) async fn ask(&self, method: Method, path: &str) -> Result<ApiReply, ApiCallError> {
        let lost = |error: &dyn std::fmt::Display| ApiCallError::Unreachable(format!("{}: {error}", self.authority));
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.prefix))
            .header(HOST, &self.authority)
            .header(ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| lost(&error))?;
        let asking = async {
            let stream = TcpStream::connect(&self.authority).await;
            let stream = stream.map_err(|error| lost(&error))?;
            let _ = stream.set_nodelay(true);
            let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
            let (mut sender, connection) = handshake.map_err(|error| lost(&error))?;
            let driving = tokio::spawn(async move { drop(connection.await) });
            let response = sender.send_request(request).await.map_err(|error| lost(&error))?;
            Ok(ApiReply { response, driving })
        };
        let asked = timeout(ANSWER, asking).await;
        asked.map_err(|_| lost(&"it does not answer"))?
    }

    /// Sends a request, and returns the object of the answer.
    pub(super) async fn object(&self, method: Method, path: &str) -> Result<Value, ApiCallError> {
        self.ask(method, path).await?.object().await
    }
}

/// An answer whose body is not read yet; dropping it closes its connection.
pub(super) struct ApiReply {
    response: Response<Incoming>,
    driving: JoinHandle<()>,
}

impl Drop for ApiReply {
    fn drop(&mut self) {
        self.driving.abort();
    }
}

impl ApiReply {
    async fn object(mut self) -> Result<Value, ApiCallError> {
        let lost = |error: &dyn std::fmt::Display| ApiCallError::Unreachable(error.to_string());
        let code = self.response.status().as_u16();
        let read = timeout(ANSWER, self.response.body_mut().collect()).await;
        let body = read.map_err(|_| lost(&"its answer does not end"))?;
        let body = body.map_err(|error| lost(&error))?.to_bytes();
        let value: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        match code {
            200..=299 => Ok(value),
            _ => Err(ApiCallError::refused(code, &value, &body)),
        }
    }

    /// Returns the answer if the request succeeded, and otherwise its error.
    pub(super) async fn begun(self) -> Result<Self, ApiCallError> {
        match self.response.status().is_success() {
            true => Ok(self),
            false => Err(self.object().await.expect_err("its status is no success")),
        }
    }

    /// Returns the next piece of the body, or `None` at its end. The error is that of a broken connection.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, ApiCallError> {
        let next = self.response.body_mut().into_data_stream().next().await;
        next.transpose()
            .map_err(|error| ApiCallError::Unreachable(error.to_string()))
    }
}

impl ApiCallError {
    /// Returns an error with the message of the `Status` object, or with the text in its place.
    pub(super) fn refused(code: u16, status: &Value, body: &[u8]) -> Self {
        let message = status["message"].as_str().map(str::to_owned);
        let message = message.unwrap_or_else(|| String::from_utf8_lossy(body).chars().take(200).collect());
        Self::Refused { code, message }
    }

    /// Whether the requested version is no longer kept.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { code: 410, .. })
    }
}
