//! The routes of the API, and its responses: Toxiproxy's status codes and bodies.

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use percent_encoding::percent_decode_str;
use serde::Serialize;

use super::metrics;
use super::proxies::ProxyTable;
use super::request::ApiError;

pub struct ApiResponse {
    pub status: StatusCode,
    pub body: String,
    pub content: Option<HeaderValue>,
}

impl ApiResponse {
    pub fn text(status: u16, body: &str) -> Self {
        Self::new(status, body.to_owned(), "text/plain; charset=utf-8")
    }

    /// Makes a response in the text format of Prometheus.
    pub fn metrics(text: String) -> Self {
        Self::new(200, text, "text/plain; version=0.0.4; charset=utf-8")
    }

    pub fn json(status: u16, body: &impl Serialize) -> Self {
        let body = serde_json::to_string(body).expect("responses are plain data");
        Self::new(status, body, "application/json")
    }

    fn nothing((): ()) -> Self {
        Self {
            content: None,
            ..Self::text(204, "")
        }
    }

    fn new(status: u16, body: String, content: &'static str) -> Self {
        Self {
            status: StatusCode::from_u16(status).expect("a status of three digits"),
            body,
            content: Some(HeaderValue::from_static(content)),
        }
    }
}

impl From<ApiError> for ApiResponse {
    fn from(refusal: ApiError) -> Self {
        Self::json(refusal.status, &refusal)
    }
}

/// Answers one request.
pub async fn answer(proxies: &ProxyTable, method: &Method, path: &str, body: &[u8]) -> ApiResponse {
    let segments: Vec<String> = path
        .split('/')
        .skip(1)
        .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
        .collect();
    let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
    granted(proxies, method.as_str(), &segments, body)
        .await
        .unwrap_or_else(ApiResponse::from)
}

async fn granted(proxies: &ProxyTable, method: &str, path: &[&str], body: &[u8]) -> Result<ApiResponse, ApiError> {
    Ok(match (path, method) {
        (["version"], "GET") => ApiResponse::json(200, &serde_json::json!({ "version": VERSION })),
        (["metrics"], "GET") => ApiResponse::metrics(metrics::text(&proxies.traffic().await)),
        (["reset"], "POST") => proxies.reset().await.map(ApiResponse::nothing)?,
        (["proxies"], "GET") => ApiResponse::json(200, &proxies.all().await),
        (["proxies"], "POST") => ApiResponse::json(201, &proxies.create(body).await?),
        (["populate"], "POST") => return Ok(populate(proxies, body).await),
        (["proxies", proxy], "GET") => ApiResponse::json(200, &proxies.one(proxy).await?),
        (["proxies", proxy], "POST" | "PATCH") => ApiResponse::json(200, &proxies.update(proxy, body).await?),
        (["proxies", proxy], "DELETE") => proxies.delete(proxy).await.map(ApiResponse::nothing)?,
        (["proxies", proxy, "toxics"], "GET") => ApiResponse::json(200, &proxies.one(proxy).await?.toxics),
        // 200, where one would expect 201: that is how Toxiproxy has it
        (["proxies", proxy, "toxics"], "POST") => ApiResponse::json(200, &proxies.add_toxic(proxy, body).await?),
        (["proxies", proxy, "toxics", toxic], "GET") => ApiResponse::json(200, &proxies.toxic(proxy, toxic).await?),
        (["proxies", proxy, "toxics", toxic], "POST" | "PATCH") => {
            ApiResponse::json(200, &proxies.update_toxic(proxy, toxic, body).await?)
        }
        (["proxies", proxy, "toxics", toxic], "DELETE") => {
            proxies.delete_toxic(proxy, toxic).await.map(ApiResponse::nothing)?
        }
        (["version" | "metrics" | "reset" | "proxies" | "populate"] | ["proxies", _] | ["proxies", _, "toxics"], _)
        | (["proxies", _, "toxics", _], _) => ApiResponse::text(405, ""),
        _ => ApiResponse::text(404, "404 page not found\n"),
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
    ApiResponse::json(status, &Populated { refusal, proxies })
}
