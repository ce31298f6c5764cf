//! How many of some spans meet another one, in logarithmic time.

/// Spans by their two ends, sorted once all of them are there.
#[derive(Debug, Default)]
pub(crate) struct SpanEnds {
    from: Vec<u64>,
    /// Without those of spans that never end.
    to: Vec<u64>,
}

impl SpanEnds {
    pub(crate) fn add(&mut self, from: u64, to: Option<u64>) {
        self.from.push(from);
        self.to.extend(to);
    }

    pub(crate) fn sort(&mut self) {
        self.from.sort_unstable();
        self.to.sort_unstable();
    }

    /// How many share an instant with a span that has both its ends.
    pub(crate) fn meeting(&self, from: u64, to: u64) -> usize {
        let begun = self.from.partition_point(|begins| *begins <= to);
        let over = self.to.partition_point(|ends| *ends < from);
        begun.saturating_sub(over)
    }
}
