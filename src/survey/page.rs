//! The page of a survey, as Markdown and as HTML that stands alone: a table of versions and promises, and the finds.

use std::fmt::Write;

use maud::{Markup, html};

use super::record::{PromiseState, SurveyFind, SurveyRecord};
use super::{EVERY_PLACEMENT, PROMISES, Promise, PromiseTest};
use crate::adapters::surveyed::{FindKind, SurveyedLock, Triage};
use crate::hunt::HitRate;
use crate::report::html;
use crate::report::html::text::prose;
use crate::report::index::{SCRIPT, STYLE};
use crate::report::words::many;

/// A version of a lock and its record.
pub type Surveyed<'a> = (&'a SurveyedLock, SurveyRecord);

const INTRODUCTION: &str = "For owners and users of lock libraries: the promises that hold, and those that do not. The same hunts ran \
     on each lock: a few clients hold locks for drawn times, under the faults that a column names. Servers and libraries are unmodified. \
     They run in virtual time unless the row says otherwise, so a row can be made again with the same outcome. *Holds* means that so many \
     experiments found no violation, not that there is none.";

/// Returns the content of a cell: `holds`, with the number of experiments, or the find with its hit rate.
fn cell(state: &PromiseState) -> String {
    match state {
        PromiseState::Holds(experiments) => format!("holds ({experiments})"),
        PromiseState::HoldsWhereDecided { held, undecided } => {
            format!("holds where decided ({held}, {undecided} undecided)")
        }
        PromiseState::Broken { find, rate } => format!("**{find}** {} of {}", rate.hits, rate.runs),
        PromiseState::NotPromised => "not promised".to_owned(),
        PromiseState::NotConcerned => "–".to_owned(),
        PromiseState::NotKnown => "not known".to_owned(),
    }
}

/// Returns `walrus 0.9.8, Lock`.
fn title(lock: &SurveyedLock, version: &str) -> String {
    format!("{} {version}, {}", lock.library, lock.lock)
}

/// Returns its store, and the runtime if that is not virtual time.
fn store(lock: &SurveyedLock) -> String {
    match lock.runtime() {
        "virtual" => lock.store().to_owned(),
        other => format!("{} ({other})", lock.store()),
    }
}

/// Returns the fragment of the link to the finds of a version, as GitHub and other renderers derive it from a heading.
fn anchor(title: &str) -> String {
    let kept = title
        .chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns a sentence about the hunts of the survey.
fn battery(surveyed: &[Surveyed<'_>]) -> String {
    let hunts = surveyed.iter().flat_map(|(_, record)| record.hunts.iter());
    // a search over all placements has a fixed number of experiments
    let placements = EVERY_PLACEMENT.join(" ");
    let drawn = hunts.filter(|hunt| hunt.with != placements && hunt.decided() > 0);
    let experiments = drawn.map(|hunt| hunt.counts.experiments);
    let (fewest, most) = (experiments.clone().min().unwrap_or(0), experiments.max().unwrap_or(0));
    let many = if fewest == most {
        most.to_string()
    } else {
        format!("{fewest} to {most}")
    };
    format!("Each hunt has {many} experiments; those that prove nothing are not counted.")
}

/// Returns the versions without a record, if there are any.
fn not_surveyed(locks: &[SurveyedLock], surveyed: &[Surveyed<'_>]) -> Option<String> {
    let mut left = Vec::new();
    for lock in locks {
        let is_left = |version: &&String| {
            let is_it = |(known, record): &Surveyed<'_>| known.name == lock.name && record.version == **version;
            !surveyed.iter().any(is_it)
        };
        let versions = lock.versions.iter().filter(is_left);
        left.extend(versions.map(|version| title(lock, version)));
    }
    (!left.is_empty()).then(|| format!("Not surveyed yet: {}.", left.join("; ")))
}

fn columns() -> String {
    let mut text = String::new();
    for promise in &PROMISES {
        let hint = hint(promise);
        let by = match promise.by {
            PromiseTest::Faults(_) => format!("hunted with `{hint}`"),
            PromiseTest::Placements => {
                format!("hunted with `{hint}`: every fault on every single message of a small scenario")
            }
            PromiseTest::Property(_) => format!("{hint} in all experiments"),
        };
        let _ = writeln!(text, "- **{}** (`{}`): {by}", promise.title, promise.name);
    }
    text
}

pub fn markdown(locks: &[SurveyedLock], surveyed: &[Surveyed<'_>]) -> String {
    let mut text = format!("# Survey\n\n{INTRODUCTION}\n\n{}\n\n", battery(surveyed));
    let titles = PROMISES.map(|promise| promise.title).join(" | ");
    let _ = writeln!(text, "| lock | store | {titles} |");
    let _ = writeln!(text, "| --- | --- |{}", " --- |".repeat(PROMISES.len()));
    for (lock, record) in surveyed {
        let name = title(lock, &record.version);
        let cells = PROMISES.map(|promise| cell(&record.state(&promise, lock)));
        let anchor = anchor(&name);
        let _ = writeln!(
            text,
            "| [{name}](#{anchor}) | {} | {} |",
            store(lock),
            cells.join(" | ")
        );
    }
    if let Some(left) = not_surveyed(locks, surveyed) {
        let _ = writeln!(text, "\n{left}");
    }
    let _ = write!(text, "\n## Columns\n\n{}", columns());
    text.push_str(
        "\nViolations of the later columns' properties do not count in the earlier columns. A Redis server has no keys after a restart, \
         so in the column *server away* a lock on one Redis server meets a pause in place of a restart. If a library has no signal of \
         a loss, and its documentation leaves that to the application, the adapter reports the loss by its own clock.\n\n## Finds\n",
    );
    for version in surveyed {
        text.push_str(&section(version));
    }
    text
}

fn section(version: &Surveyed<'_>) -> String {
    let (lock, record) = version;
    let mut text = format!(
        "\n### {}\n\n<{}>, surveyed {}.\n",
        title(lock, &record.version),
        lock.home,
        record.surveyed
    );
    for entry in &lock.not_promised {
        let _ = writeln!(
            text,
            "\nNot promised ({}): \"{}\" ([source]({}))",
            entry.promise, entry.quote, entry.link
        );
    }
    let finds = record.finds();
    if finds.is_empty() {
        text.push_str("\nNo finds in these hunts.\n");
    }
    for known in record.not_met(lock) {
        let _ = writeln!(
            text,
            "\n- {}, known and not seen in these hunts. {}",
            known.find,
            comparison(Some(known))
        );
    }
    for found in &finds {
        let seen = found
            .seen
            .iter()
            .map(|(promise, rate)| format!("{promise} {} of {}", rate.hits, rate.runs));
        let _ = write!(
            text,
            "\n- **{}** ({}): {}. {}\n  `{}`\n",
            found.find.name(),
            seen.collect::<Vec<_>>().join(", "),
            found.find.summary,
            comparison(found.triage(lock)),
            again(version, found),
        );
    }
    text
}

/// Returns the comparison of a find with the library's source, if a reader has made one.
fn comparison(triage: Option<&Triage>) -> String {
    match triage {
        Some(Triage {
            is,
            happened,
            source,
            report,
            ..
        }) => {
            format!("*{}*: {happened} (`{source}`; report: {report})", is.word())
        }
        None => "Not compared with the source yet.".to_owned(),
    }
}

/// Returns the command that shows a find again: the shrunk one, or else the hunt that found it first.
fn again((lock, record): &Surveyed<'_>, found: &SurveyFind<'_>) -> String {
    match record.shrunk.get(&found.find.name()) {
        Some(command) => command.clone(),
        None => format!(
            "harness survey {}=={} --promise {} --anew",
            lock.name,
            record.version,
            found.promise()
        ),
    }
}

pub fn page(locks: &[SurveyedLock], surveyed: &[Surveyed<'_>]) -> String {
    let body = html! {
        header.index {
            h1 { "Survey" }
            p.what { (INTRODUCTION.replace('*', "")) " " (battery(surveyed)) }
        }
        main {
            div.scroll {
                table #runs.all {
                    thead { tr {
                        th { "lock" } th { "store" }
                        @for promise in &PROMISES { th title=(hint(promise)) { (promise.title) } }
                    } }
                    tbody { @for version in surveyed { (row(version)) } }
                }
            }
            @if let Some(left) = not_surveyed(locks, surveyed) { p { (left) } }
            @for version in surveyed { (finds(version)) }
        }
        footer { "A cell of a broken promise names its most frequent find. `harness explain HL001` explains a property." }
    };
    html::page("harness: survey", STYLE, SCRIPT, &body)
}

fn hint(promise: &Promise) -> String {
    match promise.by {
        PromiseTest::Faults(faults) => format!("--fault {faults}"),
        PromiseTest::Placements => EVERY_PLACEMENT.join(" "),
        PromiseTest::Property(property) => property.id().to_owned(),
    }
}

fn row((lock, record): &Surveyed<'_>) -> Markup {
    let name = title(lock, &record.version);
    // drawn experiments are a sample, and all placements are none
    let rate_of = |promise: &Promise, rate: HitRate| (promise.by != PromiseTest::Placements).then(|| rate.to_string());
    let state = |promise: &Promise| match record.state(promise, lock) {
        PromiseState::Broken { find, rate } => html! {
            td.fail title=[rate_of(promise, rate)] { "✗ " (rate.hits) " of " (rate.runs) br; (find) }
        },
        PromiseState::Holds(experiments) => {
            let none = HitRate {
                hits: 0,
                runs: experiments as u32,
            };
            html! { td.pass title=[rate_of(promise, none)] { "✓ " (experiments) } }
        }
        other => html! { td { (cell(&other)) } },
    };
    html! {
        tr {
            td style="white-space: nowrap" { a href={ "#" (anchor(&name)) } { (name) } }
            td { (store(lock)) }
            @for promise in &PROMISES { (state(promise)) }
        }
    }
}

fn finds(version: &Surveyed<'_>) -> Markup {
    let (lock, record) = version;
    let name = title(lock, &record.version);
    html! {
        section id=(anchor(&name)) {
            h2 { (name) }
            p { a href=(lock.home) { (lock.home) } ", surveyed " (record.surveyed) "." }
            @for entry in &lock.not_promised {
                p { "Not promised (" (entry.promise) "): “" (entry.quote) "” " a href=(entry.link) { "source" } }
            }
            @for known in record.not_met(lock) {
                h3 { (known.find) ", known and not seen in these hunts: " (known.is.word()) }
                (happened(known))
            }
            @for found in record.finds() {
                h3 { (found.find.name()) @if let Some(triage) = found.triage(lock) { ": " (triage.is.word()) } }
                p { (prose(&found.find.summary)) }
                @match found.triage(lock) {
                    Some(triage) => (happened(triage)),
                    None => p { "Not compared with the source yet." },
                }
                p { code { (again(version, &found)) } }
            }
        }
    }
}

fn happened(triage: &Triage) -> Markup {
    html! { p { (prose(&triage.happened)) " (" code { (triage.source) } "; report: " (triage.report) ")" } }
}

/// Returns a version for a terminal, with a line for each promise.
pub fn plain((lock, record): &Surveyed<'_>) -> String {
    let mut text = format!("{}, on {}\n", title(lock, &record.version), store(lock));
    for promise in &PROMISES {
        let state = cell(&record.state(promise, lock)).replace('*', "");
        let _ = writeln!(text, "  {:<24}{state}", promise.title);
    }
    text
}

/// Returns the counts for the closing line: versions, broken ones, and defects, limits and uncompared finds.
pub fn summary(surveyed: &[Surveyed<'_>]) -> String {
    let is_broken = |(_, record): &&Surveyed<'_>| !record.finds().is_empty();
    let broken = surveyed.iter().filter(is_broken).count();
    let all: Vec<_> = surveyed
        .iter()
        .flat_map(|(lock, record)| {
            record
                .finds()
                .into_iter()
                .map(|found| found.triage(lock).map(|triage| triage.is))
        })
        .collect();
    let count = |kind: Option<FindKind>| all.iter().filter(|is| **is == kind).count() as u64;
    format!(
        "{}, {broken} with a find: {}, {}, {} not compared with the source yet",
        many(surveyed.len() as u64, "version"),
        many(count(Some(FindKind::Defect)), "defect"),
        many(count(Some(FindKind::Limit)), "limit"),
        count(None),
    )
}

#[cfg(test)]
mod tests {
    use harness_checkers::Property;

    use super::*;
    use crate::adapters::surveyed::file_of_test;
    use crate::hunt::HuntCounts;
    use crate::report::test_text::assert_has;
    use crate::store::write_json;
    use crate::survey::record::{self, RecordedFind, SurveyHunt};

    #[test]
    fn a_page_of_records_alone_has_the_day_of_each_and_names_the_versions_without_one() {
        let folder = tempfile::tempdir().unwrap();
        let mut lock: SurveyedLock = toml::from_str(&file_of_test("x", "backend = \"redis\"")).unwrap();
        lock.name = "x".to_owned();
        let find = |class: &str| RecordedFind {
            property: Property::Hl001,
            class: class.to_owned(),
            summary: "two clients held it".to_owned(),
            count: 2,
        };
        let mut made = SurveyRecord::begun(&lock, "1", "x-1-abc".to_owned());
        made.add(SurveyHunt {
            promise: "partition".to_owned(),
            with: "--fault partition".to_owned(),
            counts: HuntCounts {
                experiments: 7,
                held: 4,
                violated: 2,
                ..HuntCounts::default()
            },
            finds: vec![find("told-twice"), find("stale-holder")],
            ..SurveyHunt::default()
        });
        made.add(SurveyHunt {
            promise: "one-message".to_owned(),
            with: EVERY_PLACEMENT.join(" "),
            counts: HuntCounts {
                experiments: 850,
                held: 850,
                ..HuntCounts::default()
            },
            ..SurveyHunt::default()
        });
        made.surveyed = "2026-11-21".to_owned();
        let command = "harness run --seed 7".to_owned();
        made.shrunk.insert("HL001 told-twice".to_owned(), command);
        let file = format!("{}.json", made.file_stem());
        write_json(&folder.path().join(file), &made).unwrap();

        let locks = [lock];
        let surveyed = record::all(&locks, folder.path()).unwrap();
        let (text, html) = (markdown(&locks, &surveyed), page(&locks, &surveyed));
        let parts = [
            "| [x 1, Lock](#x-1-lock) | redis |",
            "**HL001 told-twice** 2 of 6",
            "Each hunt has 7 experiments",
            "\nNot surveyed yet: x 2, Lock.\n",
            "<https://example.org>, surveyed 2026-11-21.",
            "`harness run --seed 7`",
            "`harness survey x==1 --promise partition --anew`",
        ];
        assert_has(&text, &parts);
        // all placements are no sample, and have no interval
        let whole = "<td class=\"pass\">✓ 850</td>";
        let parts = ["Not surveyed yet: x 2, Lock.", ", surveyed 2026-11-21.", whole];
        assert_has(&html, &parts);
        assert!(!markdown(&[], &surveyed).contains("Not surveyed yet"));
    }
}
