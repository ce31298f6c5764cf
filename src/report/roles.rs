//! Roles of the servers over the run, polled once a second.

use std::collections::BTreeMap;

use harness_checkers::History;
use harness_checkers::history::{NemesisFact, Role};

use super::moment::Moment;

/// The roles of one server, by time.
#[derive(Debug, Clone, PartialEq)]
pub struct Band {
    /// `n1`
    pub server: String,
    pub spells: Vec<Spell>,
}

/// A role and the moment when it was first seen. It lasts until the next spell of the server, or the end of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Spell {
    pub from: Moment,
    pub role: Role,
}

/// Returns the band of each server with a known role, in the order of their numbers.
pub fn bands(history: &History) -> Vec<Band> {
    let mut bands: BTreeMap<(usize, String), Vec<Spell>> = BTreeMap::new();
    for line in history.nemesis() {
        let NemesisFact::Roles(roles) = &line.fact else {
            continue;
        };
        let (ns, index) = (line.time_ns, line.index);
        let from = Moment { ns, index };
        for (server, role) in roles {
            // n10 comes after n9
            let spells = bands.entry((server.len(), server.clone())).or_default();
            if spells.last().is_none_or(|last| last.role != *role) {
                let role = role.clone();
                spells.push(Spell { from, role });
            }
        }
    }
    let bands = bands.into_iter();
    bands.map(|((_, server), spells)| Band { server, spells }).collect()
}

/// Returns the longest spells of each server, about `room` at most, and the length in nanoseconds below which spells were left out,
/// if any were.
pub fn downsampled(bands: &[Band], end_ns: u64, room: usize) -> (Vec<Band>, Option<u64>) {
    let mut left_out: Option<u64> = None;
    let downsample = |band: &Band| {
        let ends = band.spells.iter().skip(1).map(|next| next.from.ns).chain([end_ns]);
        let lengths = band.spells.iter().zip(ends);
        let lengths: Vec<u64> = lengths.map(|(spell, end)| end.saturating_sub(spell.from.ns)).collect();
        if lengths.len() <= room {
            return band.clone();
        }
        let mut longest = lengths.clone();
        longest.sort_unstable_by(|one, other| other.cmp(one));
        let least = longest[room];
        left_out = left_out.max(Some(least + 1));
        let kept = band.spells.iter().zip(&lengths).enumerate();
        let kept = kept.filter(|(place, (_, length))| *place == 0 || **length > least);
        let mut spells: Vec<Spell> = kept.map(|(_, (spell, _))| spell.clone()).collect();
        spells.dedup_by(|next, last| next.role == last.role);
        let server = band.server.clone();
        Band { server, spells }
    };
    (bands.iter().map(downsample).collect(), left_out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_history::history_of;

    fn history(lines: &[&str]) -> History {
        let line = |roles: &&str| format!(r#""f":"roles","phase":"seen","roles":{roles}"#);
        let times = (1_u64..).map(|second| second * 1000);
        history_of(times.zip(lines.iter().map(line)))
    }

    fn spell(at: u64, role: &str) -> Spell {
        let (ns, index) = (at * 1000, at);
        Spell {
            from: Moment { ns, index },
            role: Role::parse(role),
        }
    }

    #[test]
    fn a_spell_lasts_while_its_server_says_the_same_and_is_no_window() {
        let history = history(&[
            r#"{"n1":"leader","n10":"follower","n2":"follower"}"#,
            r#"{"n1":"not serving","n10":"follower","n2":"leader"}"#,
            r#"{"n1":"follower","n2":"leader"}"#,
            r#"{"n1":7}"#,
            "[]",
        ]);
        assert!(history.windows().is_empty());
        let bands = bands(&history);
        let servers: Vec<&str> = bands.iter().map(|band| band.server.as_str()).collect();
        assert_eq!(servers, ["n1", "n2", "n10"]);
        let first = [spell(1, "leader"), spell(2, "not serving"), spell(3, "follower")];
        assert_eq!(bands[0].spells, first);
        assert_eq!(bands[1].spells, [spell(1, "follower"), spell(2, "leader")]);
        assert_eq!(bands[2].spells, [spell(1, "follower")]);
    }

    #[test]
    fn of_very_many_spells_the_longest_stay_and_the_rest_is_counted() {
        let flapping = (1..=10).map(|at| spell(at * 10, if at % 2 == 0 { "leader" } else { "follower" }));
        let steady = [spell(200, "leader"), spell(300, "follower")];
        let band = Band {
            server: "n1".into(),
            spells: flapping.chain(steady).collect(),
        };
        let bands = [band];
        assert_eq!(downsampled(&bands, 400_000, 12), (bands.to_vec(), None));
        let (kept, left_out) = downsampled(&bands, 400_000, 4);
        // the tenth spell and the next are long; the first is the beginning of the band
        let spells = [spell(10, "follower"), spell(100, "leader"), spell(300, "follower")];
        assert_eq!(kept[0].spells, spells);
        assert_eq!(left_out, Some(10_001));
    }
}
