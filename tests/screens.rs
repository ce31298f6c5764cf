//! Snapshots (`insta`) of every rendering of stored histories. `INSTA_UPDATE=always cargo nextest run screens` updates
//! them; review the difference before committing it. Tests of the pages in a browser are in `page/`.

use std::collections::BTreeMap;
use std::path::Path;

use harness::report::diagnosis::{KnownRun, Outcome};
use harness::report::terminal::{Look, picture, render};
use harness::report::{Diagnosis, FORMATS, Report, SCHEMA, Timeline, diagnose, github, json, markdown};
use harness::store::{RUN_SCHEMA, RunInfo};
use harness_checkers::{History, Options, ReadOptions, check};

pub const HISTORIES: [&str; 13] = [
    "hl001_granted_twice",
    "hl001_holds",
    "hl001_stale_holder",
    "hl003_token_goes_back",
    "hl004_herd",
    "hl004_polls",
    "hl005_free",
    "hl005_ghost",
    "hl005_too_short",
    "hl007_foreign_release",
    "hl008_holds_after_loss",
    "hl009_silent_loss",
    "leader_killed",
];

/// Returns `run.json` of a sample.
pub fn info() -> RunInfo {
    let words = "harness run --backend zk --holder naive --fault partition --seed 8f3a21c4";
    let words: Vec<&str> = words.split(' ').collect();
    let info = serde_json::json!({
        "schema": RUN_SCHEMA, "run": "20261121-0652-zk-partition-8f3a", "status": "complete", "harness": "0.1.0",
        "started": "20261121-0652", "backend": "zk", "product": "ZooKeeper", "version": "3.9.3", "nodes": 3, "runtime": "docker",
        "runtime_why": "an engine answers and the image is there", "image": "zookeeper:3.9", "image_digest": "sha256:0e1f",
        "machine": "linux x86_64, 2 cores", "recipe": "zk-predecessor-watch", "attitude": "naive", "fault": "partition",
        "seed": "8f3a21c4", "clients": 2, "locks": 1, "lease_ms": 2000, "time_ms": 60_000, "windows": 0, "again": words,
        "argv": words,
    });
    serde_json::from_value(info).expect("it describes a run")
}

/// Returns a history of the checkers, or one for the parts that only reports read.
pub fn history(name: &str) -> History {
    let folders = ["checkers/tests/golden", "tests/screens/histories"];
    let paths = folders.map(|folder| Path::new(folder).join(format!("{name}.jsonl")));
    let path = paths.iter().find(|path| path.exists()).unwrap();
    History::open(path, &ReadOptions::default()).unwrap()
}

fn diagnosis(name: &str, info: Option<RunInfo>) -> Diagnosis {
    diagnosis_of(name, &history(name), info)
}

pub fn diagnosis_of(name: &str, history: &History, info: Option<RunInfo>) -> Diagnosis {
    let findings = check(history, &Options::still());
    diagnose(
        history,
        findings,
        KnownRun {
            page: info.is_some().then(|| format!("results/{name}/report.html")),
            planned_windows: info.as_ref().map_or(0, |info| info.windows),
            info,
            path: format!("results/{name}"),
            check_ns: 4_000_000,
            brief: false,
        },
    )
}

/// Compares with `tests/screens/{kind}/{name}.snap`.
fn compare(kind: &str, name: &str, rendering: &str) {
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path(format!("screens/{kind}"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, rendering));
}

/// Returns a report in one of [`FORMATS`].
pub fn rendered_as(format: &str, history: &History, diagnosis: &Diagnosis) -> String {
    let format = FORMATS.iter().find(|known| known.name == format).unwrap();
    (format.render)(&Report {
        diagnosis,
        timeline: &Timeline::of(history),
        plan: None,
        lines: &BTreeMap::new(),
    })
}

/// Returns the report of a sample with a `run.json`.
fn rendered(name: &str, format: &str) -> String {
    let history = history(name);
    rendered_as(format, &history, &diagnosis_of(name, &history, Some(info())))
}

#[test]
fn the_screens_of_the_golden_histories_are_as_they_were() {
    for name in HISTORIES {
        compare("terminal", name, &render(&diagnosis(name, None), Look::PLAIN));
    }
}

#[test]
fn the_screen_of_a_run_ends_with_what_to_type() {
    let screen = render(&diagnosis("hl001_stale_holder", Some(info())), Look::PLAIN);
    compare("terminal", "run_that_failed", &screen);
}

#[test]
fn a_run_in_virtual_time_is_made_again_once() {
    for runtime in ["simulated", "virtual"] {
        let info = RunInfo {
            runtime: runtime.into(),
            ..info()
        };
        let screen = render(&diagnosis("hl001_stale_holder", Some(info)), Look::PLAIN);
        assert!(
            screen.contains("(the same run, line by line)") && !screen.contains("--repeat"),
            "{screen}"
        );
    }
}

#[test]
fn colour_is_all_that_colour_changes() {
    let diagnosis = diagnosis("hl001_stale_holder", None);
    let (plain, painted) = (
        render(&diagnosis, Look::PLAIN),
        render(
            &diagnosis,
            Look {
                color: true,
                ..Look::PLAIN
            },
        ),
    );
    let mut bare = String::new();
    let mut rest = painted.as_str();
    while let Some((before, after)) = rest.split_once("\x1b[") {
        bare += before;
        rest = after.split_once('m').unwrap().1;
    }
    bare += rest;
    assert_eq!(plain, bare);
    assert_ne!(plain, painted);
}

#[test]
fn short_grants_of_others_do_not_look_like_one_long_grant() {
    use harness::report::drawing::{Bar, BarKind, Drawing, DrawingLane};
    let bar = |from_ns, to_ns, text: &str| Bar {
        kind: BarKind::Owner,
        from_ns,
        to_ns,
        text: text.into(),
        brief: text.into(),
        token: None,
    };
    let short = (0..3).map(|number| bar(300 + 20 * number, 318 + 20 * number, "owner: c1"));
    let drawing = Drawing {
        from_ns: 0,
        to_ns: 610,
        lanes: vec![DrawingLane {
            label: "server".into(),
            bars: [bar(0, 298, "owner: c0")].into_iter().chain(short).collect(),
            marks: Vec::new(),
        }],
        overlaps_ns: Vec::new(),
    };
    let lane = picture(&drawing).lines().last().unwrap().to_owned();
    assert_eq!(lane, "   server   [+ owner: c0 +++++++++++++++++[+[+[++");
}

#[test]
fn a_narrow_terminal_gets_lines_that_fit_and_the_same_words() {
    let words = |screen: &str| -> Vec<String> {
        let text = screen.lines().filter(|line| !is_drawn(line));
        let words = text.flat_map(str::split_whitespace).filter(|word| *word != "\\");
        words.map(str::to_owned).collect()
    };
    for name in HISTORIES {
        let diagnosis = diagnosis(name, Some(info()));
        let wide = render(&diagnosis, Look::PLAIN);
        for columns in [80, 64] {
            let look = Look {
                columns: Some(columns),
                ..Look::PLAIN
            };
            let screen = render(&diagnosis, look);
            // a path is one word of any length
            let text = screen.lines().filter(|line| !line.contains(&diagnosis.path));
            let wider: Vec<&str> = text.filter(|line| line.chars().count() > columns).collect();
            assert!(wider.is_empty(), "{name} at {columns}: {wider:#?}");
            assert_eq!(words(&screen), words(&wide), "{name} at {columns}");
        }
    }
}

/// Whether a line belongs to a drawing: drawings differ for each width.
fn is_drawn(line: &str) -> bool {
    let label = line.split_whitespace().next().unwrap_or_default();
    let is_named = ["fault", "server", "woken", "useful", "waiting"].contains(&label)
        || label
            .strip_prefix('c')
            .is_some_and(|number| number.parse::<u32>().is_ok());
    let is_lane = is_named && line.strip_prefix("   ").is_some_and(|rest| rest.starts_with(label));
    let is_overlap = label.starts_with('^') || line.trim_start().starts_with("both hold: ");
    let is_time = |word: &str| {
        word.strip_suffix('s')
            .is_some_and(|number| number.parse::<f64>().is_ok())
    };
    let is_axis = line.split_whitespace().count() > 1 && line.split_whitespace().all(is_time);
    is_lane || is_axis || is_overlap
}

#[test]
fn no_line_is_wider_than_a_terminal() {
    for name in HISTORIES {
        let screen = render(&diagnosis(name, Some(info())), Look::PLAIN);
        let wide: Vec<&str> = screen.lines().filter(|line| line.chars().count() > 112).collect();
        assert!(wide.is_empty(), "{name}: {wide:#?}");
    }
}

/// Returns the text of a page; styles and scripts have tests of their own.
fn body(page: &str) -> String {
    let (_, rest) = page.split_once("</defs></svg>").expect("a page has a body");
    let (body, _) = rest.split_once("<script").expect("a page has data");
    body.replace("><", ">\n<")
}

/// Histories that together show an overlap with its damage, a drawing of events, a herd, fault windows and consequences.
const THREE: [&str; 3] = ["hl001_stale_holder", "hl004_herd", "hl005_ghost"];

#[test]
fn every_format_of_three_samples_is_as_it_was() {
    for name in THREE {
        compare("html", name, &body(&rendered(name, "html")));
        for format in ["junit", "markdown"] {
            compare(format, name, &rendered(name, format));
        }
        let annotations = github::annotations(&diagnosis(name, Some(info())));
        compare("github", name, &annotations.join("\n"));
    }
    // the schema describes each member of all samples, and the other formats show their values
    compare("json", THREE[0], &rendered(THREE[0], "json"));
}

/// Returns the data for a page's script, an entry a line.
fn data(page: &str) -> String {
    let (_, rest) = page
        .split_once(r#"<script id="data" type="application/json">"#)
        .unwrap();
    let (data, _) = rest.split_once("</script>").unwrap();
    let data: serde_json::Map<String, serde_json::Value> = serde_json::from_str(data).expect("it is JSON");
    data.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
}

#[test]
fn what_the_script_of_a_page_draws_from_is_as_it_was() {
    for name in ["leader_killed", "hl001_stale_holder"] {
        compare("data", name, &data(&rendered(name, "html")));
    }
}

/// Forbids additional members in the published schema, except where it allows them explicitly.
fn strict(schema: &mut serde_json::Value) {
    match schema {
        serde_json::Value::Object(fields) => {
            if fields.contains_key("properties") && !fields.contains_key("additionalProperties") {
                fields.insert("additionalProperties".into(), false.into());
            }
            fields.values_mut().for_each(strict);
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(strict),
        _ => {}
    }
}

#[test]
fn the_published_schema_describes_every_field_of_every_sample() {
    let published: serde_json::Value = serde_json::from_str(SCHEMA).unwrap();
    let mut strictly = published.clone();
    strict(&mut strictly);
    let mut schemas = boon::Schemas::new();
    let mut compiler = boon::Compiler::new();
    let mut compile = |name: &str, schema: serde_json::Value| {
        compiler.add_resource(name, schema).unwrap();
        compiler.compile(name, &mut schemas).unwrap()
    };
    let (published, strictly) = (
        compile("http://localhost/published", published),
        compile("http://localhost/strictly", strictly),
    );
    // `HISTORIES` have no violation of the last two properties
    for name in HISTORIES
        .into_iter()
        .chain(["hl010_ran_out_early", "hl011_wait_that_is_not_kept"])
    {
        for info in [None, Some(info())] {
            let mut value: serde_json::Value = serde_json::from_str(&json(&diagnosis(name, info))).unwrap();
            if let Err(wrong) = schemas.validate(&value, strictly) {
                panic!("{name}: {wrong:#}");
            }
            value["field_of_tomorrow"] = 1.into();
            assert!(schemas.validate(&value, published).is_ok() && schemas.validate(&value, strictly).is_err());
            value["findings"][0]["verdict"] = "perhaps".into();
            assert!(schemas.validate(&value, published).is_err());
        }
    }
}

#[test]
fn a_ci_server_sees_a_case_for_each_property_and_never_green_for_what_proves_nothing() {
    for name in HISTORIES {
        let diagnosis = diagnosis(name, Some(info()));
        let text = rendered(name, "junit");
        let document = roxmltree::Document::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}\n{text}"));
        let suite = document
            .descendants()
            .find(|node| node.has_tag_name("testsuite"))
            .unwrap();
        let cases: Vec<_> = suite.children().filter(|node| node.has_tag_name("testcase")).collect();
        assert_eq!(cases.len(), 12, "eleven properties and the run itself");
        let with = |tag: &str| {
            cases
                .iter()
                .filter(|case| case.children().any(|child| child.has_tag_name(tag)))
                .count()
        };
        for (attribute, count) in [
            ("tests", cases.len()),
            ("failures", with("failure")),
            ("errors", with("error")),
            ("skipped", with("skipped")),
        ] {
            assert_eq!(
                suite.attribute(attribute),
                Some(count.to_string().as_str()),
                "{name}: {attribute}"
            );
        }
        for case in &cases {
            assert!(case.attribute("name").is_some() && case.attribute("classname").is_some());
        }
        assert_eq!(
            with("failure") + with("error") > 0,
            diagnosis.outcome != Outcome::Pass,
            "{name}"
        );
        let output = suite.children().find(|node| node.has_tag_name("system-out")).unwrap();
        let attached = format!("[[ATTACHMENT|results/{name}/report.html]]");
        assert!(output.text().is_some_and(|text| text.contains(&attached)), "{name}");
    }
}

#[test]
fn github_gets_few_annotations_of_one_line_each_and_a_short_summary() {
    for name in HISTORIES {
        let diagnosis = diagnosis(name, Some(info()));
        let lines = github::annotations(&diagnosis);
        assert!(lines.len() <= 5, "{name}: {lines:#?}");
        assert_eq!(lines.is_empty(), diagnosis.outcome == Outcome::Pass, "{name}");
        let one = |line: &String| line.starts_with("::") && !line.contains('\n');
        assert!(lines.iter().all(one), "{name}: {lines:#?}");
        assert!(markdown::render(&diagnosis).len() <= markdown::MAX_SUMMARY);
    }
}

#[test]
fn whatever_is_unsure_has_a_hint() {
    let golden = std::fs::read_dir("checkers/tests/golden").unwrap();
    let mut unsure = 0;
    for path in golden
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "jsonl"))
    {
        let Ok(history) = History::open(&path, &ReadOptions::default()) else {
            continue;
        };
        let diagnosis = diagnosis_of("golden", &history, None);
        let reasons = harness::report::summary::reasons(&diagnosis);
        let hints = reasons.iter().filter(|(label, _)| *label == "hint").count();
        let expected = usize::from(diagnosis.outcome.word() == "UNSURE");
        assert!(hints >= expected, "{}: {:?}", path.display(), diagnosis.unsure);
        unsure += expected;
    }
    assert!(unsure > 5, "{unsure}");
}

#[test]
fn a_drawing_has_every_moment_that_its_sentences_are_about() {
    let (mut drawn, mut named) = (0, 0);
    for name in HISTORIES {
        let history = history(name);
        let diagnosis = diagnosis_of(name, &history, None);
        let violations = diagnosis.findings.iter().flat_map(|finding| &finding.violations);
        for violation in violations {
            let Some(drawing) = diagnosis.drawings.get(&violation.id) else {
                continue;
            };
            for index in violation.because.iter().flat_map(|because| &because.events) {
                let entry = history.entries().find(|entry| entry.index == *index).unwrap();
                let span = drawing.from_ns..=drawing.to_ns;
                assert!(span.contains(&entry.time_ns), "{name}: {}: event {index}", violation.id);
                drawn += 1;
            }
            let words = violation
                .because
                .iter()
                .flat_map(|because| because.text.split([' ', ',']));
            // moments have milliseconds, and lengths do not
            let moments = words.filter(|word| word.rsplit_once('.').is_some_and(|(_, part)| part.len() == 4));
            for moment in moments.filter_map(|word| word.strip_suffix('s')?.parse::<f64>().ok()) {
                let shown = drawing.from_ns as f64 / 1e9 <= moment && moment <= drawing.to_ns as f64 / 1e9;
                assert!(shown, "{name}: {}: {moment}", violation.id);
                named += 1;
            }
        }
    }
    assert!(drawn > 20 && named > 10, "{drawn} {named}");
}
