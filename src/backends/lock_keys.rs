//! Lock keys of a run for the observer ([`LockKeys`]): the contract's pattern and kind of value, or the backend's.

use harness_workloads::{Contract, KeyPattern, KeyValue};

use super::Backend;

/// The place of locks on the servers, and the form of their owners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockKeys {
    pub pattern: KeyPattern,
    pub value: KeyValue,
    /// Whether a holder writes other values while it holds.
    pub rewrites: bool,
    /// Whether a holder may write its value again while it holds: to renew its lease, to extend it, or to count its holds.
    pub repeats: bool,
    /// The prefix of every lock's name on attached servers, where no setting may be changed.
    pub mark: Option<String>,
    /// Whether a value that begins with a time of day, in milliseconds, may be the end of its owner's lease.
    pub deadlines: bool,
}

impl LockKeys {
    /// Returns the place of the locks of clients with this contract. The error names the field that the contract lacks.
    pub fn of(backend: &Backend, contract: &Contract) -> Result<Self, String> {
        let Some(default) = backend.values.first().copied() else {
            // the observer finds locks by their names
            return Ok(Self {
                pattern: "{lock}".parse().expect("it has a place for the lock"),
                value: KeyValue::None,
                mark: None,
                rewrites: contract.rewrites.unwrap_or(false),
                repeats: true,
                deadlines: false,
            });
        };
        // locks in another form are not found under the default pattern either
        let kept = contract.value.filter(|value| *value != KeyValue::None);
        let value = kept.unwrap_or(default);
        if !backend.values.contains(&value) {
            let values: Vec<String> = backend.values.iter().map(ToString::to_string).collect();
            return Err(format!(
                "the observer cannot use the value {value} for locks on {backend}\nhint: {} or none",
                values.join(", ")
            ));
        }
        let pattern = match contract.keys.clone() {
            Some(own) => own,
            None => backend.keys.parse().expect("it has a place for the lock"),
        };
        if backend.keys.starts_with('/') && !(pattern.before().starts_with('/') && pattern.before()[1..].contains('/'))
        {
            return Err(format!(
                "{pattern} has no parent node, below which locks on {backend} are observed\nhint: {}",
                backend.keys
            ));
        }
        Ok(Self {
            pattern,
            value,
            mark: None,
            rewrites: contract.rewrites.unwrap_or(false),
            repeats: contract.outlasts_its_lease() || contract.renews.is_none() || contract.reentrant == Some(true),
            deadlines: contract.wall_clock != Some(false),
        })
    }

    /// Returns the lock of this key, or `None` for a key of others, or one below a lock's key.
    pub fn lock_at(&self, key: &str) -> Option<String> {
        let (lock, rest) = self.pattern.lock_of(key)?;
        rest.is_empty().then(|| lock.to_owned())
    }

    /// Adds `mark` as the prefix of the locks' names on the servers.
    #[must_use]
    pub fn marked(self, mark: Option<&str>) -> Self {
        Self {
            pattern: self.pattern.below(mark.unwrap_or_default()),
            mark: mark.map(str::to_owned),
            ..self
        }
    }
}

#[cfg(test)]
impl LockKeys {
    /// Returns the place of the locks of a backend's recipes.
    pub fn default_of(backend: &Backend) -> Self {
        Self::of(backend, &Contract::default()).expect("the default is one that can be")
    }
}

#[cfg(test)]
mod tests {
    use harness_workloads::BackendId;

    use super::super::of;
    use super::*;

    fn keys(backend: BackendId, promises: &[&str]) -> Result<LockKeys, String> {
        LockKeys::of(of(backend), &Contract::promised(promises)?)
    }

    #[test]
    fn a_contract_names_its_keys_and_the_backend_names_the_rest() {
        let own = keys(BackendId::Redis, &["keys=my:{lock}", "value=hash"]).unwrap();
        assert_eq!((own.pattern.key("l0").as_str(), own.value), ("my:l0", KeyValue::Hash));
        let default = keys(BackendId::Redis, &[]).unwrap();
        assert_eq!(
            (default.pattern.key("l0").as_str(), default.value),
            ("harness:l0", KeyValue::String)
        );
        let elsewhere = keys(BackendId::Etcd, &["value=none"]).unwrap();
        assert_eq!(elsewhere.value, KeyValue::Revision);
    }

    #[test]
    fn a_value_is_written_again_unless_the_contract_excludes_that() {
        for (promises, repeats) in [
            (&[][..], true),
            (&["renews=false"], false),
            (&["renews=false", "extends=true"], true),
            (&["renews=false", "reentrant=true"], true),
            (&["renews=true"], true),
        ] {
            assert_eq!(
                keys(BackendId::Nats, promises).unwrap().repeats,
                repeats,
                "{promises:?}"
            );
        }
    }

    #[test]
    fn a_kind_of_value_that_the_store_does_not_have_is_refused_with_those_that_it_has() {
        let sentence = keys(BackendId::Zk, &["value=hash"]).unwrap_err();
        assert!(sentence.contains("sequential, node or none"), "{sentence}");
        let sentence = keys(BackendId::Zk, &["keys=locks/{lock}"]).unwrap_err();
        assert!(sentence.contains("/harness/{lock}"), "{sentence}");
    }

    #[test]
    fn the_recipes_keep_their_locks_where_the_observers_look_by_default() {
        for (backend, key) in [
            (BackendId::Zk, harness_workloads::zk::lock_path("l0")),
            (BackendId::Etcd, harness_workloads::etcd::lock_prefix("l0")),
            (BackendId::Redis, harness_workloads::redis::lock_key("l0")),
        ] {
            let keys = LockKeys::default_of(of(backend));
            assert_eq!(
                keys.pattern.lock_of(&key).map(|(lock, _)| lock),
                Some("l0"),
                "{backend}"
            );
        }
    }
}
