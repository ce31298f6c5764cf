//! The outcome of a run as a row of a table has it: `1, HL005 ghost, HL001 holds, all windows, servers_back = servers_killed`.

use crate::command::{Answer, run_on};

const VERDICTS: [&str; 4] = ["holds", "violated", "inconclusive", "not-applicable"];

/// A run on this runtime comes out as written.
pub fn comes_out(runtime: &str, words: &str, outcome: &str) -> Answer {
    let answer = run_on(runtime, words);
    answer.assert_is(outcome);
    answer
}

impl Answer {
    /// Its outcome is as written, in parts with commas between: an exit code; a property with its verdict, with `not violated`, or with the
    /// class of its first violation; `recipe` with a name; `a window` or `all windows`, which left a trace; and figures, each alone if it is
    /// more than 0, or compared with another by `=` or `>`.
    pub fn assert_is(&self, outcome: &str) {
        for part in outcome.split(", ") {
            let words: Vec<&str> = part.split(' ').collect();
            match words[..] {
                ["a", "window"] => self.assert_a_window_had_effect(),
                ["all", "windows"] => self.assert_all_windows_had_effect(),
                ["recipe", name] => assert_eq!(self.diagnosis["run"]["recipe"], name),
                [property, "not", "violated"] => {
                    let finding = self.finding(property);
                    assert_ne!(finding["verdict"], "violated", "{finding:#}");
                }
                [property, verdict] if VERDICTS.contains(&verdict) => self.assert_verdict(property, verdict),
                [property, class] => {
                    self.assert_verdict(property, "violated");
                    let violation = &self.finding(property)["violations"][0];
                    assert_eq!(violation["class"], class, "{property}: {violation:#}");
                }
                [one, "=", other] => self.assert_figures(part, self.figure(one) == self.figure(other)),
                [one, ">", other] => self.assert_figures(part, self.figure(one) > self.figure(other)),
                [one] => match one.parse() {
                    Ok(exit) => self.assert_exit(exit),
                    Err(_) => self.assert_figures(part, self.figure(one) > 0),
                },
                _ => unreachable!("`{part}` is no part of an outcome"),
            }
        }
    }

    fn assert_figures(&self, part: &str, are_so: bool) {
        assert!(are_so, "{part}: {}\n{:#}", self.stderr, self.diagnosis["effect"]);
    }

    /// A number; the windows of a run, those that left a trace, and the acquires that were answered while a fault was on; or the sum of
    /// what windows have counted of this.
    fn figure(&self, name: &str) -> u64 {
        match name {
            "windows" => self.windows().len() as u64,
            "effects" => self.windows_with_effect().0 as u64,
            "acquires" => self.acquires_under_faults(),
            _ => name.parse().unwrap_or_else(|_| self.window_sum(name)),
        }
    }
}
