//! A Lease object: its form, its validation, and merge patches.
//!
//! <https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/>

use serde_json::{Map, Value, json};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{OffsetDateTime, UtcOffset};

use super::GROUP_VERSION;
use super::refusal::ApiRefusal;

/// A stored Lease: an object with `metadata` and `spec`.
pub type LeaseObject = Map<String, Value>;

/// Returns the object in the body of a request, with its kind, validated.
///
/// # Errors
///
/// It is not JSON, of another kind, or a field has a value that no Lease has.
pub fn read(body: &[u8]) -> Result<LeaseObject, ApiRefusal> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| ApiRefusal::bad_request(format!("the object provided is unrecognized: {error}")))?;
    let Value::Object(object) = value else {
        return Err(ApiRefusal::bad_request("the object provided is unrecognized"));
    };
    completed(object)
}

/// Adds kind and version, and converts times to the form of the API.
pub fn completed(mut object: LeaseObject) -> Result<LeaseObject, ApiRefusal> {
    for (key, wanted) in [("apiVersion", GROUP_VERSION), ("kind", "Lease")] {
        match object.get(key) {
            None | Some(Value::Null) => drop(object.insert(key.into(), wanted.into())),
            Some(Value::String(is)) if is == wanted => {}
            Some(other) => {
                let message = format!("{key} in the body is {other}, and not {wanted:?}");
                return Err(ApiRefusal::bad_request(message));
            }
        }
    }
    for part in ["metadata", "spec"] {
        let part = object.entry(part).or_insert_with(|| json!({}));
        if part.is_null() {
            *part = json!({});
        }
        let Some(fields) = part.as_object_mut() else {
            return Err(ApiRefusal::bad_request("metadata and spec are objects"));
        };
        fields.retain(|_, value| !value.is_null());
    }
    let name = text(&object, "name").unwrap_or_default().to_owned();
    let spec = object["spec"].as_object_mut().expect("it was made one");
    validate(&name, spec)?;
    Ok(object)
}

fn validate(name: &str, spec: &mut Map<String, Value>) -> Result<(), ApiRefusal> {
    for (field, least) in [("leaseDurationSeconds", 1), ("leaseTransitions", 0)] {
        let Some(value) = spec.get(field) else { continue };
        match value.as_i64().filter(|number| i32::try_from(*number).is_ok()) {
            None => {
                let why = format!("{field} is not a 32-bit integer: {value}");
                return Err(ApiRefusal::bad_request(why));
            }
            Some(number) if number < least => {
                let why = format!("Invalid value: {number}: must be {least} or greater");
                return Err(ApiRefusal::invalid(name, &format!("spec.{field}"), &why));
            }
            Some(_) => {}
        }
    }
    if let Some(holder) = spec.get("holderIdentity").filter(|holder| !holder.is_string()) {
        let why = format!("holderIdentity is not a string: {holder}");
        return Err(ApiRefusal::bad_request(why));
    }
    for field in ["acquireTime", "renewTime"] {
        if let Some(value) = spec.get_mut(field) {
            let time = value.as_str().and_then(micro_time);
            let time = time.ok_or_else(|| ApiRefusal::bad_request(format!("{field} is not an RFC 3339 time: {value}")));
            *value = time?.into();
        }
    }
    Ok(())
}

/// Formats a time as `MicroTime` of the API: UTC, with six digits of a second.
fn micro_time(text: &str) -> Option<String> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?.to_offset(UtcOffset::UTC);
    let form = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    time.format(&form).ok()
}

/// Returns a text in the metadata of an object.
pub fn text<'a>(object: &'a LeaseObject, field: &str) -> Option<&'a str> {
    let text = object.get("metadata")?.get(field)?.as_str();
    text.filter(|text| !text.is_empty())
}

/// Returns the version in the metadata of an object from a client. The error refuses one that is not of this server.
pub fn version(object: &LeaseObject) -> Result<Option<u64>, ApiRefusal> {
    let Some(text) = text(object, "resourceVersion") else {
        return Ok(None);
    };
    let number = text.parse().ok().filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| {
        let why = format!("Invalid value: {text:?}: must be an unmodified version of the server");
        ApiRefusal::invalid("", "metadata.resourceVersion", &why)
    })
}

pub fn set(object: &mut LeaseObject, field: &str, value: impl Into<Value>) {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    metadata[field] = value.into();
}

/// Applies a patch by RFC 7386: its members replace those of the target, `null` removes one.
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let object = target.as_object_mut().expect("it was made one");
    for (key, member) in members {
        if member.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_stored_in_the_form_of_the_api() {
        for (sent, kept) in [
            ("2026-08-29T01:02:03.456789Z", Some("2026-08-29T01:02:03.456789Z")),
            ("2026-08-29T03:02:03.456789+02:00", Some("2026-08-29T01:02:03.456789Z")),
            ("2026-08-29T01:02:03Z", Some("2026-08-29T01:02:03.000000Z")),
            ("2026-08-29 01:02", None),
        ] {
            assert_eq!(micro_time(sent).as_deref(), kept, "{sent}");
        }
    }

    // https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/: int32, and not negative
    #[test]
    fn a_field_with_a_value_that_no_lease_has_is_refused() {
        for (spec, code) in [
            (r#"{"leaseDurationSeconds":0}"#, 422),
            (r#"{"leaseDurationSeconds":2.5}"#, 400),
            (r#"{"leaseTransitions":-1}"#, 422),
            (r#"{"holderIdentity":7}"#, 400),
            (r#"{"renewTime":"now"}"#, 400),
        ] {
            let body = format!(r#"{{"metadata":{{"name":"l0"}},"spec":{spec}}}"#);
            assert_eq!(read(body.as_bytes()).unwrap_err().code, code, "{spec}");
        }
        assert_eq!(read(br#"{"kind":"Pod"}"#).unwrap_err().code, 400);
        assert!(read(br#"{"spec":{"leaseDurationSeconds":15,"holderIdentity":""}}"#).is_ok());
    }

    // https://www.rfc-editor.org/rfc/rfc7386#appendix-A
    #[test]
    fn a_merge_patch_replaces_members_and_null_removes_one() {
        let mut object = json!({ "a": "b", "c": { "d": 1, "e": 2 } });
        merge(&mut object, &json!({ "a": null, "c": { "d": 3 }, "f": [1] }));
        assert_eq!(object, json!({ "c": { "d": 3, "e": 2 }, "f": [1] }));
    }
}
