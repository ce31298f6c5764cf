//! The Leases of an API server: versions, optimistic concurrency, the changes for a watch, and a file that survives a kill. Every
//! change has a new resource version, and is in the file before it is answered.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;

use super::lease::{self, LeaseObject};
use super::refusal::ApiRefusal;
use super::{GROUP_VERSION, KEPT_CHANGES};

/// Namespace and name.
pub type LeaseKey = (String, String);

/// One change of a Lease.
#[derive(Debug, Clone)]
pub struct LeaseChange {
    pub revision: u64,
    at: Instant,
    pub key: LeaseKey,
    before: Option<LeaseObject>,
    /// `None`: it was deleted.
    after: Option<LeaseObject>,
}

impl LeaseChange {
    /// Returns the event for a watch.
    pub fn event(&self) -> Value {
        match (&self.before, &self.after) {
            (None, Some(object)) => json!({ "type": "ADDED", "object": object }),
            (_, Some(object)) => json!({ "type": "MODIFIED", "object": object }),
            (before, None) => {
                // the last state, with the version of the deletion
                let mut object = before.clone().unwrap_or_default();
                lease::set(&mut object, "resourceVersion", self.revision.to_string());
                json!({ "type": "DELETED", "object": object })
            }
        }
    }
}

/// Leases at one revision.
pub struct LeaseView {
    pub revision: u64,
    pub objects: BTreeMap<LeaseKey, LeaseObject>,
}

impl LeaseView {
    pub fn list(&self, is_wanted: impl Fn(&LeaseKey) -> bool) -> Value {
        let items = self.objects.iter().filter(|(key, _)| is_wanted(key));
        json!({
            "kind": "LeaseList",
            "apiVersion": GROUP_VERSION,
            "metadata": { "resourceVersion": self.revision.to_string() },
            "items": items.map(|(_, object)| object).collect::<Vec<_>>(),
        })
    }
}

/// The conditions of a write on the existing Lease.
#[derive(Debug, Default)]
pub struct LeasePreconditions {
    pub version: Option<u64>,
    pub uid: Option<String>,
}

impl LeasePreconditions {
    /// Returns the conditions in the metadata of an object.
    pub fn of(object: &LeaseObject) -> Result<Self, ApiRefusal> {
        Ok(Self {
            version: lease::version(object)?,
            uid: lease::text(object, "uid").map(str::to_owned),
        })
    }

    fn check(&self, name: &str, is: &LeaseObject) -> Result<(), ApiRefusal> {
        let (uid, version) = (self.uid.as_deref(), self.version);
        let of_another = uid.is_some_and(|uid| lease::text(is, "uid") != Some(uid));
        let is_other = version.is_some_and(|version| lease::version(is) != Ok(Some(version)));
        match of_another || is_other {
            true => Err(ApiRefusal::conflict(name)),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
struct StoredLeases {
    revision: u64,
    objects: BTreeMap<LeaseKey, LeaseObject>,
    changes: VecDeque<LeaseChange>,
    /// The revision before the oldest kept change.
    oldest: u64,
    file: Option<File>,
    newest: watch::Sender<u64>,
}

#[derive(Debug)]
pub struct LeaseStore {
    stored: Mutex<StoredLeases>,
    /// The age of the copy from which reads of any version are answered.
    pub stale: Duration,
}

impl LeaseStore {
    /// Opens the store with the Leases of this file, if there is one.
    pub fn open(file: Option<&Path>, stale: Duration) -> io::Result<Self> {
        let mut stored = StoredLeases {
            revision: 1,
            objects: BTreeMap::new(),
            changes: VecDeque::new(),
            oldest: 1,
            file: None,
            newest: watch::Sender::new(1),
        };
        if let Some(path) = file {
            let read = match std::fs::read(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
                read => read?,
            };
            stored.load(&String::from_utf8_lossy(&read))?;
            let text = stored.text();
            let fresh = path.with_extension("new");
            std::fs::write(&fresh, text)?;
            std::fs::rename(&fresh, path)?;
            stored.file = Some(OpenOptions::new().append(true).open(path)?);
        }
        let stored = Mutex::new(stored);
        Ok(Self { stored, stale })
    }

    fn stored(&self) -> MutexGuard<'_, StoredLeases> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a receiver that wakes at a new version.
    pub fn news(&self) -> watch::Receiver<u64> {
        self.stored().newest.subscribe()
    }

    /// Returns the newest Leases.
    pub fn newest(&self) -> LeaseView {
        self.as_of(Duration::ZERO)
    }

    /// Returns the Leases at this time ago.
    pub fn as_of(&self, age: Duration) -> LeaseView {
        let stored = self.stored();
        let (revision, objects) = (stored.revision, stored.objects.clone());
        let mut view = LeaseView { revision, objects };
        let is_later = |change: &&LeaseChange| !age.is_zero() && change.at.elapsed() < age;
        for change in stored.changes.iter().rev().take_while(is_later) {
            match &change.before {
                Some(object) => drop(view.objects.insert(change.key.clone(), object.clone())),
                None => drop(view.objects.remove(&change.key)),
            }
            view.revision = change.revision - 1;
        }
        view
    }

    /// Returns the changes after a revision that have at least this age.
    ///
    /// # Errors
    ///
    /// Some of them are no longer kept.
    pub fn since(&self, revision: u64, age: Duration) -> Result<Vec<LeaseChange>, ApiRefusal> {
        let stored = self.stored();
        if revision < stored.oldest {
            return Err(ApiRefusal::expired(revision, stored.oldest));
        }
        let first = stored.changes.partition_point(|change| change.revision <= revision);
        let changes = stored.changes.range(first..);
        let is_old = |change: &&LeaseChange| age.is_zero() || change.at.elapsed() >= age;
        Ok(changes.take_while(is_old).cloned().collect())
    }

    pub fn create(&self, key: LeaseKey, object: LeaseObject) -> Result<LeaseObject, ApiRefusal> {
        let mut stored = self.stored();
        if stored.objects.contains_key(&key) {
            return Err(ApiRefusal::exists(&key.1));
        }
        if lease::version(&object)?.is_some() {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiRefusal::bad_request(message));
        }
        Ok(stored.add(key, object))
    }

    /// Replaces a Lease, which must have the version that the new one names; returns whether it is a new one.
    pub fn update(&self, key: LeaseKey, object: LeaseObject) -> Result<(LeaseObject, bool), ApiRefusal> {
        let wanted = LeasePreconditions::of(&object)?;
        let mut stored = self.stored();
        match stored.objects.get(&key) {
            None if wanted.uid.is_some() => Err(ApiRefusal::conflict(&key.1)),
            None => Ok((stored.add(key, object), true)),
            Some(_) if wanted.version.is_none() => {
                let why = "Invalid value: \"\": must be specified for an update";
                Err(ApiRefusal::invalid(&key.1, "metadata.resourceVersion", why))
            }
            Some(is) => {
                wanted.check(&key.1, is)?;
                Ok((stored.replace(key, object), false))
            }
        }
    }

    /// Replaces a Lease by the result of `change`, or creates one if `creates`; returns whether it is a new one.
    pub fn patch(
        &self,
        key: LeaseKey,
        creates: bool,
        change: impl FnOnce(LeaseObject) -> Result<LeaseObject, ApiRefusal>,
    ) -> Result<(LeaseObject, bool), ApiRefusal> {
        let mut stored = self.stored();
        let is = stored.objects.get(&key).cloned();
        if is.is_none() && !creates {
            return Err(ApiRefusal::not_found(&key.1));
        }
        let object = change(is.clone().unwrap_or_default())?;
        let wanted = LeasePreconditions::of(&object)?;
        match is {
            Some(is) => {
                wanted.check(&key.1, &is)?;
                Ok((stored.replace(key, object), false))
            }
            // its condition is an existing Lease
            None if wanted.version.is_some() => Err(ApiRefusal::conflict(&key.1)),
            None => Ok((stored.add(key, object), true)),
        }
    }

    pub fn delete(&self, key: LeaseKey, wanted: &LeasePreconditions) -> Result<LeaseObject, ApiRefusal> {
        let mut stored = self.stored();
        let is = stored.objects.get(&key).ok_or_else(|| ApiRefusal::not_found(&key.1))?;
        wanted.check(&key.1, is)?;
        let was = is.clone();
        stored.put(key, None);
        Ok(was)
    }
}

impl StoredLeases {
    fn add(&mut self, key: LeaseKey, mut object: LeaseObject) -> LeaseObject {
        lease::set(&mut object, "uid", drawn_uid());
        lease::set(&mut object, "creationTimestamp", now());
        self.write(key, object)
    }

    fn replace(&mut self, key: LeaseKey, mut object: LeaseObject) -> LeaseObject {
        let is = &self.objects[&key];
        for field in ["uid", "creationTimestamp", "resourceVersion"] {
            lease::set(&mut object, field, lease::text(is, field));
        }
        // an update without a change makes no new version
        if *is == object {
            return object;
        }
        self.write(key, object)
    }

    fn write(&mut self, key: LeaseKey, mut object: LeaseObject) -> LeaseObject {
        lease::set(&mut object, "namespace", key.0.as_str());
        lease::set(&mut object, "name", key.1.as_str());
        lease::set(&mut object, "resourceVersion", (self.revision + 1).to_string());
        self.put(key, Some(object.clone()));
        object
    }

    /// Stores a new version. A server that cannot write its file ends: it would forget its answers.
    fn put(&mut self, key: LeaseKey, object: Option<LeaseObject>) {
        let revision = self.revision + 1;
        if let Some(file) = &mut self.file {
            let line = format!("{}\n", json!([revision, key.0, key.1, object]));
            let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
            if let Err(error) = written {
                eprintln!("could not write its Leases: {error}");
                std::process::exit(1);
            }
        }
        let before = match &object {
            Some(object) => self.objects.insert(key.clone(), object.clone()),
            None => self.objects.remove(&key),
        };
        self.revision = revision;
        self.changes.push_back(LeaseChange {
            revision,
            at: Instant::now(),
            key,
            before,
            after: object,
        });
        if self.changes.len() > KEPT_CHANGES
            && let Some(first) = self.changes.pop_front()
        {
            self.oldest = first.revision;
        }
        self.newest.send_replace(revision);
    }

    /// Reads the lines of a file; a kill may have cut off the last one, which was not answered.
    fn load(&mut self, text: &str) -> io::Result<()> {
        for (number, line) in (1..).zip(text.split_inclusive('\n')) {
            let read: serde_json::Result<(u64, String, String, Option<LeaseObject>)> = serde_json::from_str(line);
            let (revision, namespace, name, object) = match read {
                Ok(change) => change,
                Err(_) if number > 1 && !line.ends_with('\n') => break,
                Err(error) => return Err(io::Error::other(format!("its line {number} is no Lease: {error}"))),
            };
            match object {
                Some(object) => drop(self.objects.insert((namespace, name), object)),
                None => drop(self.objects.remove(&(namespace, name))),
            }
            self.revision = revision;
        }
        self.oldest = self.revision;
        self.newest.send_replace(self.revision);
        Ok(())
    }

    /// Returns the lines for a file.
    fn text(&self) -> String {
        let line = |((namespace, name), object): (&LeaseKey, &LeaseObject)| {
            format!("{}\n", json!([self.revision, namespace, name, object]))
        };
        let lines: String = self.objects.iter().map(line).collect();
        // the revision of a store whose Leases were all deleted
        let kept = format!("{}\n", json!([self.revision, "", "", null]));
        lines + &kept
    }
}

fn now() -> String {
    let now = OffsetDateTime::now_utc().replace_nanosecond(0);
    now.ok().and_then(|now| now.format(&Rfc3339).ok()).unwrap_or_default()
}

/// Draws a name of an object, in the form of a UUID.
fn drawn_uid() -> String {
    let draw = || RandomState::new().build_hasher().finish();
    let (high, low) = (draw(), draw());
    format!(
        "{:08x}-{:04x}-4{:03x}-a{:03x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xfff,
        low >> 52,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_of_leases_is_refused_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("data");
        for text in ["notes", "notes\n", "[1,\"\",\"\",null]\nnotes\n"] {
            std::fs::write(&file, text).unwrap();
            assert!(LeaseStore::open(Some(&file), Duration::ZERO).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
        // the second line was cut off by a kill
        std::fs::write(&file, "[7,\"\",\"\",null]\n[8,\"def").unwrap();
        let store = LeaseStore::open(Some(&file), Duration::ZERO).unwrap();
        assert_eq!(store.newest().revision, 7);
    }
}
