//! Changes since the previous run of a suite: rows that are no longer as expected, still not, or as expected again.

use std::collections::BTreeMap;

use super::judge::RowOutcome;
use super::record::Record;

/// Names of rows, in the order of the suite's file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Since {
    /// Rows that were as expected or missing, and are not as expected now.
    pub new: Vec<String>,
    pub still: Vec<String>,
    /// Rows that are as expected again.
    pub mended: Vec<String>,
}

impl Since {
    /// Compares `now` with `before`. Rows that were not run are ignored.
    pub fn of(before: &Record, now: &Record) -> Self {
        let known: BTreeMap<&str, RowOutcome> = before.rows.iter().map(|row| (row.name.as_str(), row.judged)).collect();
        let mut since = Self::default();
        for row in now.rows.iter().filter(|row| row.judged != RowOutcome::NotRun) {
            let before = known.get(row.name.as_str()).copied();
            let was_wrong =
                before.is_some_and(|judged| judged != RowOutcome::AsExpected && judged != RowOutcome::NotRun);
            let names = match (was_wrong, row.judged == RowOutcome::AsExpected) {
                (false, true) => continue,
                (false, false) => &mut since.new,
                (true, false) => &mut since.still,
                (true, true) => &mut since.mended,
            };
            names.push(row.name.clone());
        }
        since
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::record::tests::record;

    #[test]
    fn each_row_is_compared_with_itself_and_one_that_was_not_run_with_nothing() {
        const OK: &[RowOutcome] = &[RowOutcome::AsExpected];
        const BAD: &[RowOutcome] = &[RowOutcome::Unexpected];
        const NONE: &[RowOutcome] = &[];
        let rows: &[(&str, &[RowOutcome])] = &[("a", OK), ("b", BAD), ("c", BAD), ("d", NONE), ("e", BAD), ("f", OK)];
        let before = record(None, &[], rows);
        let rows: &[(&str, &[RowOutcome])] = &[
            ("a", BAD),
            ("b", BAD),
            ("c", OK),
            ("d", BAD),
            ("e", NONE),
            ("f", OK),
            ("g", BAD),
        ];
        let now = record(None, &[], rows);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(
            Since::of(&before, &now),
            Since {
                new: names(&["a", "d", "g"]),
                still: names(&["b"]),
                mended: names(&["c"]),
            }
        );
    }
}
