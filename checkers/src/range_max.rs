//! The largest of a range of numbers, in logarithmic time.

use std::ops::Range;

/// Numbers of which the largest in any range can be asked for: the leaves of a binary tree in which each node has the larger of its two
/// children, as an array.
#[derive(Debug, Clone, Default)]
pub(crate) struct RangeMax {
    nodes: Vec<u64>,
}

impl RangeMax {
    pub(crate) fn of(numbers: impl ExactSizeIterator<Item = u64>) -> Self {
        let count = numbers.len();
        let mut nodes = vec![0; count];
        nodes.extend(numbers);
        for node in (1..count).rev() {
            nodes[node] = nodes[2 * node].max(nodes[2 * node + 1]);
        }
        Self { nodes }
    }

    /// The largest number at these places; 0 where there is none.
    pub(crate) fn within(&self, range: Range<usize>) -> u64 {
        let count = self.nodes.len() / 2;
        let (mut from, mut to) = (range.start.min(count) + count, range.end.min(count) + count);
        let mut largest = 0;
        while from < to {
            if from % 2 == 1 {
                largest = largest.max(self.nodes[from]);
                from += 1;
            }
            if to % 2 == 1 {
                to -= 1;
                largest = largest.max(self.nodes[to]);
            }
            (from, to) = (from / 2, to / 2);
        }
        largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_range_has_the_largest_of_its_numbers() {
        for count in 0..20_u64 {
            let numbers: Vec<u64> = (0..count).map(|number| number * 7_919 % 31 + 1).collect();
            let tree = RangeMax::of(numbers.iter().copied());
            for from in 0..=numbers.len() {
                for to in from..=numbers.len() {
                    let largest = numbers[from..to].iter().copied().max().unwrap_or(0);
                    assert_eq!(tree.within(from..to), largest, "{from}..{to} of {numbers:?}");
                }
            }
        }
    }
}
