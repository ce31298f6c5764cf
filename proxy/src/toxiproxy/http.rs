//! Toxiproxy's HTTP API, for calls that `toxiproxy_rust` lacks: to check a status, to remove one toxic, to add a `reset_peer` or a toxic
//! whose name is not the default, to read back all of a proxy, and to see whether an answer is a version.

use std::net::SocketAddr;

use reqwest::blocking::Client;
use reqwest::{Method, Url};
use serde::Serialize;
use serde_json::Value;

use crate::limits::REMOTE_CALL;

pub struct ToxiproxyHttp {
    client: Client,
    address: SocketAddr,
}

impl ToxiproxyHttp {
    pub fn new(address: SocketAddr) -> Self {
        let client = Client::builder()
            .timeout(REMOTE_CALL)
            .no_proxy()
            .pool_max_idle_per_host(0)
            .build()
            .expect("a client without TLS of its own");
        Self { client, address }
    }

    pub fn get(&self, path: &[&str]) -> Result<Value, String> {
        self.send(Method::GET, path, None::<&()>, &[200])
    }

    pub fn post(&self, path: &[&str], body: &impl Serialize) -> Result<Value, String> {
        self.send(Method::POST, path, Some(body), &[200, 201])
    }

    /// Deletes a path. One that is gone already is no error.
    pub fn delete(&self, path: &[&str]) -> Result<(), String> {
        self.send(Method::DELETE, path, None::<&()>, &[204, 404]).map(drop)
    }

    fn send(
        &self,
        method: Method,
        path: &[&str],
        body: Option<&impl Serialize>,
        good: &[u16],
    ) -> Result<Value, String> {
        let said = format!("{method} /{}", path.join("/"));
        let failed = |why: String| format!("{said}: {why}");
        let mut url = Url::parse(&format!("http://{}/", self.address)).expect("an address makes a URL");
        url.path_segments_mut()
            .expect("it has a path")
            .pop_if_empty()
            .extend(path);
        let mut request = self.client.request(method, url);
        if let Some(body) = body {
            let text = serde_json::to_string(body).map_err(|error| failed(error.to_string()))?;
            request = request.header("Content-Type", "application/json").body(text);
        }
        let response = request.send().map_err(|error| failed(error.to_string()))?;
        let status = response.status().as_u16();
        let text = response.text().map_err(|error| failed(error.to_string()))?;
        if !good.contains(&status) {
            return Err(failed(format!("status {status}: {}", text.trim())));
        }
        if text.trim().is_empty() || status == 404 {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|error| failed(format!("no JSON: {error}")))
    }
}
