//! The reports of a run on disk and in CI: its folder, its page, the index, and GitHub's summary.

use crate::command::{Answer, Harness, assert_has};

const FAILING: &str = "run --runtime local --backend zk --nodes 1 --holder naive --fault partition=holder --lease 1s --window 2500ms --time 9s --seed 5eed --results results";

#[test]
fn a_failing_run_leaves_its_page_and_all_that_it_tells() {
    let harness = Harness::new();
    let summary = harness.folder.path().join("summary-of-the-job.md");
    let mut command = harness.command(FAILING);
    command
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_STEP_SUMMARY", &summary);
    let Answer {
        exit, stdout, stderr, ..
    } = Answer::to(&mut command);
    assert_eq!(exit, 1, "{stdout}\n{stderr}");

    let folder = std::fs::canonicalize(harness.results().join("latest")).unwrap();
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let read =
        |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert_has(&stdout, &[&format!("report        results/{name}/report.html#HL001-1")]);

    // the drawing is in the page itself
    let parts = [r#"id="HL001-1""#, "two clients held", r#"rect class="hold""#];
    assert_has(&read("report.html"), &parts);
    let junit = read("junit.xml");
    let document = roxmltree::Document::parse(&junit).unwrap();
    let mut failures = document.descendants().filter(|node| node.has_tag_name("failure"));
    assert!(failures.any(|failure| failure.attribute("type") == Some("stale-holder")));
    assert!(read("summary.md").starts_with("## ❌ FAIL: zk / zk-predecessor-watch naive / partition=holder"));
    let lines = [
        "cluster ready",
        "control passed",
        "partition 1",
        "healed 1",
        "FAIL  zk / ",
    ];
    assert_has(&read("harness.log"), &lines);
    let run: serde_json::Value = serde_json::from_str(&read("run.json")).unwrap();
    assert!(run["machine"].as_str().unwrap().starts_with("linux "), "{run:#}");
    assert_eq!(run["argv"][1], "run");

    assert_has(&stderr, &["::group::harness ", "::endgroup::"]);
    let annotations: Vec<&str> = stderr.lines().filter(|line| line.starts_with("::error ")).collect();
    assert!((1..=5).contains(&annotations.len()), "{annotations:#?}");
    assert_has(annotations[0], &["HL001-1", "two clients held"]);
    assert_eq!(
        std::fs::read_to_string(&summary).unwrap().trim_end(),
        read("summary.md").trim_end()
    );

    assert_has(&read("../index.html"), &[&format!("href=\"{name}/report.html\"")]);
    assert!(
        harness::store::only_ours(&folder).is_some(),
        "there is a file in {} that retention does not know; name it in src/store/retention.rs",
        folder.display()
    );
}

#[test]
fn a_run_that_could_not_be_made_leaves_a_page_that_says_why() {
    let harness = Harness::new();
    let words = "run --runtime local --backend redis --time 10s --results results --client no-such-program-anywhere";
    harness.assert_says(words, 4, &["not found"]);
    let folder = harness.results().join("latest");
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert_has(&page, &["! ERROR", "not found"]);
    let junit = std::fs::read_to_string(folder.join("junit.xml")).unwrap();
    let document = roxmltree::Document::parse(&junit).unwrap();
    let mut errors = document.descendants().filter(|node| node.has_tag_name("error"));
    assert!(errors.any(|error| error.attribute("type") == Some("error")));
}

#[test]
fn passing_runs_beyond_those_to_keep_are_removed() {
    let harness = Harness::new();
    let words = "run --runtime simulated --backend redis --fault none --lease 1s --time 7s --results results --keep 1";
    for seed in ["a", "b"] {
        harness.assert_says(&format!("{words} --seed {seed}"), 0, &[]);
    }
    let kept = harness::store::runs(&harness.results());
    assert_eq!(kept.len(), 1, "{kept:?}");
    let index = std::fs::read_to_string(harness.results().join("index.html")).unwrap();
    assert_has(&index, &[&kept[0]]);
}

mod browser {
    use super::*;
    use crate::page::chromium::BrowserPage;

    /// A failing run on models, whose history and page are written by the same code.
    const FAILING_ON_MODELS: &str = "run --runtime simulated --backend zk --recipe zk-predecessor-watch --holder naive --fault partition=holder --lease 1s --hold 300ms --seed 16 --time 20s --results results";

    #[test]
    fn the_page_of_a_failure_is_drawn_as_it_is_linked() {
        let harness = Harness::new();
        let failed = harness.answer(FAILING_ON_MODELS);
        failed.assert_exit(1);
        let mut lines = failed.stdout.lines();
        let pointer = lines.find_map(|line| line.trim().strip_prefix("report ")).unwrap();
        let (path, place) = pointer.trim().split_once('#').unwrap();
        let mut page = BrowserPage::new();
        page.open(&harness.folder.path().join(path), &format!("#{place}"));
        page.wait("document.querySelector('.current')?.id === 'HL001-1'");
        // bars in the colour of holds, and not only names and an axis
        let drawn = "(() => { const c = document.getElementById('canvas'); if (!c.width) return false; \
            const hold = getComputedStyle(document.documentElement).getPropertyValue('--hold').trim(); \
            const [r, g, b] = [1, 3, 5].map((at) => parseInt(hold.slice(at, at + 2), 16)); \
            const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let held = 0; \
            for (let at = 0; at < d.length; at += 4) if (d[at] === r && d[at + 1] === g && d[at + 2] === b) held++; \
            return held > 200; })()";
        page.wait(drawn);
        let mut lines = failed.stdout.lines();
        let sentence = lines.find_map(|line| line.strip_prefix("x HL001-1  ")).unwrap();
        let title = page.value("document.querySelector('h1').innerText");
        assert_eq!(
            title,
            sentence.replace('`', ""),
            "the page and the terminal tell the same"
        );
        let data = "JSON.parse(document.getElementById('data').textContent)";
        assert_eq!(page.value(&format!("{data}.servers.length")), 3);
        let both = format!(
            "(() => {{ const v = {data}.violations[0]; return v.id === 'HL001-1' && v.overlaps.some(([from, to]) => from < to) && v.clients.length > 1; }})()"
        );
        assert_eq!(page.value(&both), true);
        let bars = "document.querySelectorAll('#HL001-1 svg rect.hold').length > 1 && document.querySelectorAll('#HL001-1 .overlap').length > 0";
        assert_eq!(page.value(bars), true);
        assert_eq!(
            page.value("document.querySelectorAll('#HL001-1 ol > li').length >= 3"),
            true
        );
        page.assert_quiet();
    }
}
