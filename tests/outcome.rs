//! The outcome of a run in a row of a table: `1, HL005 ghost, HL001 holds, all windows, servers_back = servers_killed`.

use crate::command::{Answer, run_on};

const VERDICTS: [&str; 4] = ["holds", "violated", "inconclusive", "not-applicable"];

/// Counters that a row may expect to be 0. Windows lack a counter that is 0, so the sum of a mistyped one is 0, too.
const MAY_BE_ZERO: [&str; 3] = ["files_set_back", "servers_ended", "syncs_delayed"];

/// Asserts the outcome of a run on this runtime.
pub fn comes_out(runtime: &str, words: &str, outcome: &str) -> Answer {
    let answer = run_on(runtime, words);
    answer.assert_is(outcome);
    answer
}

impl Answer {
    /// Asserts its outcome, in parts with commas between: an exit code; a property with its verdict, with `not
    /// violated`, or with the class of its first violation; `recipe` with a name; `a window` or `all windows`, which
    /// had an effect; and figures, each alone if it is more than 0, or compared with another by `=` or `>`.
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

    /// Returns a number; or the number of windows, of those with an effect, or of acquires that succeeded while a fault
    /// was active; or the sum of this counter over all windows.
    fn figure(&self, name: &str) -> u64 {
        match name {
            "windows" => self.windows().len() as u64,
            "effects" => self.windows_with_effect().0 as u64,
            "acquires" => self.acquires_under_faults(),
            _ => name.parse().unwrap_or_else(|_| {
                let sum = self.window_sum(name);
                self.assert_figures(name, sum > 0 || MAY_BE_ZERO.contains(&name));
                sum
            }),
        }
    }
}
