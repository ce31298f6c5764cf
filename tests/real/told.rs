//! What a run leaves for those who were not there: its folder, its page, the index, and GitHub's summary.

use crate::command::Harness;
use crate::machine::said;

const FAILING: &str = "run --runtime local --backend zk --holder naive --fault partition=holder --lease 1s --window 2500ms --time 9s --seed 5eed --results results";

#[test]
fn a_failing_run_leaves_its_page_and_all_that_it_tells() {
    let harness = Harness::new();
    let summary = harness.folder.path().join("summary-of-the-job.md");
    let mut command = harness.command(FAILING);
    command
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_STEP_SUMMARY", &summary);
    let output = command.output().unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(output.status.code(), Some(1), "{stdout}\n{stderr}");

    let folder = std::fs::canonicalize(harness.results().join("latest")).unwrap();
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    let read =
        |file: &str| std::fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    assert!(
        stdout.contains(&format!("report        results/{name}/report.html#HL001-1")),
        "{stdout}"
    );

    let page = read("report.html");
    assert!(page.contains(r#"id="HL001-1""#) && page.contains("two clients held"));
    assert!(
        page.contains(r#"rect class="hold""#),
        "the drawing is in the page itself"
    );
    let junit = read("junit.xml");
    let document = roxmltree::Document::parse(&junit).unwrap();
    let mut failures = document.descendants().filter(|node| node.has_tag_name("failure"));
    assert!(failures.any(|failure| failure.attribute("type") == Some("stale-holder")));
    assert!(read("summary.md").starts_with("## ❌ FAIL: zk / zk-predecessor-watch naive / partition=holder"));
    let log = read("harness.log");
    for part in [
        "cluster ready",
        "control passed",
        "partition 1",
        "healed 1",
        "FAIL  zk / ",
    ] {
        assert!(log.contains(part), "{part} is not in harness.log:\n{log}");
    }
    let run: serde_json::Value = serde_json::from_str(&read("run.json")).unwrap();
    assert!(
        run["machine"]
            .as_str()
            .is_some_and(|machine| machine.starts_with("linux "))
    );
    assert_eq!(run["argv"][1], "run");

    assert!(
        stderr.contains("::group::harness ") && stderr.contains("::endgroup::"),
        "{stderr}"
    );
    let annotations: Vec<&str> = stderr.lines().filter(|line| line.starts_with("::error ")).collect();
    assert!((1..=5).contains(&annotations.len()), "{annotations:#?}");
    assert!(annotations[0].contains("HL001-1") && annotations[0].contains("two clients held"));
    assert_eq!(
        std::fs::read_to_string(&summary).unwrap().trim_end(),
        read("summary.md").trim_end()
    );

    let index = std::fs::read_to_string(harness.results().join("index.html")).unwrap();
    assert!(index.contains(&format!("href=\"{name}/report.html\"")));
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
    harness.assert_says(words, 4, &[]);
    let folder = harness.results().join("latest");
    let page = std::fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("! ERROR") && page.contains("not found"), "{page}");
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
    assert!(index.contains(&kept[0]));
}

mod browser {
    use super::*;
    use crate::page::chromium::BrowserPage;

    #[test]
    fn the_page_of_a_real_failure_is_drawn_as_it_is_linked() {
        let harness = Harness::new();
        let output = harness.output(FAILING);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let pointer = stdout
            .lines()
            .find_map(|line| line.trim().strip_prefix("report "))
            .unwrap()
            .trim();
        let (path, place) = pointer.split_once('#').unwrap();
        let mut page = BrowserPage::new();
        page.open(&harness.folder.path().join(path), &format!("#{place}"));
        page.wait("document.querySelector('.current')?.id === 'HL001-1'");
        // bars in the colour of holds, not only names and an axis
        let drawn = "(() => { const c = document.getElementById('canvas'); if (!c.width) return false; \
            const hold = getComputedStyle(document.documentElement).getPropertyValue('--hold').trim(); \
            const [r, g, b] = [1, 3, 5].map((at) => parseInt(hold.slice(at, at + 2), 16)); \
            const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; let held = 0; \
            for (let at = 0; at < d.length; at += 4) if (d[at] === r && d[at + 1] === g && d[at + 2] === b) held++; \
            return held > 200; })()";
        page.wait(drawn);
        let sentence = stdout
            .lines()
            .find_map(|line| line.strip_prefix("x HL001-1  "))
            .unwrap();
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
