//! The watch of a client on the Leases of a namespace: a list, and every change from its version on.
//!
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>

use std::collections::VecDeque;
use std::time::Duration;

use hyper::Method;
use serde_json::Value;

use super::GROUP_VERSION;
use super::http_client::{ApiAddress, ApiCallError, ApiReply};

/// The time of one watch.
const WATCH_SECONDS: u64 = 300;

/// A Lease as a watch reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRecord {
    pub name: String,
    /// `None` if it has no holder.
    pub holder: Option<String>,
    pub transitions: Option<u64>,
    /// The time for which others wait after a change.
    pub duration: Option<Duration>,
    pub version: String,
}

impl LeaseRecord {
    fn of(object: &Value) -> Self {
        let (metadata, spec) = (&object["metadata"], &object["spec"]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            name: text(&metadata["name"]),
            holder: Some(text(&spec["holderIdentity"])).filter(|holder| !holder.is_empty()),
            transitions: spec["leaseTransitions"].as_u64(),
            duration: spec["leaseDurationSeconds"].as_u64().map(Duration::from_secs),
            version: text(&metadata["resourceVersion"]),
        }
    }
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeaseNews {
    /// All existing Leases.
    All(Vec<LeaseRecord>),
    Changed(LeaseRecord),
    /// The Lease of this name was deleted.
    Deleted(String),
    /// There was no other change until now.
    Alive,
}

/// Watches the Leases of a namespace, or one of them.
pub struct LeaseWatcher {
    address: ApiAddress,
    namespace: String,
    name: Option<String>,
    /// The version up to which events were returned; `None` before a list.
    version: Option<String>,
    watch: Option<ApiReply>,
    /// The bytes of an incomplete line.
    part: Vec<u8>,
    news: VecDeque<LeaseNews>,
}

impl LeaseWatcher {
    pub fn new(address: ApiAddress, namespace: &str, name: Option<&str>) -> Self {
        Self {
            address,
            namespace: namespace.to_owned(),
            name: name.map(str::to_owned),
            version: None,
            watch: None,
            part: Vec::new(),
            news: VecDeque::new(),
        }
    }

    fn path(&self, parameters: &str) -> String {
        let name = self.name.as_ref();
        let only = name.map(|name| format!("&fieldSelector=metadata.name%3D{name}"));
        let only = only.unwrap_or_default();
        format!("{}?{parameters}{only}", collection(&self.namespace))
    }

    /// Returns the next event. After an error the next call lists the Leases anew.
    pub async fn next(&mut self) -> Result<LeaseNews, ApiCallError> {
        let next = self.step().await;
        if next.is_err() {
            self.version = None;
            self.watch = None;
            self.part.clear();
            self.news.clear();
        }
        next
    }

    async fn step(&mut self) -> Result<LeaseNews, ApiCallError> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Ok(news);
            }
            let Some(version) = self.version.clone() else {
                return self.list().await;
            };
            let Some(watch) = &mut self.watch else {
                let path = self.path(&format!(
                    "watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
                ));
                match self.address.ask(Method::GET, &path).await?.begun().await {
                    Ok(watch) => self.watch = Some(watch),
                    Err(error) if error.is_gone() => self.version = None,
                    Err(error) => return Err(error),
                }
                continue;
            };
            match watch.piece().await? {
                // its time is over
                None => {
                    self.watch = None;
                    self.part.clear();
                }
                Some(piece) => self.read(&piece)?,
            }
        }
    }

    async fn list(&mut self) -> Result<LeaseNews, ApiCallError> {
        // the newest version, and not that of a cache: no resourceVersion
        let list = self.address.object(Method::GET, &self.path("limit=0")).await?;
        let version = list["metadata"]["resourceVersion"].as_str();
        let version =
            version.ok_or_else(|| ApiCallError::refused(200, &Value::Null, b"the answer is not a list of Leases"))?;
        self.version = Some(version.to_owned());
        Ok(LeaseNews::All(records(&list).collect()))
    }

    /// Takes whole lines out of the bytes that were read.
    fn read(&mut self, piece: &[u8]) -> Result<(), ApiCallError> {
        self.part.extend_from_slice(piece);
        while let Some(end) = self.part.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.part.drain(..=end).collect();
            let event: Value = serde_json::from_slice(&line)
                .map_err(|error| ApiCallError::Unreachable(format!("a line of its watch is not an event: {error}")))?;
            let object = &event["object"];
            let record = LeaseRecord::of(object);
            let version = record.version.clone();
            match event["type"].as_str().unwrap_or_default() {
                "ADDED" | "MODIFIED" => self.news.push_back(LeaseNews::Changed(record)),
                "DELETED" => self.news.push_back(LeaseNews::Deleted(record.name)),
                "BOOKMARK" => self.news.push_back(LeaseNews::Alive),
                _ => {
                    let code = object["code"].as_u64().and_then(|code| u16::try_from(code).ok());
                    let refused = ApiCallError::refused(code.unwrap_or(500), object, &line);
                    if !refused.is_gone() {
                        return Err(refused);
                    }
                    self.version = None;
                    self.watch = None;
                    continue;
                }
            }
            self.version = Some(version);
        }
        Ok(())
    }
}

/// Returns the Leases in a list.
fn records(list: &Value) -> impl Iterator<Item = LeaseRecord> {
    list["items"].as_array().into_iter().flatten().map(LeaseRecord::of)
}

fn collection(namespace: &str) -> String {
    format!("/apis/{GROUP_VERSION}/namespaces/{namespace}/leases")
}

/// Deletes the Leases of a namespace that have this text in their names; returns their number.
pub async fn delete_marked(address: &ApiAddress, namespace: &str, mark: &str) -> Result<u64, ApiCallError> {
    let leases = collection(namespace);
    let list = address.object(Method::GET, &leases).await?;
    let mut deleted = 0;
    for LeaseRecord { name, .. } in records(&list).filter(|lease| lease.name.contains(mark)) {
        match address.object(Method::DELETE, &format!("{leases}/{name}")).await {
            Ok(_) => deleted += 1,
            Err(ApiCallError::Refused { code: 404, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(deleted)
}
