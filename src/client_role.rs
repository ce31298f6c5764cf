//! The role of a client with respect to a lock, as labels of the proxy: faults select messages of the holder, taps count waiters.

use harness_proxy::{ClientFilter, Label, LabelScheme, LabelSet, RequestState};

/// The role of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRole {
    /// It neither has a lock nor waits for one.
    Idle,
    /// It called an acquire that is not answered.
    Waits,
    /// It holds a lock.
    Works,
    /// It called a release that is not answered.
    Releases,
}

const IDLE: Label = Label::new(0, "idle");
const WAITS: Label = Label::new(1, "a waiter");
const WORKS: Label = Label::new(2, "the holder");
const RELEASES: Label = Label::new(3, "the holder, releasing");

/// The labels of a link's client.
pub const LABELS: LabelScheme = LabelScheme {
    labels: &[IDLE, WAITS, WORKS, RELEASES],
    retrying: LabelSet::of(&[WAITS]),
};

pub const ANYONE: ClientFilter = ClientFilter::new("anyone", LabelSet::ALL);
/// A client from its grant to the answer to its release.
pub const HOLDER: ClientFilter = ClientFilter::new("holder", LabelSet::of(&[WORKS, RELEASES]));
/// A holder that has not called its release.
pub const WORKER: ClientFilter = ClientFilter::new("worker", LabelSet::of(&[WORKS]));
/// A holder that has called its release.
pub const RELEASER: ClientFilter = ClientFilter::new("releaser", LabelSet::of(&[RELEASES]));
/// A client from the call of its acquire to the answer.
pub const WAITER: ClientFilter = ClientFilter::new("waiter", LabelSet::of(&[WAITS]));
/// Neither holder nor waiter.
pub const IDLE_CLIENT: ClientFilter = ClientFilter::new("idle", LabelSet::of(&[IDLE]));

/// The filters that a fault's argument may name.
pub const FILTERS: [ClientFilter; 6] = [ANYONE, HOLDER, WORKER, RELEASER, WAITER, IDLE_CLIENT];

/// Returns the filter of the clients with this label alone.
pub fn filter_of(label: Label) -> ClientFilter {
    let of_one = [WAITER, WORKER, RELEASER, IDLE_CLIENT];
    let found = of_one.into_iter().find(|filter| filter.selects(label));
    found.unwrap_or(ANYONE)
}

/// Returns `SET of a waiter, others: idle, the holder`.
pub fn in_words(state: &RequestState) -> String {
    let others = LABELS.labels.iter().filter(|label| state.others.contains(**label));
    let others: Vec<&str> = others.map(|label| label.words()).collect();
    format!(
        "{} of {}, others: {}",
        state.name,
        state.label.words(),
        others.join(", ")
    )
}

impl From<ClientRole> for Label {
    fn from(role: ClientRole) -> Self {
        match role {
            ClientRole::Idle => IDLE,
            ClientRole::Waits => WAITS,
            ClientRole::Works => WORKS,
            ClientRole::Releases => RELEASES,
        }
    }
}
