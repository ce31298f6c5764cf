//! A hunt's record as JUnit XML by `quick-junit`: each find is a failure, and one more case says whether the hunt proves anything.

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus};

use super::counts::HuntCounts;
use super::find::HuntFind;
use super::record::HuntRecord;
use super::render::{completeness, counts, how_often, subject};
use crate::exit::Exit;
use crate::report::junit::{campaign, line, lines, non_success};

pub fn junit(record: &HuntRecord) -> String {
    let finds = record.finds.iter().map(|find| failure(find, record.counts));
    let name = format!("hunt {}", subject(record));
    campaign(&name, finds.chain([whole(record)]), record.took_ms)
}

fn failure(find: &HuntFind, counts: HuntCounts) -> TestCase {
    let mut status = non_success(NonSuccessKind::Failure, &find.class, &find.summary);
    let times = how_often(find.count, counts);
    status.set_description(lines(&format!(
        "{times}, first under {}\n{}",
        find.under(),
        find.command()
    )));
    let mut case = TestCase::new(line(&find.name()), status);
    case.set_system_out(lines(&format!("[[ATTACHMENT|{}/report.html]]", find.run)));
    case
}

/// Returns the case for the completeness of the hunt.
fn whole(record: &HuntRecord) -> TestCase {
    let (name, told) = match &record.exhaustive {
        Some(search) => ("every placement was tried", completeness(record, search)),
        None => ("the hunt proves something", counts(record)),
    };
    let has_all = record.exhaustive.is_none() || record.is_complete();
    let proves = has_all && matches!(record.exit(), Exit::Holds | Exit::Violated);
    let status = match proves {
        true => TestCaseStatus::success(),
        false => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
            status.set_message(line(record.error.as_ref().unwrap_or(&told)));
            status
        }
    };
    let mut case = TestCase::new(line(name), status);
    case.set_system_out(lines(&told));
    case
}

#[cfg(test)]
mod tests {
    use super::super::testing::{begun, diagnosis_of, record, result, search};
    use super::*;
    use crate::report::diagnosis::Outcome;

    fn counted(record: &HuntRecord) -> [String; 3] {
        let text = junit(record);
        let document = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let suite = document.root_element().first_element_child().unwrap();
        ["tests", "failures", "errors"].map(|attribute| suite.attribute(attribute).unwrap().to_owned())
    }

    #[test]
    fn each_find_is_a_failure_beside_the_case_of_the_whole_hunt() {
        let mut record = record();
        record.add(&result(
            0,
            &[("reset", true)],
            &[("HL005", "ghost", None), ("HL001", "told-twice", None)],
        ));
        assert_eq!(counted(&record), ["3", "2", "0"]);
        record.finds.clear();
        assert_eq!(counted(&record), ["1", "0", "0"]);
    }

    #[test]
    fn a_complete_search_whose_runs_prove_nothing_is_an_error() {
        let mut record = search();
        for windows in [&[][..], &[("drop-reply=any:1", true)][..]] {
            let mut unsure = result(begun(&mut record), windows, &[]);
            unsure.sent.requests = 1;
            let (diagnosis, why) = (diagnosis_of(&mut unsure), "too few acquires".to_owned());
            diagnosis.outcome = Outcome::Unsure;
            diagnosis.effect.too_little = Some(why.clone());
            diagnosis.unsure = vec![why];
            record.add(&unsure);
        }
        assert_eq!((record.is_complete(), record.exit()), (true, Exit::Inconclusive));
        assert_eq!(counted(&record), ["1", "0", "1"]);
    }

    #[test]
    fn a_search_that_was_not_ended_is_an_error_though_nothing_was_found() {
        assert_eq!(counted(&search()), ["1", "0", "1"]);
    }
}
