//! Refusals of requests to the API, as `Status` objects.
//!
//! <https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md#response-status-kind>

use serde_json::{Value, json};

use super::GROUP;

/// The refusal of a request: the code of HTTP, the reason of the API, and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiRefusal {
    pub code: u16,
    reason: &'static str,
    message: String,
    /// The Lease that the request named.
    name: Option<String>,
}

impl ApiRefusal {
    fn new(code: u16, reason: &'static str, message: String) -> Self {
        Self {
            code,
            reason,
            message,
            name: None,
        }
    }

    fn of(self, name: &str) -> Self {
        Self {
            name: Some(name.to_owned()),
            ..self
        }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message.into())
    }

    pub fn no_such_path() -> Self {
        let message = "the server could not find the requested resource".to_owned();
        Self::new(404, "NotFound", message)
    }

    pub fn not_found(name: &str) -> Self {
        Self::new(404, "NotFound", format!("leases.{GROUP} {name:?} not found")).of(name)
    }

    pub fn no_such_method() -> Self {
        let message = "the server does not allow this method on the requested resource".to_owned();
        Self::new(405, "MethodNotAllowed", message)
    }

    pub fn exists(name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("leases.{GROUP} {name:?} already exists")).of(name)
    }

    pub fn conflict(name: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on leases.{GROUP} {name:?}: the object has been modified; please apply your changes to the latest version and try again"
        );
        Self::new(409, "Conflict", message).of(name)
    }

    /// Refuses a watch or a list from a version that is no longer kept.
    pub fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    pub fn media_type(is: &str, taken: &[&str]) -> Self {
        let taken = taken.join(", ");
        let message = format!("the body of the request was in {is}; this server takes {taken}");
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub fn invalid(name: &str, field: &str, why: &str) -> Self {
        let message = format!("Lease.{GROUP} {name:?} is invalid: {field}: {why}");
        Self::new(422, "Invalid", message).of(name)
    }

    /// Refuses a version that does not exist yet.
    pub fn too_large(asked: u64, newest: u64) -> Self {
        let message = format!("Too large resource version: {asked}, current: {newest}");
        Self::new(504, "Timeout", message)
    }

    /// Returns the `Status` object of the answer.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if let Some(name) = &self.name {
            status["details"] = json!({ "name": name, "group": GROUP, "kind": "leases" });
        }
        status
    }
}
