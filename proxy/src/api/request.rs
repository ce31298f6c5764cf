//! The bodies of requests, and the errors of requests that are refused.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The reason for which a request is refused.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct ApiError {
    pub error: String,
    pub status: u16,
}

impl ApiError {
    pub fn new(status: u16, error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            status,
        }
    }

    pub fn bad_body(why: impl std::fmt::Display) -> Self {
        Self::new(400, format!("bad request body: {why}"))
    }

    pub fn missing(field: impl std::fmt::Display) -> Self {
        Self::new(400, format!("missing required field: {field}"))
    }
}

/// Parses the first value of a body. Like Toxiproxy, it ignores the rest of the body and the case of keys.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    match values.next() {
        Some(value) => value
            .and_then(|value| serde_json::from_value(lower_keys(value)))
            .map_err(ApiError::bad_body),
        None => Err(ApiError::bad_body("EOF")),
    }
}

fn lower_keys(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let lowered = fields
                .into_iter()
                .map(|(key, value)| (key.to_lowercase(), lower_keys(value)));
            Value::Object(lowered.collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(lower_keys).collect()),
        other => other,
    }
}
