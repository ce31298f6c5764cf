//! A watch of Leases as the body of an answer: one event a line, until its time is over.
//!
//! <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::lease_store::{LeaseKey, LeaseStore};
use super::{BOOKMARK, GROUP_VERSION};

/// The Leases of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseScope {
    pub namespace: Option<String>,
    pub name: Option<String>,
}

impl LeaseScope {
    pub fn has(&self, key: &LeaseKey) -> bool {
        let is = |wanted: &Option<String>, is: &String| wanted.as_ref().is_none_or(|wanted| wanted == is);
        is(&self.namespace, &key.0) && is(&self.name, &key.1)
    }
}

/// A watch that is served.
pub struct LeaseWatch {
    pub store: Arc<LeaseStore>,
    pub scope: LeaseScope,
    /// The revision after which events are still to be sent.
    pub after: u64,
    /// The delay between an event and its line.
    pub stale: Duration,
    pub bookmarks: bool,
    pub ends: Instant,
    /// Events to be sent first.
    pub first: VecDeque<Value>,
}

/// The time between two searches of a watch of an old copy for events that are old enough.
const STALE_POLL: Duration = Duration::from_millis(10);

impl LeaseWatch {
    pub fn body(self) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send {
        let state = (self.store.news(), Instant::now() + BOOKMARK, false, self);
        stream::unfold(state, |(mut news, mut bookmark, is_over, mut watch)| async move {
            if is_over {
                return None;
            }
            let (event, is_over) = watch.next(&mut news, &mut bookmark).await?;
            let line = Bytes::from(format!("{event}\n"));
            Some((Ok(Frame::data(line)), (news, bookmark, is_over, watch)))
        })
    }

    /// Returns the next event, and whether it is the last, or `None` when the time is over.
    async fn next(&mut self, news: &mut watch::Receiver<u64>, bookmark: &mut Instant) -> Option<(Value, bool)> {
        loop {
            if let Some(event) = self.first.pop_front() {
                return Some((event, false));
            }
            news.borrow_and_update();
            match self.store.since(self.after, self.stale) {
                Err(refusal) => return Some((json!({ "type": "ERROR", "object": refusal.status() }), true)),
                Ok(changes) => {
                    self.after = changes.last().map_or(self.after, |change| change.revision);
                    let wanted = changes.iter().filter(|change| self.scope.has(&change.key));
                    self.first.extend(wanted.map(|change| change.event()));
                }
            }
            if !self.first.is_empty() {
                continue;
            }
            let now = Instant::now();
            if now >= self.ends {
                return None;
            }
            if self.bookmarks && now >= *bookmark {
                *bookmark = now + BOOKMARK;
                return Some((self.bookmark(), false));
            }
            let until = if self.bookmarks {
                self.ends.min(*bookmark)
            } else {
                self.ends
            };
            if self.stale.is_zero() {
                let _ = timeout_at(until, news.changed()).await;
            } else {
                sleep_until(until.min(now + STALE_POLL)).await;
            }
        }
    }

    /// Returns an event that marks everything up to a version as sent.
    fn bookmark(&self) -> Value {
        json!({ "type": "BOOKMARK", "object": {
            "kind": "Lease",
            "apiVersion": GROUP_VERSION,
            "metadata": { "resourceVersion": self.after.to_string(), "creationTimestamp": null },
            "spec": {},
        }})
    }
}
