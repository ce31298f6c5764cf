//! The small state of a sweep over holds: who is there longest.

use crate::holds::Hold;

/// Of all holds seen so far, the one that lasts longest, and the longest of any other process.
///
/// That is enough to answer in O(1) whether a newcomer overlaps with a hold of somebody else, and with whom longest.
#[derive(Debug, Default)]
pub(crate) struct Partners {
    longest: Option<Hold>,
    other: Option<Hold>,
}

impl Partners {
    /// The hold of another process that lasts longest.
    pub(crate) fn longest(&self, hold: &Hold) -> Option<&Hold> {
        let own = |partner: &&Hold| partner.process == hold.process;
        self.longest
            .as_ref()
            .filter(|partner| !own(partner))
            .or(self.other.as_ref())
    }

    pub(crate) fn add(&mut self, hold: &Hold) {
        match self.longest {
            Some(longest) if longest.process == hold.process => {
                if hold.to > longest.to {
                    self.longest = Some(*hold);
                }
            }
            Some(longest) if hold.to > longest.to => {
                self.other = Some(longest);
                self.longest = Some(*hold);
            }
            Some(_) => {
                if self.other.is_none_or(|other| hold.to > other.to) {
                    self.other = Some(*hold);
                }
            }
            None => self.longest = Some(*hold),
        }
    }
}
