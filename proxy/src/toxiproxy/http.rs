//! Toxiproxy's HTTP API, for what `toxiproxy_rust` can't do: a status is looked at, one toxic is removed, a toxic has a name
//! that is not the default or is a `reset_peer`, and what is there is read back whole.

use std::net::SocketAddr;

use serde::Serialize;
use serde_json::Value;
use ureq::http::{Method, Request};
use url::Url;

use crate::limits::REMOTE_CALL;

pub struct ToxiproxyHttp {
    agent: ureq::Agent,
    address: SocketAddr,
}

impl ToxiproxyHttp {
    pub fn new(address: SocketAddr) -> Self {
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(REMOTE_CALL))
            .http_status_as_error(false)
            .proxy(None)
            .max_idle_connections(0);
        Self {
            agent: config.build().new_agent(),
            address,
        }
    }

    pub fn get(&self, path: &[&str]) -> Result<Value, String> {
        self.send(Method::GET, path, None::<&()>, &[200])
    }

    pub fn post(&self, path: &[&str], body: &impl Serialize) -> Result<Value, String> {
        self.send(Method::POST, path, Some(body), &[200, 201])
    }

    /// What is gone already is no error.
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
        let request = Request::builder().method(method).uri(url.as_str());
        let sent = match body {
            Some(body) => {
                let text = serde_json::to_string(body).map_err(|error| failed(error.to_string()))?;
                let request = request.header("Content-Type", "application/json").body(text);
                self.agent.run(request.map_err(|error| failed(error.to_string()))?)
            }
            None => self
                .agent
                .run(request.body(()).map_err(|error| failed(error.to_string()))?),
        };
        let mut response = sent.map_err(|error| failed(error.to_string()))?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string();
        let text = text.map_err(|error| failed(error.to_string()))?;
        if !good.contains(&status) {
            return Err(failed(format!("status {status}: {}", text.trim())));
        }
        if text.trim().is_empty() || status == 404 {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|error| failed(format!("no JSON: {error}")))
    }
}
