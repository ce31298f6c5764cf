//! Labels ([`Label`]): the activity of each client, in the words of the user of this crate. Message rules select clients by label, and taps
//! count a request as a retry only while its client has a label of retries.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The activity of a client, in the words of the user of this crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    number: u8,
    words: &'static str,
}

impl Label {
    /// Makes a label. `number` identifies it and is below 6; `words` appear where a matched message is described.
    pub const fn new(number: u8, words: &'static str) -> Self {
        assert!(number < MOST_LABELS, "a label's number is below 6");
        Self { number, words }
    }

    pub fn words(self) -> &'static str {
        self.words
    }
}

/// The most labels of a scheme: the number of a set of them is that of a bit in 64.
const MOST_LABELS: u8 = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LabelSet(u8);

impl LabelSet {
    pub const ALL: Self = Self((1 << MOST_LABELS) - 1);

    pub const fn of(labels: &[Label]) -> Self {
        let mut set = 0;
        let mut place = 0;
        while place < labels.len() {
            set |= 1 << labels[place].number;
            place += 1;
        }
        Self(set)
    }

    /// A number of its own, below 64.
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    pub(crate) fn of_number(number: u8) -> Self {
        Self(number)
    }

    pub const fn contains(self, label: Label) -> bool {
        self.0 & 1 << label.number != 0
    }
}

/// The labels of a user of this crate.
#[derive(Debug, Clone, Copy)]
pub struct LabelScheme {
    /// Every label, in the order of their numbers. A client begins with the first one.
    pub labels: &'static [Label],
    /// While a client has one of these, a request that repeats an earlier one counts as a retry.
    pub retrying: LabelSet,
}

/// The labels of all clients.
#[derive(Debug)]
pub struct ClientLabels {
    scheme: LabelScheme,
    /// The label's number in the low bits, the number of changes above them.
    slots: Vec<AtomicU64>,
}

const NUMBER_BITS: u32 = 3;

/// Returns the number of the label in a slot.
fn number_of(slot: u64) -> u64 {
    slot & ((1 << NUMBER_BITS) - 1)
}

impl ClientLabels {
    pub fn new(scheme: LabelScheme, clients: u32) -> Self {
        let slots = (0..clients).map(|_| AtomicU64::new(0)).collect();
        Self { scheme, slots }
    }

    /// Changes the label of a client. Each client must have a single writer.
    pub fn set(&self, client: u32, label: Label) {
        if let Some(slot) = self.slots.get(client as usize) {
            let changes = (slot.load(Relaxed) >> NUMBER_BITS) + 1;
            slot.store(changes << NUMBER_BITS | u64::from(label.number), Relaxed);
        }
    }

    /// Returns the label of a client, and how often it has changed.
    pub fn get(&self, client: u32) -> (Label, u64) {
        let slot = self.slots.get(client as usize).map_or(0, |slot| slot.load(Relaxed));
        let label = self.scheme.labels[number_of(slot) as usize];
        (label, slot >> NUMBER_BITS)
    }

    /// Returns the labels of the other clients.
    pub(crate) fn others(&self, client: u32) -> LabelSet {
        let others = (0_u32..).zip(&self.slots).filter(|(other, _)| *other != client);
        LabelSet(others.fold(0, |set, (_, slot)| set | 1 << number_of(slot.load(Relaxed))))
    }

    pub(crate) fn is_retrying(&self, label: Label) -> bool {
        self.scheme.retrying.contains(label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Label = Label::new(0, "idle");
    const BUSY: Label = Label::new(1, "busy");
    const SCHEME: LabelScheme = LabelScheme {
        labels: &[IDLE, BUSY],
        retrying: LabelSet::of(&[BUSY]),
    };

    #[test]
    fn a_client_has_the_label_that_was_set_last_and_an_unknown_client_has_the_first() {
        let labels = ClientLabels::new(SCHEME, 2);
        for (changes, label) in (1..).zip([BUSY, IDLE, BUSY]) {
            labels.set(1, label);
            assert_eq!(labels.get(1), (label, changes));
        }
        assert_eq!(labels.get(0), (IDLE, 0));
        labels.set(7, BUSY);
        assert_eq!(labels.get(7), (IDLE, 0));
    }

    #[test]
    fn what_others_do_is_what_no_one_else_does_not() {
        let labels = ClientLabels::new(SCHEME, 3);
        assert_eq!(labels.others(1), LabelSet::of(&[IDLE]));
        labels.set(1, BUSY);
        assert_eq!(labels.others(1), LabelSet::of(&[IDLE]), "its own does not count");
        assert_eq!(labels.others(0), LabelSet::of(&[IDLE, BUSY]));
    }

    #[test]
    fn a_set_contains_its_labels_and_no_other() {
        assert!(SCHEME.retrying.contains(BUSY) && !SCHEME.retrying.contains(IDLE));
        assert!(LabelSet::ALL.contains(IDLE));
    }
}
