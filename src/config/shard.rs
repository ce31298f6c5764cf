//! A shard: one of the parts of a suite or a search that several machines run in parallel.

use serde::{Deserialize, Serialize};

/// One of several parts of a suite or a search: `2/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// The number of the part, from 1.
    pub number: u32,
    pub of: u32,
}

impl Shard {
    /// Parses `2/3`.
    pub fn read(text: &str) -> Result<Self, String> {
        let parts = text
            .split_once('/')
            .and_then(|(m, n)| Some((m.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => Err(format!("`{text}` is not a shard such as 1/3: from 1/n to n/n")),
        }
    }

    /// Whether a row is in this shard. Only the row's name decides, so that every machine has the same parts, and a new
    /// row moves no other one.
    pub fn takes(self, row: &str) -> bool {
        self.has_turn(stable_hash(row.as_bytes()))
    }

    /// Whether an item with this number is in this shard.
    pub fn has_turn(self, number: u64) -> bool {
        number % u64::from(self.of) == u64::from(self.number - 1)
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

/// Returns the hash FNV-1a, 64 bits, with its halves folded: unlike the hashes of the standard library, it is the same
/// on every machine and in every version.
pub fn stable_hash(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_of_exactly_one_shard() {
        for of in 1..6 {
            for row in 0..200 {
                let name = format!("row {row}");
                let takers = (1..=of).filter(|number| Shard { number: *number, of }.takes(&name));
                assert_eq!(takers.count(), 1);
            }
        }
    }

    #[test]
    fn shards_are_about_as_large_as_one_another() {
        let shard = Shard { number: 2, of: 4 };
        let taken = (0..1000).filter(|row| shard.takes(&format!("zk-polling / {row}")));
        let taken = taken.count();
        assert!((200..300).contains(&taken), "{taken}");
    }

    #[test]
    fn the_hash_is_the_same_for_ever() {
        assert_eq!(stable_hash(b""), 0xcbf2_9ce4_8422_2325 ^ 0xcbf2_9ce4);
        // computed once: other numbers would move rows between machines that run parts of one suite
        for (name, of_three) in [
            ("zk-polling / none", 1),
            ("etcd-mutex / pause-holder", 2),
            ("redis-setnx / kill-holder", 2),
        ] {
            assert_eq!(stable_hash(name.as_bytes()) % 3, of_three, "{name}");
        }
    }

    #[test]
    fn a_shard_is_read_and_its_bounds_are_checked() {
        assert_eq!(Shard::read("2/3"), Ok(Shard { number: 2, of: 3 }));
        for wrong in ["0/3", "4/3", "1", "a/b", "1/0", "-1/2"] {
            assert!(Shard::read(wrong).is_err(), "{wrong}");
        }
    }
}
