//! The largest number of a range, in logarithmic time.

use std::ops::Range;

/// Numbers with the largest of any range: the leaves of a binary tree in an array, in which each node has the larger of its two children.
#[derive(Debug, Clone, Default)]
pub(crate) struct RangeMax<T = u64> {
    nodes: Vec<T>,
}

impl<T: Copy + Ord + Default> RangeMax<T> {
    pub(crate) fn of(numbers: impl ExactSizeIterator<Item = T>) -> Self {
        let count = numbers.len();
        let mut nodes = vec![T::default(); count];
        nodes.extend(numbers);
        let mut tree = Self { nodes };
        (1..count).rev().for_each(|node| tree.join(node));
        tree
    }

    fn join(&mut self, node: usize) {
        self.nodes[node] = self.nodes[2 * node].max(self.nodes[2 * node + 1]);
    }

    /// Sets the number at a place.
    pub(crate) fn set(&mut self, place: usize, number: T) {
        let mut node = place + self.nodes.len() / 2;
        self.nodes[node] = number;
        while node > 1 {
            node /= 2;
            self.join(node);
        }
    }

    /// Returns the largest number at these places; the default of its type if there is none.
    pub(crate) fn within(&self, range: Range<usize>) -> T {
        let count = self.nodes.len() / 2;
        let (mut from, mut to) = (range.start.min(count) + count, range.end.min(count) + count);
        let mut largest = T::default();
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
            let mut tree = RangeMax::of(numbers.iter().rev().copied());
            (0..).zip(&numbers).for_each(|(place, number)| tree.set(place, *number));
            for from in 0..=numbers.len() {
                for to in from..=numbers.len() {
                    let largest = numbers[from..to].iter().copied().max().unwrap_or(0);
                    assert_eq!(tree.within(from..to), largest, "{from}..{to} of {numbers:?}");
                }
            }
        }
    }
}
