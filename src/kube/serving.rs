//! The API server over HTTP: paths, verbs and parameters of the API, and its discovery documents.
//!
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris>

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::lease;
use super::lease_store::{LeaseKey, LeasePreconditions, LeaseStore, LeaseView};
use super::refusal::ApiRefusal;
use super::watch_stream::{LeaseScope, LeaseWatch};
use super::{GROUP, GROUP_VERSION, WATCH_LASTS};

/// The largest body of a request, as that of an object in etcd.
const MOST_BYTES: usize = 1_500_000;

/// A configuration for server-side apply; it must be JSON, which is YAML.
const APPLY: &str = "application/apply-patch+yaml";

type ApiBody = UnsyncBoxBody<Bytes, Infallible>;
type ApiAnswer = Result<Response<ApiBody>, ApiRefusal>;

/// Serves at this address until the process ends.
///
/// # Errors
///
/// It cannot listen at the address.
pub async fn serve(at: SocketAddr, store: Arc<LeaseStore>) -> io::Result<()> {
    let listener = TcpListener::bind(at).await?;
    println!("serving Leases at http://{}", listener.local_addr()?);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // out of descriptors, or the peer closed already
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let store = Arc::clone(&store);
        let service = service_fn(move |request| {
            let store = Arc::clone(&store);
            async move { Ok::<_, Infallible>(respond(&store, request).await) }
        });
        // a client may break off
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn respond(store: &Arc<LeaseStore>, request: Request<Incoming>) -> Response<ApiBody> {
    let answer = match ApiCall::read(request).await {
        Ok(call) => call.answer(store),
        Err(refusal) => Err(refusal),
    };
    answer.unwrap_or_else(|refusal| json_answer(refusal.code, &refusal.status()))
}

fn json_answer(code: u16, value: &Value) -> Response<ApiBody> {
    answered(code, "application/json", Full::from(value.to_string()).boxed_unsync())
}

fn answered(code: u16, content: &'static str, body: ApiBody) -> Response<ApiBody> {
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).expect("the codes are those of HTTP");
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content));
    response
}

/// The parts of a request.
struct ApiCall {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    content: String,
    body: Bytes,
}

impl ApiCall {
    async fn read(request: Request<Incoming>) -> Result<Self, ApiRefusal> {
        let (head, body) = request.into_parts();
        let body = Limited::new(body, MOST_BYTES).collect().await;
        let body = body.map_err(|error| ApiRefusal::bad_request(error.to_string()))?;
        let content = head.headers.get(CONTENT_TYPE).and_then(|content| content.to_str().ok());
        let content = content.unwrap_or("application/json");
        let query = head.uri.query().unwrap_or_default();
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Ok(Self {
            method: head.method,
            path: decoded(head.uri.path()),
            query: pairs
                .map(|(key, value)| (decoded(key), decoded(&value.replace('+', " "))))
                .collect(),
            content: content.split(';').next().unwrap_or_default().trim().to_owned(),
            body: body.to_bytes(),
        })
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        let pair = self.query.iter().find(|(key, _)| key == name);
        pair.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    fn switch(&self, name: &str) -> bool {
        self.parameter(name)
            .is_some_and(|value| matches!(value, "true" | "1" | "True"))
    }

    fn number(&self, name: &str) -> Result<Option<u64>, ApiRefusal> {
        let number = self.parameter(name).map(|value| {
            let wrong = |_| ApiRefusal::bad_request(format!("{name} is not a number of this server: {value:?}"));
            value.parse().map_err(wrong)
        });
        number.transpose()
    }

    fn answer(&self, store: &Arc<LeaseStore>) -> ApiAnswer {
        if self.parameter("dryRun").is_some() {
            return Err(ApiRefusal::bad_request("this server has no dry runs"));
        }
        let parts: Vec<&str> = self.path.split('/').filter(|part| !part.is_empty()).collect();
        if let ["apis", GROUP, "v1", rest @ ..] = parts.as_slice()
            && !rest.is_empty()
        {
            return match *rest {
                ["leases"] => self.answer_collection(store, None),
                ["namespaces", namespace, "leases"] => self.answer_collection(store, Some(namespace)),
                ["namespaces", namespace, "leases", name] => {
                    self.answer_lease(store, (namespace.to_owned(), name.to_owned()))
                }
                _ => Err(ApiRefusal::no_such_path()),
            };
        }
        if self.method != Method::GET && self.method != Method::HEAD {
            return Err(ApiRefusal::no_such_method());
        }
        match parts[..] {
            ["healthz" | "livez" | "readyz"] => Ok(answered(200, "text/plain", Full::from("ok").boxed_unsync())),
            _ => Ok(json_answer(200, &about(&parts)?)),
        }
    }

    fn answer_collection(&self, store: &Arc<LeaseStore>, namespace: Option<&str>) -> ApiAnswer {
        match (self.method.as_str(), namespace) {
            ("GET", _) => {
                self.check_match()?;
                let scope = self.scope(namespace)?;
                if self.switch("watch") {
                    return self.watch(store, scope);
                }
                let view = self.view(store)?;
                Ok(json_answer(200, &view.list(|key| scope.has(key))))
            }
            ("POST", Some(namespace)) => {
                let object = self.object(namespace)?;
                let name = lease::text(&object, "name").map(str::to_owned);
                let name = name.ok_or_else(|| {
                    ApiRefusal::invalid("", "metadata.name", "Required value: name or generateName is required")
                })?;
                let created = store.create((namespace.to_owned(), name), object)?;
                Ok(json_answer(201, &Value::Object(created)))
            }
            _ => Err(ApiRefusal::no_such_method()),
        }
    }

    fn answer_lease(&self, store: &Arc<LeaseStore>, key: LeaseKey) -> ApiAnswer {
        match self.method.as_str() {
            "GET" if self.switch("watch") => {
                let scope = LeaseScope {
                    namespace: Some(key.0),
                    name: Some(key.1),
                };
                self.watch(store, scope)
            }
            "GET" => {
                let mut view = self.view(store)?;
                let object = view.objects.remove(&key).ok_or_else(|| ApiRefusal::not_found(&key.1))?;
                Ok(json_answer(200, &Value::Object(object)))
            }
            "PUT" => {
                let object = self.object(&key.0)?;
                if let Some(name) = lease::text(&object, "name").filter(|name| *name != key.1) {
                    let message = format!(
                        "the name of the object ({name}) does not match the name on the URL ({})",
                        key.1
                    );
                    return Err(ApiRefusal::bad_request(message));
                }
                let (object, created) = store.update(key, object)?;
                Ok(json_answer(if created { 201 } else { 200 }, &Value::Object(object)))
            }
            "PATCH" => self.patch(store, key),
            "DELETE" => self.delete(store, key),
            _ => Err(ApiRefusal::no_such_method()),
        }
    }

    /// Patches a Lease. Strategic merge patches have no list of a Lease to merge by a key, but for finalizers and owners.
    fn patch(&self, store: &LeaseStore, key: LeaseKey) -> ApiAnswer {
        let known = [
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            APPLY,
        ];
        if !known.contains(&self.content.as_str()) {
            return Err(ApiRefusal::media_type(&self.content, &known));
        }
        let patch: Value = serde_json::from_slice(&self.body)
            .map_err(|error| ApiRefusal::bad_request(format!("the patch is not JSON: {error}")))?;
        let is_apply = self.content == APPLY;
        if is_apply {
            self.check_apply(&patch)?;
        }
        let (object, created) = store.patch(key, is_apply, |is| {
            let mut object = Value::Object(is);
            lease::merge(&mut object, &patch);
            let Value::Object(object) = object else {
                return Err(ApiRefusal::bad_request("the patch is not an object"));
            };
            lease::completed(object)
        })?;
        Ok(json_answer(if created { 201 } else { 200 }, &Value::Object(object)))
    }

    /// Refuses an apply that needs managers of fields, which are not kept here: server-side apply is a patch that may create, and
    /// that takes each field from other managers; without `force` it would be refused if another one owns a field.
    fn check_apply(&self, configuration: &Value) -> Result<(), ApiRefusal> {
        let by_nobody = self.parameter("fieldManager").is_none();
        let unforced = !self.switch("force");
        let names = ["apiVersion", "kind"];
        let unnamed = names.iter().any(|field| !configuration[field].is_string());
        let managed = !configuration["metadata"]["managedFields"].is_null();
        let wrongs = [
            (by_nobody, "fieldManager is required for apply patch"),
            (unforced, "this server keeps no field managers: apply with force=true"),
            (unnamed, "apiVersion and kind must be set in an apply patch"),
            (managed, "metadata.managedFields must be nil"),
        ];
        match wrongs.into_iter().find(|(is_so, _)| *is_so) {
            Some((_, why)) => Err(ApiRefusal::bad_request(why)),
            None => Ok(()),
        }
    }

    fn delete(&self, store: &LeaseStore, key: LeaseKey) -> ApiAnswer {
        let mut wanted = LeasePreconditions::default();
        if !self.body.is_empty() {
            let options: Value = serde_json::from_slice(&self.body)
                .map_err(|error| ApiRefusal::bad_request(format!("the options are not JSON: {error}")))?;
            let given = json!({ "metadata": options["preconditions"] });
            if let Value::Object(given) = given {
                wanted = LeasePreconditions::of(&given)?;
            }
        }
        let name = key.1.clone();
        let was = store.delete(key, &wanted)?;
        let details = json!({ "name": name, "group": GROUP, "kind": "leases", "uid": lease::text(&was, "uid") });
        let status =
            json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details });
        Ok(json_answer(200, &status))
    }

    /// Returns the object in the body, of this namespace.
    fn object(&self, namespace: &str) -> Result<lease::LeaseObject, ApiRefusal> {
        if self.content != "application/json" {
            return Err(ApiRefusal::media_type(&self.content, &["application/json"]));
        }
        let object = lease::read(&self.body)?;
        match lease::text(&object, "namespace").filter(|is| *is != namespace) {
            None => Ok(object),
            Some(_) => {
                let message = "the namespace of the provided object does not match the namespace sent on the request";
                Err(ApiRefusal::bad_request(message))
            }
        }
    }

    /// Parses the selectors: <https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/>.
    fn scope(&self, namespace: Option<&str>) -> Result<LeaseScope, ApiRefusal> {
        let mut scope = LeaseScope {
            namespace: namespace.map(str::to_owned),
            name: None,
        };
        if self.parameter("labelSelector").is_some() {
            return Err(ApiRefusal::bad_request(
                "this server selects by metadata.name and metadata.namespace alone",
            ));
        }
        let fields = self.parameter("fieldSelector").unwrap_or_default();
        for field in fields.split(',').filter(|field| !field.is_empty()) {
            match field.replace("==", "=").split_once('=') {
                Some(("metadata.name", name)) => scope.name = Some(name.to_owned()),
                Some(("metadata.namespace", namespace)) => scope.namespace = Some(namespace.to_owned()),
                _ => return Err(ApiRefusal::bad_request(format!("field label not supported: {field}"))),
            }
        }
        Ok(scope)
    }

    /// Checks the version parameters: <https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-version-parameter>.
    fn check_match(&self) -> Result<(), ApiRefusal> {
        let versions = (
            self.parameter("resourceVersionMatch"),
            self.parameter("resourceVersion"),
        );
        let why = match versions {
            _ if self.parameter("sendInitialEvents").is_some() => "Forbidden: this server has no streaming lists",
            (None, _) => return Ok(()),
            (Some(_), _) if self.switch("watch") => "Forbidden: for a watch without sendInitialEvents",
            (Some(_), None) => "Forbidden: unless resourceVersion is provided",
            (Some("Exact"), Some("0")) => "Forbidden: Exact is forbidden for resourceVersion 0",
            (Some("Exact" | "NotOlderThan"), _) => return Ok(()),
            (Some(_), _) => "Unsupported value: supported values are Exact and NotOlderThan",
        };
        Err(ApiRefusal::invalid("", "resourceVersionMatch", why))
    }

    /// Returns the Leases for a read: any copy for version 0, and otherwise the newest.
    ///
    /// <https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list>
    fn view(&self, store: &LeaseStore) -> Result<LeaseView, ApiRefusal> {
        let asked = self.number("resourceVersion")?;
        if asked == Some(0) {
            return Ok(store.as_of(store.stale));
        }
        let view = store.newest();
        match (asked, self.parameter("resourceVersionMatch")) {
            (Some(asked), _) if asked > view.revision => Err(ApiRefusal::too_large(asked, view.revision)),
            (Some(asked), Some("Exact")) if asked < view.revision => Err(ApiRefusal::expired(asked, view.revision)),
            _ => Ok(view),
        }
    }

    /// Begins a watch: <https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-watch>.
    fn watch(&self, store: &Arc<LeaseStore>, scope: LeaseScope) -> ApiAnswer {
        let asked = self.number("resourceVersion")?;
        let stale = if asked == Some(0) { store.stale } else { Duration::ZERO };
        let (after, first) = match asked {
            Some(asked @ 1..) => {
                let newest = store.newest().revision;
                if asked > newest {
                    return Err(ApiRefusal::too_large(asked, newest));
                }
                store.since(asked, stale)?;
                (asked, Vec::new())
            }
            _ => {
                let view = store.as_of(stale);
                let there = view.objects.iter().filter(|(key, _)| scope.has(key));
                let added = there.map(|(_, object)| json!({ "type": "ADDED", "object": object }));
                (view.revision, added.collect())
            }
        };
        let lasts = self.number("timeoutSeconds")?.filter(|seconds| *seconds > 0);
        let lasts = lasts.map_or(WATCH_LASTS, Duration::from_secs);
        let watch = LeaseWatch {
            store: Arc::clone(store),
            scope,
            after,
            stale,
            bookmarks: self.switch("allowWatchBookmarks"),
            ends: Instant::now() + lasts,
            first: first.into(),
        };
        let body = StreamBody::new(watch.body()).boxed_unsync();
        Ok(answered(200, "application/json", body))
    }
}

/// Returns the documents that clients read before they use an API.
///
/// <https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api>
fn about(parts: &[&str]) -> Result<Value, ApiRefusal> {
    let version = json!({ "groupVersion": GROUP_VERSION, "version": "v1" });
    let group = json!({ "name": GROUP, "versions": [version], "preferredVersion": version });
    Ok(match parts {
        ["version"] => json!({
            "major": "1", "minor": "34", "gitVersion": "v1.34.0", "gitCommit": "", "gitTreeState": "",
            "buildDate": "", "goVersion": "", "compiler": "", "platform": "harness",
        }),
        ["api"] => json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [] }),
        ["api", "v1"] => json!({ "kind": "APIResourceList", "groupVersion": "v1", "resources": [] }),
        ["apis"] => json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": [group] }),
        ["apis", GROUP] => {
            let mut answer = group;
            answer["kind"] = "APIGroup".into();
            answer["apiVersion"] = "v1".into();
            answer
        }
        ["apis", GROUP, "v1"] => json!({
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": GROUP_VERSION,
            "resources": [{
                "name": "leases", "singularName": "lease", "namespaced": true, "kind": "Lease",
                "verbs": ["create", "delete", "get", "list", "patch", "update", "watch"],
            }],
        }),
        _ => return Err(ApiRefusal::no_such_path()),
    })
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
