//! Golden histories: line 1 of each has the verdicts of the properties, and no other property may be violated.

use std::path::{Path, PathBuf};

use super::read;
use harness_checkers::{Finding, Findings, History, Model, Options, Property, ReadOptions, Verdict, check};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

pub fn golden_path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("{name}.jsonl"))
}

/// Returns the names of all golden histories, sorted.
pub fn golden_names() -> Vec<String> {
    let paths = std::fs::read_dir(FOLDER).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let mut names: Vec<String> = paths
        .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

pub fn golden(name: &str) -> History {
    History::open(&golden_path(name), &ReadOptions::default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn all_golden() -> impl Iterator<Item = (String, History)> {
    golden_names().into_iter().map(|name| {
        let history = golden(&name);
        (name, history)
    })
}

fn findings(history: &History) -> Findings {
    check(history, &Options::still())
}

fn word(verdict: Verdict) -> String {
    serde_json::to_value(verdict).unwrap().as_str().unwrap().to_owned()
}

/// Returns `violated stale-holder` or `holds`, as line 1 has it.
fn answer(finding: &Finding) -> String {
    match finding.violations.first() {
        Some(violation) => format!("violated {}", violation.class),
        None => word(finding.verdict),
    }
}

#[test]
fn every_golden_history_is_judged_as_its_first_line_says() {
    let mut wrong = Vec::new();
    for (name, history) in all_golden() {
        let found = findings(&history);
        let expected = history.header().extra["expected"]
            .as_object()
            .expect("line 1 says what is expected");
        for property in Property::ALL {
            let (finding, answer) = (found.of(property), answer(found.of(property)));
            let right = match expected.get(property.id()).and_then(|expected| expected.as_str()) {
                Some("any") => true,
                Some("violated") => finding.verdict == Verdict::Violated,
                Some(expected) => expected == answer,
                None => finding.verdict != Verdict::Violated,
            };
            if !right {
                let expected = expected.get(property.id());
                wrong.push(format!(
                    "{name} {}: {answer}, expected {expected:?}: {}",
                    property.id(),
                    finding.evidence
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns all sentences of a finding.
fn words(finding: &Finding) -> String {
    let told = finding.violations.iter().flat_map(|violation| {
        let because = violation.because.iter().map(|because| because.text.as_str());
        because
            .chain([violation.summary.as_str()])
            .chain(violation.likely.as_deref())
    });
    let told: Vec<&str> = told.chain([finding.evidence.as_str()]).collect();
    told.join(" ")
}

/// Line 1 has in `says` and `silent` pairs of a property and a text.
#[test]
fn every_golden_history_is_told_as_its_first_line_says() {
    let (mut pairs, mut wrong) = (0, Vec::new());
    for (name, history) in all_golden() {
        let found = findings(&history);
        for (key, wanted) in [("says", true), ("silent", false)] {
            let texts = history.header().extra.get(key).and_then(|texts| texts.as_array());
            for pair in texts.into_iter().flatten() {
                let (id, text) = (pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
                let property = Property::ALL.into_iter().find(|property| property.id() == id);
                let words = words(found.of(property.expect("an id")));
                if words.contains(text) != wanted {
                    wrong.push(format!("{name} {id} {key} `{text}`: {words}"));
                }
                pairs += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(pairs > 5, "{pairs}");
}

/// The sentences of an explanation, except the last, are in the order of their events.
#[test]
fn no_chain_tells_an_effect_before_its_cause() {
    for (name, history) in all_golden() {
        let time = |index: u64| history.entry(index as usize - 1).time_ns;
        for finding in findings(&history)
            .findings
            .iter()
            .filter(|finding| finding.property == Property::Hl001)
        {
            for violation in &finding.violations {
                let chain = &violation.because[..violation.because.len() - 1];
                let firsts: Vec<u64> = chain
                    .iter()
                    .filter_map(|because| because.events.first())
                    .map(|index| time(*index))
                    .collect();
                assert!(firsts.is_sorted(), "{name} {}: {firsts:?}", violation.id);
            }
        }
    }
}

#[test]
fn every_property_has_a_history_that_holds_and_one_that_is_violated() {
    let all: Vec<Findings> = all_golden().map(|(_, history)| findings(&history)).collect();
    for property in Property::ALL {
        for verdict in [Verdict::Holds, Verdict::Violated] {
            let has = all.iter().any(|found| found.of(property).verdict == verdict);
            assert!(has, "no golden history in which {} is {verdict:?}", property.id());
        }
    }
}

#[test]
fn every_violation_names_its_events_and_tells_its_story() {
    for (name, history) in all_golden() {
        let found = findings(&history);
        let violations = found.findings.iter().flat_map(|finding| &finding.violations);
        let ids: Vec<&String> = violations.map(|violation| &violation.id).collect();
        for finding in &found.findings {
            for (number, violation) in finding.violations.iter().enumerate() {
                let id = format!("{name} {}", violation.id);
                assert_eq!(
                    violation.id,
                    format!("{}-{}", finding.property.id(), number + 1),
                    "{name}"
                );
                assert!(
                    !violation.events.is_empty() && violation.events.is_sorted_by_key(|step| step.index),
                    "{id}"
                );
                assert!(
                    (1..=4).contains(&violation.because.len()),
                    "{id}: {:?}",
                    violation.because
                );
                assert!(
                    violation.because.iter().all(|because| because.text.ends_with('.')),
                    "{id}"
                );
                assert!(!violation.summary.is_empty() && !violation.clients.is_empty(), "{id}");
                for step in &violation.events {
                    assert_eq!(history.entry(step.index as usize - 1).time_ns, step.time_ns, "{id}");
                }
                if let Some(root) = &violation.follows {
                    assert!(ids.contains(&root), "{id} follows {root}, which is not there");
                }
            }
        }
    }
}

#[test]
fn every_golden_history_that_is_linearizable_has_a_certificate() {
    let mut operations = 0;
    for (name, history) in all_golden() {
        let options = Options {
            certificate: true,
            ..Options::still()
        };
        let found = check(&history, &options);
        let holds = found.of(Property::Hl002).verdict == Verdict::Holds;
        assert_eq!(
            found.certificates.len(),
            if holds { history.locks().count() } else { 0 },
            "{name}"
        );
        operations += found
            .certificates
            .iter()
            .map(|certificate| certificate.order.len())
            .sum::<usize>();
    }
    assert!(operations > 100, "certificates order operations");
}

#[test]
fn an_overlap_is_proven_by_where_its_holds_begin_and_end() {
    for (name, history) in all_golden() {
        let model = history.header().model.parse();
        let permits = match model {
            Ok(Model::Semaphore { permits }) => permits as usize,
            _ => 1,
        };
        for violation in &findings(&history).of(Property::Hl001).violations {
            // One more hold than there are permits, and the end of each but the last one.
            assert!(
                violation.events.len() <= 2 * permits + 1,
                "{name}: {:?}",
                violation.events
            );
            let (from, to) = violation.overlap_ns.expect("an overlap has a length");
            assert!(from < to && violation.at_ns == from, "{name}");
        }
    }
}

#[test]
fn waits_are_judged_in_the_order_of_their_times() {
    let text = std::fs::read_to_string(golden_path("hl005_free")).unwrap();
    let (header, lines) = text.split_once('\n').unwrap();
    let late = r#"{"index":9,"time":8900000000,"process":3,"client":3,"type":"invoke","f":"acquire","lock":"l0"}"#;
    for text in [format!("{text}{late}\n"), format!("{header}\n{late}\n{lines}")] {
        let found = findings(&read(&text).unwrap());
        assert_eq!(answer(found.of(Property::Hl005)), "violated free", "{text}");
    }
}

#[test]
fn a_fault_is_an_excuse_wherever_its_lines_are() {
    let text = std::fs::read_to_string(golden_path("model_try_lock_refused_under_a_fault")).unwrap();
    let (header, lines) = text.split_once('\n').unwrap();
    let is_of_nemesis = |line: &&str| line.contains(r#""process":"nemesis""#);
    let (of_nemesis, others): (Vec<&str>, Vec<&str>) = lines.lines().partition(is_of_nemesis);
    let verdict = |lines: &[&str]| {
        let found = findings(&read(&[&[header], lines].concat().join("\n")).unwrap());
        found.of(Property::Hl002).verdict
    };
    assert_eq!(verdict(&others), Verdict::Violated);
    assert_eq!(verdict(&[others, of_nemesis].concat()), Verdict::Holds);
}

#[test]
fn a_lock_without_tokens_is_told_what_they_would_have_stopped() {
    let text = std::fs::read_to_string(golden_path("hl003_paused_holder")).unwrap();
    let refused = text.matches(r#""fenced":"refused""#).count();
    assert!(refused > 0, "it has late writes");
    // the same lock, if its store had no tokens
    let without_tokens = |line: &str| {
        let mut line: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line).unwrap();
        for key in ["token", "fenced", "promises"] {
            line.remove(key);
        }
        serde_json::to_string(&line).unwrap()
    };
    let lines: Vec<String> = text.lines().map(without_tokens).collect();
    let found = findings(&read(&lines.join("\n")).unwrap());
    let fencing = found.of(Property::Hl003);
    assert_eq!(fencing.verdict, Verdict::NotApplicable);
    assert_eq!(fencing.figures["late_writes"], refused as f64, "{}", fencing.evidence);
    assert!(fencing.evidence.contains("late write"), "{}", fencing.evidence);

    let nobody_late = findings(&read(&lines[..3].join("\n")).unwrap());
    let fencing = nobody_late.of(Property::Hl003);
    assert_eq!(fencing.evidence, "no fencing tokens");
    assert!(!fencing.figures.contains_key("late_writes"));
}

#[test]
fn no_token_that_was_given_twice_is_larger_than_itself() {
    for (name, later) in [
        ("hl003_token_twice", "got the same token later"),
        ("hl003_token_goes_back", "got the smaller token later"),
    ] {
        let found = findings(&golden(name));
        let events = &found.of(Property::Hl003).violations[0].events;
        assert!(events.iter().any(|step| step.role == later), "{name}: {events:?}");
    }
}

#[test]
fn a_grant_out_of_order_follows_the_break_of_its_own_tokens() {
    let text = std::fs::read_to_string(golden_path("hl003_token_goes_back")).unwrap();
    let (header, lines) = text.split_once('\n').unwrap();
    // a token that is given twice breaks no order
    let twice = lines.replace(r#""token":41"#, r#""token":42"#);
    let mut other_lock = lines.replace("l0", "l1");
    for field in [r#""index":"#, r#""process":"#, r#""client":"#] {
        other_lock = other_lock.replace(field, &format!("{field}1"));
    }
    let found = findings(&read(&format!("{header}\n{twice}{other_lock}")).unwrap());
    assert_eq!(answer(found.of(Property::Hl003)), "violated token-twice");
    let order = &found.of(Property::Hl006).violations;
    assert_eq!((order.len(), order[0].follows.as_deref()), (1, Some("HL003-2")));
}

#[test]
fn a_lock_that_went_with_its_master_is_told_from_one_that_ran_out() {
    let text = std::fs::read_to_string(golden_path("hl001_stale_holder")).unwrap();
    assert!(text.contains(r#""cause":"expired""#), "it ran out");
    let text = text.replace(r#""cause":"expired""#, r#""cause":"failover""#);
    let found = findings(&read(&text).unwrap());
    let violation = &found.of(Property::Hl001).violations[0];
    assert_eq!(violation.class, "stale-holder");
    assert!(violation.likely.as_ref().unwrap().contains("replica"), "{violation:?}");
}

#[test]
fn a_hold_of_a_lock_that_promises_to_be_reentrant_lasts_until_its_last_release() {
    let text = std::fs::read_to_string(golden_path("hl002_reentrant_by_its_promise")).unwrap();
    let last_end_ns = |text: &str| {
        let history = read(text).unwrap();
        let holds = history.certain_holds();
        assert_eq!((holds.len(), holds[0].from_ns), (1, 200_000_000));
        holds[0].to_ns
    };
    assert_eq!(last_end_ns(&text), 700_000_000);
    let without_promise = text.replace(r#""reentrant":true"#, r#""reentrant":false"#);
    assert_eq!(last_end_ns(&without_promise), 500_000_000);
}

#[test]
fn a_release_that_is_said_to_fail_is_told_beside_a_lease_that_runs() {
    let told = |name: &str, promises: &str| {
        let text = std::fs::read_to_string(golden_path(name)).unwrap();
        let text = text.replacen(r#""lease_ms":1000"#, &format!(r#""lease_ms":1000{promises}"#), 1);
        let found = findings(&read(&text).unwrap());
        assert_eq!(answer(found.of(Property::Hl011)), "violated denied-release", "{name}");
        words(found.of(Property::Hl011))
    };
    let (name, runs) = ("hl011_releases_that_are_said_to_fail", ", before its lease was over,");
    assert!(told(name, "").contains(runs));
    assert!(!told(name, r#","promises":{"lease":false}"#).contains("before its lease"));
    let at_its_end = told("hl011_releases_as_the_lease_ends_that_removed_it", "");
    assert!(!at_its_end.contains("before its lease"), "{at_its_end}");
}

#[test]
fn an_error_of_a_limit_may_be_of_the_wait_or_of_a_request() {
    let text = std::fs::read_to_string(golden_path("hl005_clients_that_do_not_connect_again")).unwrap();
    let told = |error: &str| {
        let text = text.replace("BrokenPipeError: [Errno 32] Broken pipe", error);
        words(findings(&read(&text).unwrap()).of(Property::Hl005))
    };
    assert!(told("ConnectionTimeout").contains("no request reached the lock"));
    let of_a_limit = told("LockTimeout");
    assert!(of_a_limit.contains("the library's own for its wait"), "{of_a_limit}");
    assert!(!of_a_limit.contains("no request reached the lock"), "{of_a_limit}");
}

#[test]
fn a_cause_that_is_not_known_is_no_short_fault_and_no_renewal_of_a_lock_that_renews_nothing() {
    let told = |name: &str, this: &str, other: &str| {
        let text = std::fs::read_to_string(golden_path(name)).unwrap();
        words(findings(&read(&text.replace(this, other)).unwrap()).of(Property::Hl001))
    };
    let (partition, packets) = (r#""f":"partition""#, r#""f":"drop-packets""#);
    let short = told("hl001_partition_that_no_lease_ends_in", partition, packets);
    assert!(short.contains("not known from this history"), "{short}");
    let (locks, renews) = (r#""locks":["l0"]"#, r#""locks":["l0"],"promises":{"renews":false}"#);
    let over = told("hl001_cut_off_within_an_unknown_lease", locks, renews);
    assert!(over.contains("its lease had run out, or"), "{over}");
}
