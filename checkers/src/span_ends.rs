//! The number of spans that meet another span, in logarithmic time.

/// The beginnings and the ends of spans, each sorted.
#[derive(Debug, Default)]
pub(crate) struct SpanEnds {
    from: Vec<u64>,
    /// Without spans that never end.
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

    /// Returns the number of spans that share an instant with a span that ends.
    pub(crate) fn meeting(&self, from: u64, to: u64) -> usize {
        let begun = self.from.partition_point(|begins| *begins <= to);
        let over = self.to.partition_point(|ends| *ends < from);
        begun.saturating_sub(over)
    }
}
