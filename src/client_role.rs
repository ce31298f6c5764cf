//! What a client is doing with a lock, as labels of the proxy: faults select messages of the holder, taps ask who waits.

use harness_proxy::{ClientFilter, Label, LabelScheme, LabelSet, RequestState};

/// What a client is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientRole {
    /// Nothing with a lock.
    Idle,
    /// It asked for a lock and has no answer.
    Waits,
    /// It holds a lock.
    Works,
    /// It asked to release its lock and has no answer.
    Releases,
}

const IDLE: Label = Label::new(0, "idle");
const WAITS: Label = Label::new(1, "a waiter");
const WORKS: Label = Label::new(2, "the holder");
const RELEASES: Label = Label::new(3, "the holder, releasing");

/// The labels that the proxy is given.
pub const LABELS: LabelScheme = LabelScheme {
    labels: &[IDLE, WAITS, WORKS, RELEASES],
    retrying: LabelSet::of(&[WAITS]),
};

pub const ANYONE: ClientFilter = ClientFilter::new("anyone", LabelSet::ALL);
/// From the grant to the answer to the release.
pub const HOLDER: ClientFilter = ClientFilter::new("holder", LabelSet::of(&[WORKS, RELEASES]));
/// A holder that has not asked to release.
pub const WORKER: ClientFilter = ClientFilter::new("worker", LabelSet::of(&[WORKS]));
/// A holder that has asked to release.
pub const RELEASER: ClientFilter = ClientFilter::new("releaser", LabelSet::of(&[RELEASES]));
/// From the call of an acquire to its answer.
pub const WAITER: ClientFilter = ClientFilter::new("waiter", LabelSet::of(&[WAITS]));
/// Without a lock, and not asking for one.
pub const IDLE_CLIENT: ClientFilter = ClientFilter::new("idle", LabelSet::of(&[IDLE]));

/// Every filter that a fault's argument may name.
pub const FILTERS: [ClientFilter; 6] = [ANYONE, HOLDER, WORKER, RELEASER, WAITER, IDLE_CLIENT];

/// The clients that have this label, and no others.
pub fn filter_of(label: Label) -> ClientFilter {
    let of_one = [WAITER, WORKER, RELEASER, IDLE_CLIENT];
    let found = of_one.into_iter().find(|filter| filter.selects(label));
    found.unwrap_or(ANYONE)
}

/// `SET of a waiter, others: idle, the holder`
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
