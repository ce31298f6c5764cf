//! Trends: the verdicts of each row over time, which rows fail, and which are not the same each time.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::comparison::RunSummary;
use super::diagnosis::Outcome;
use super::listed::{Listed, ListedRecord};
use super::words::many;

/// Maximum number of outcomes that are drawn for a row, the newest ones.
const DRAWN: usize = 30;
/// Maximum number of listed rows.
const ROWS: usize = 100;

/// A row with its outcomes, oldest first.
#[derive(Debug, PartialEq)]
struct RowTrend {
    /// A lock and a fault, or a suite and one of its rows.
    name: String,
    outcomes: Vec<Outcome>,
}

impl RowTrend {
    /// Returns the number of verdicts, and of those that differ from the previous one. A run that proves nothing is no verdict.
    fn changes(&self) -> (usize, usize) {
        let verdicts: Vec<&Outcome> = self.outcomes.iter().filter(|outcome| outcome.is_verdict()).collect();
        let changed = verdicts.windows(2).filter(|pair| pair[0] != pair[1]).count();
        (verdicts.len(), changed)
    }

    fn count(&self, outcome: Outcome) -> usize {
        self.outcomes.iter().filter(|other| **other == outcome).count()
    }

    /// Returns the percentage of verdicts that differ from the previous one.
    fn flaky_rate(&self) -> f64 {
        match self.changes() {
            (0 | 1, _) => 0.0,
            (verdicts, changed) => changed as f64 / (verdicts - 1) as f64 * 100.0,
        }
    }
}

/// Returns the rows with more than one run, those that change most first, then those that fail most.
fn trends(runs: &[Listed], suites: &[ListedRecord]) -> Vec<RowTrend> {
    let mut rows: BTreeMap<String, Vec<Outcome>> = BTreeMap::new();
    for (row, outcome) in suites.iter().flat_map(|suite| &suite.rows) {
        rows.entry(row.clone()).or_default().push(*outcome);
    }
    for summary in runs.iter().filter_map(|run| run.summary.as_ref()) {
        if let Some([backend, recipe, attitude, fault]) = RunSummary::row(summary) {
            let parts = [backend, recipe, attitude].into_iter().filter(|part| !part.is_empty());
            let name = format!("{} / {fault}", parts.collect::<Vec<_>>().join(" "));
            rows.entry(name).or_default().push(summary.outcome);
        }
    }
    let several = rows.into_iter().filter(|(_, outcomes)| outcomes.len() > 1);
    let mut rows: Vec<RowTrend> = several.map(|(name, outcomes)| RowTrend { name, outcomes }).collect();
    let order = |row: &RowTrend| (row.flaky_rate(), row.count(Outcome::Fail));
    rows.sort_by(|one, other| order(other).partial_cmp(&order(one)).expect("rates are numbers"));
    rows
}

/// Returns the table, or nothing if no row has more than one run.
pub fn over_time(runs: &[Listed], suites: &[ListedRecord]) -> Markup {
    let rows = trends(runs, suites);
    html! {
        @if !rows.is_empty() {
            section {
                h2 { "Over time" }
                p.quiet { "Rows with more than one run, the oldest outcome at the left. Flaky is the share of verdicts that differ from the previous one." }
                div.scroll {
                    table #trends.sortable {
                        thead { tr { th { "row" } th { "outcomes" } th { "failed" } th { "flaky" } } }
                        tbody { @for row in rows.iter().take(ROWS) { (table_row(row)) } }
                    }
                }
                @if rows.len() > ROWS { p.quiet { (many((rows.len() - ROWS) as u64, "more row")) " left out." } }
            }
        }
    }
}

fn table_row(row: &RowTrend) -> Markup {
    let left_out = row.outcomes.len().saturating_sub(DRAWN);
    let (verdicts, changed) = row.changes();
    let failed = row.count(Outcome::Fail);
    let rate = row.flaky_rate();
    html! {
        tr {
            td.head { (row.name) }
            td.trend {
                @for outcome in &row.outcomes[left_out..] {
                    @let word = outcome.word();
                    span class=(word.to_lowercase()) title=(word) { (outcome.signs().0) }
                }
            }
            td data-sort=(failed) { (failed) " of " (row.outcomes.len()) " failed" }
            td data-sort=(rate) {
                @match (verdicts, changed) {
                    (0 | 1, _) => { span.quiet { "too few verdicts" } }
                    (_, 0) => { span.quiet { "not flaky" } }
                    _ => { (format!("flaky {rate:.0} %")) " (" (changed) " of " (verdicts - 1) ")" }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::test_text::assert_has;

    fn night(rows: &[(&str, Outcome)]) -> ListedRecord {
        ListedRecord {
            name: "20261121-0630-suite-nightly".into(),
            outcome: Outcome::Pass,
            sentence: String::new(),
            rows: rows
                .iter()
                .map(|(name, outcome)| (format!("nightly: {name}"), *outcome))
                .collect(),
            finds: Vec::new(),
        }
    }

    #[test]
    fn rows_that_change_come_first_and_what_proved_nothing_changes_nothing() {
        use Outcome::{Error, Fail, Pass, Unsure};
        let nights = [
            night(&[
                ("steady", Pass),
                ("broken", Fail),
                ("flaky", Pass),
                ("once", Pass),
                ("open", Unsure),
                ("unsure", Pass),
            ]),
            night(&[
                ("steady", Pass),
                ("broken", Fail),
                ("flaky", Fail),
                ("open", Unsure),
                ("unsure", Unsure),
            ]),
            night(&[("steady", Pass), ("broken", Error), ("flaky", Pass), ("unsure", Pass)]),
        ];
        let rows = trends(&[], &nights);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "nightly: flaky",
                "nightly: broken",
                "nightly: open",
                "nightly: steady",
                "nightly: unsure"
            ]
        );
        assert_eq!(rows[0].changes(), (3, 2));
        assert!((rows[0].flaky_rate() - 100.0).abs() < 1e-9);
        assert_eq!(rows[1].changes(), (2, 0), "an error is no verdict");
        assert!(rows[4].flaky_rate() < 1e-9);
        let page = over_time(&[], &nights).into_string();
        assert_has(&page, &["flaky 100 % (2 of 2)", "1 of 3 failed", "too few verdicts"]);
        assert_eq!(page.matches("not flaky").count(), 3, "{page}");
        assert!(
            over_time(&[], &nights[..1]).into_string().is_empty(),
            "nothing was run twice"
        );
    }
}
