//! The routes of the API, and its responses: Toxiproxy's status codes and bodies.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use hyper::{Request, Response};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::metrics;
use super::proxies::ProxyTable;
use super::request::ApiError;

pub type ApiResponse = Response<Full<Bytes>>;

pub fn text(status: u16, body: &str) -> ApiResponse {
    response(status, body.to_owned(), "text/plain; charset=utf-8")
}

/// Makes a response in the text format of Prometheus.
pub fn prometheus(text: String) -> ApiResponse {
    response(200, text, "text/plain; version=0.0.4; charset=utf-8")
}

fn json(status: u16, body: &impl Serialize) -> ApiResponse {
    let body = serde_json::to_string(body).expect("responses are plain data");
    response(status, body, "application/json")
}

fn nothing((): ()) -> ApiResponse {
    let mut response = text(204, "");
    response.headers_mut().remove(CONTENT_TYPE);
    response
}

fn response(status: u16, body: String, content: &str) -> ApiResponse {
    let head = Response::builder().status(status).header(CONTENT_TYPE, content);
    head.body(Full::from(body)).expect("a status of three digits")
}

impl From<ApiError> for ApiResponse {
    fn from(refusal: ApiError) -> Self {
        json(refusal.status, &refusal)
    }
}

/// Answers one request.
pub async fn answer(proxies: &ProxyTable, request: &Request<Bytes>) -> ApiResponse {
    let path = request.uri().path();
    let segments: Vec<String> = path
        .split('/')
        .skip(1)
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    granted(proxies, request.method().as_str(), &segments, request.body())
        .await
        .unwrap_or_else(ApiResponse::from)
}

async fn granted(proxies: &ProxyTable, method: &str, path: &[&str], body: &[u8]) -> Result<ApiResponse, ApiError> {
    Ok(match (path, method) {
        (["version"], "GET") => json(200, &serde_json::json!({ "version": VERSION })),
        (["metrics"], "GET") => prometheus(metrics::text(&proxies.traffic().await)),
        (["reset"], "POST") => proxies.reset().await.map(nothing)?,
        (["proxies"], "GET") => json(200, &proxies.all().await),
        (["proxies"], "POST") => json(201, &proxies.create(body).await?),
        (["populate"], "POST") => return Ok(populate(proxies, body).await),
        (["proxies", proxy], "GET") => json(200, &proxies.one(proxy).await?),
        (["proxies", proxy], "POST" | "PATCH") => json(200, &proxies.update(proxy, body).await?),
        (["proxies", proxy], "DELETE") => proxies.delete(proxy).await.map(nothing)?,
        (["proxies", proxy, "toxics"], "GET") => json(200, &proxies.one(proxy).await?.toxics),
        // 200, where one would expect 201: that is how Toxiproxy has it
        (["proxies", proxy, "toxics"], "POST") => json(200, &proxies.add_toxic(proxy, body).await?),
        (["proxies", proxy, "toxics", toxic], "GET") => json(200, &proxies.toxic(proxy, toxic).await?),
        (["proxies", proxy, "toxics", toxic], "POST" | "PATCH") => {
            json(200, &proxies.update_toxic(proxy, toxic, body).await?)
        }
        (["proxies", proxy, "toxics", toxic], "DELETE") => proxies.delete_toxic(proxy, toxic).await.map(nothing)?,
        (["version" | "metrics" | "reset" | "proxies" | "populate"] | ["proxies", _] | ["proxies", _, "toxics"], _)
        | (["proxies", _, "toxics", _], _) => text(405, ""),
        _ => text(404, "404 page not found\n"),
    })
}

/// The version of the API, with harness and its version.
const VERSION: &str = concat!("2.12.0-harness-", env!("CARGO_PKG_VERSION"));

/// Responds with the proxies that it made, also if it could not make all.
async fn populate(proxies: &ProxyTable, body: &[u8]) -> ApiResponse {
    #[derive(Serialize)]
    struct Populated<T> {
        #[serde(flatten, skip_serializing_if = "Option::is_none")]
        refusal: Option<ApiError>,
        proxies: Option<Vec<T>>,
    }
    let (made, refusal) = proxies.populate(body).await;
    let status = refusal.as_ref().map_or(201, |refusal| refusal.status);
    let proxies = (!made.is_empty()).then_some(made);
    json(status, &Populated { refusal, proxies })
}
