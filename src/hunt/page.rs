//! A hunt's record as one offline page, `index.html` in its folder: the numbers of its experiments, and each find with
//! its run's report and the command that repeats it.

use maud::{Markup, html};

use super::counts::HuntCounts;
use super::exhaustive::Exhaustive;
use super::find::HuntFind;
use super::record::HuntRecord;
use super::render::{completeness, counts, effects, how_often, subject};
use crate::report::diagnosis::Outcome;
use crate::report::html::text::{address, prose};
use crate::report::html::{self, spans};
use crate::report::index::STYLE;
use crate::report::words::{clock, date, many, thousands};

pub fn page(record: &HuntRecord) -> String {
    let outcome = Outcome::of(record.exit());
    let subject = subject(record);
    let body = html! {
        (html::head("suite", outcome, &html! { (sentence(record)) }, &what(record, &subject)))
        main {
            @for find in &record.finds { (self::find(find, record.counts)) }
            @if let Some(search) = &record.exhaustive { (searched(record, search)) }
            @let effects = effects(record);
            @if !effects.is_empty() {
                section {
                    h2 { "Effect of the faults" }
                    ul { @for line in &effects { li { (line) } } }
                }
            }
            @if let Some(words) = record.states.in_words().filter(|_| record.exhaustive.is_none()) {
                section {
                    h2 { "States" }
                    p { (words) ". A state is a request of a client, the activity of that client, and the activities of the others." }
                    (html::table(&["experiments", "states seen"], &curve(record)))
                }
            }
            @if record.counts.failed > 0 {
                section.violation {
                    h2 { (many(record.counts.failed, "experiment")) " failed" }
                    @if let Some(why) = &record.error { p { (prose(why)) } }
                }
            }
        }
        footer {
            "Each find is a cause: the property and class of a violation that follows from no other. Its name links to the report of the first \
             run that showed it."
        }
    };
    html::page(&format!("{} hunt {subject}", outcome.word()), STYLE, "", &body)
}

/// `2 causes of violations in 300 experiments`
fn sentence(record: &HuntRecord) -> String {
    let all = many(record.counts.experiments, "experiment");
    match (record.finds.len(), &record.exhaustive) {
        (0, Some(search)) => completeness(record, search),
        (0, None) => format!("no finds in {all}"),
        (1, _) => format!("1 cause of violations in {all}"),
        (finds, _) => format!("{finds} causes of violations in {all}"),
    }
}

fn what(record: &HuntRecord, subject: &str) -> Markup {
    spans(&[
        format!("hunt {subject}"),
        format!("seed {}", record.seed),
        format!("begun {}", date(&record.started)),
        format!("harness {}", record.harness),
        clock(record.took_ms),
        counts(record),
    ])
}

fn find(find: &HuntFind, counts: HuntCounts) -> Markup {
    html! {
        section.violation {
            h2 { a href={ (address(&find.run)) "/report.html" } { (find.name()) } }
            ul.why {
                li { (prose(&find.summary)) }
                li { (how_often(find.count, counts)) ", first in experiment " (find.experiment + 1) ", under " code { (find.under()) } }
                @if let Some(likely) = &find.likely { li { "likely: " (prose(likely)) } }
            }
            @if !find.again.is_empty() { div.again { code { (find.command()) } } }
        }
    }
}

/// Returns the number of states by the number of experiments.
fn curve(record: &HuntRecord) -> Markup {
    html! {
        @for (experiments, states) in record.states.curve() {
            tr { td { (thousands(experiments)) } td { (thousands(states)) } }
        }
    }
}

/// Returns the number of placements by their number of faults, and the faults that were placed.
fn searched(record: &HuntRecord, search: &Exhaustive) -> Markup {
    let rows = html! {
        @for (acts, counts) in search.tried.iter().enumerate() {
            tr {
                td { (acts) }
                @for count in [counts.tried, counts.without_effect, counts.undecided] { td { (thousands(count)) } }
            }
        }
    };
    html! {
        section {
            h2 { "Every placement of up to " (many(u64::from(search.acts), "fault")) }
            p { (completeness(record, search)) }
            (html::table(&["faults", "tried", "last fault without effect", "undecided"], &rows))
            @if let Some((faults, why)) = &search.undecided { p { "Undecided, for example: " code { (faults) } ": " (prose(why)) } }
            p { "Placed on each message: " @for kind in &search.kinds { code { (kind) } " " } }
            p { "Not placed: faults that neither act on one message nor begin with one, and faults on the messages that open the first sessions." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{record, result, search};
    use super::*;
    use crate::report::test_text::assert_has;

    #[test]
    fn each_find_leads_to_its_report_and_says_how_to_make_it_again() {
        let mut record = record();
        record.add(&result(0, &[("drop-reply=<b>:1", true)], &[("HL005", "ghost", None)]));
        let parts = [
            "FAIL",
            "1 cause of violations in 1 experiment",
            "href=\"runs/0/report.html\"",
            "HL005 ghost",
            "drop-reply=&lt;b&gt;:1",
        ];
        assert_has(&page(&record), &parts);
    }

    #[test]
    fn a_search_that_was_not_ended_is_not_complete_on_its_page() {
        let told = "not complete: 0 placements of up to 1 fault were tried";
        assert_has(&page(&search()), &[told, "UNSURE", "drop-reply=any:#"]);
    }
}
