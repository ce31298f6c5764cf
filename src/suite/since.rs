//! Changes since the previous run of each row of a suite: rows that are no longer as expected, still not, or as expected again.

use std::collections::BTreeMap;

use super::judge::RowOutcome;
use super::record::{Record, RowRecord};

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
    /// Compares each row with its last run in the records before, newest first: some of them may lack it. Rows that were not run are
    /// ignored.
    pub fn of(before: &[(String, Record)], now: &Record) -> Self {
        let mut known: BTreeMap<&str, RowOutcome> = BTreeMap::new();
        let was_run = |row: &&RowRecord| row.judged.was_run();
        for row in before.iter().flat_map(|(_, record)| &record.rows).filter(was_run) {
            known.entry(&row.name).or_insert(row.judged);
        }
        let mut since = Self::default();
        for row in now.rows.iter().filter(was_run) {
            let before = known.get(row.name.as_str());
            let was_wrong = before.is_some_and(|judged| *judged != RowOutcome::AsExpected);
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

    const OK: &[RowOutcome] = &[RowOutcome::AsExpected];
    const BAD: &[RowOutcome] = &[RowOutcome::Unexpected];
    const STOPPED: &[RowOutcome] = &[RowOutcome::Interrupted];
    const NONE: &[RowOutcome] = &[];

    fn of(rows: &[(&str, &[RowOutcome])]) -> (String, Record) {
        (String::new(), record(None, &[], rows))
    }

    #[test]
    fn each_row_is_compared_with_itself_and_one_that_was_not_run_with_nothing() {
        let before = [("a", OK), ("b", BAD), ("c", BAD), ("d", NONE), ("e", BAD), ("f", OK)];
        let now = [
            ("a", BAD),
            ("b", BAD),
            ("c", OK),
            ("d", BAD),
            ("e", NONE),
            ("f", OK),
            ("g", BAD),
        ];
        let Since { new, still, mended } = Since::of(&[of(&before)], &of(&now).1);
        assert_eq!(new, ["a", "d", "g"]);
        assert_eq!(still, ["b"]);
        assert_eq!(mended, ["c"]);
    }

    #[test]
    fn a_row_that_the_last_record_lacks_is_compared_with_its_run_before() {
        // the newest two had a filter, and one was interrupted
        let before = [
            of(&[("a", OK)]),
            of(&[("b", STOPPED), ("c", OK)]),
            of(&[("a", BAD), ("b", BAD), ("c", BAD), ("d", BAD)]),
        ];
        let (_, now) = of(&[("a", BAD), ("b", BAD), ("c", BAD), ("d", OK), ("e", STOPPED)]);
        let Since { new, still, mended } = Since::of(&before, &now);
        assert_eq!(new, ["a", "c"]);
        assert_eq!(still, ["b"]);
        assert_eq!(mended, ["d"]);
    }
}
