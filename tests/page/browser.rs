//! Pages in a browser: their timeline, search, links and keys, as a reader uses them.

use std::path::Path;

use serde_json::json;

use super::chromium::BrowserPage;
use super::sample::{Sample, long, many_locks};
use crate::command::{assert_has, assert_lacks};
use crate::screens::{HISTORIES, info};

/// Whether the script drew something on the timeline.
const DRAWN: &str = "(() => { const c = document.getElementById('canvas'); if (!c || !c.width || !c.height) return false; \
    const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; return d.some((v) => v > 0); })()";

/// Two clients that hold at once, with tokens as ZooKeeper numbers them, and the owner on the server.
const LONG_TOKENS: &str = "long_tokens";

/// A desktop and a phone, each with a light and a dark scheme.
const LOOKS: [(u32, &str); 4] = [(1280, "light"), (1280, "dark"), (400, "light"), (400, "dark")];

impl BrowserPage {
    /// Opens a page, and waits until its timeline is drawn.
    fn open_drawn(&mut self, file: &Path, place: &str) {
        self.open(file, place);
        self.wait(DRAWN);
    }

    /// Sets a width and a colour scheme, with which the next page is opened.
    fn look(&mut self, width: u32, scheme: &str) {
        self.resize(width, 900);
        self.prefer(scheme);
    }

    /// Sets properties of an input, as a reader does.
    fn set(&mut self, input: &str, properties: &str) {
        let set = format!("Object.assign(document.querySelector('{input}'), {properties})");
        self.value(&format!("{set}.dispatchEvent(new Event('input', {{ bubbles: true }}))"));
    }

    /// Types a text into the search, and waits for this result.
    fn find(&mut self, text: &str, said: &str) {
        self.press("/");
        self.wait("document.activeElement.id === 'find'");
        text.chars().for_each(|key| self.press(&key.to_string()));
        self.wait(&format!("document.getElementById('found').textContent === '{said}'"));
    }
}

#[test]
fn every_page_is_drawn_without_a_complaint_and_asks_for_nothing() {
    let mut page = BrowserPage::new();
    for name in HISTORIES.into_iter().chain(["recorded_zk_parent_watch"]) {
        let file = page.file(&format!("{name}.html"), &Sample::stored(name).page());
        page.open_drawn(&file, "");
        page.shoot(name);
        page.assert_quiet();
    }
}

/// Asserts that a page has one heading of the first rank, before all others.
fn assert_headings(page: &mut BrowserPage) {
    let ranks = page.text("[...document.querySelectorAll('h1, h2, h3')].map((heading) => heading.tagName).join(' ')");
    assert!(ranks.starts_with("H1") && !ranks[2..].contains("H1"), "{ranks}");
}

#[test]
fn a_heading_says_what_no_other_says_and_what_is_needed_last_comes_last() {
    let mut page = BrowserPage::new();
    for name in ["hl001_stale_holder", "hl001_holds", "hl005_ghost"] {
        let file = page.file("page.html", &Sample::stored(name).page());
        page.open(&file, "");
        assert_headings(&mut page);
        let twice = "[...document.querySelectorAll('h1, h2, h3, .lead')].map((one) => one.innerText).filter((one, at, all) => all.indexOf(one) < at).length";
        assert_eq!(page.value(twice), 0, "{name}");
    }
    page.assert_quiet();
}

/// The stretch of the charts, in microseconds.
const STRETCH: &str = "document.querySelector('svg.window').getAttribute('viewBox').split(' ').filter((_, at) => at % 2 === 0).map(Number)";

#[test]
fn the_timeline_and_the_charts_open_at_the_first_violation_and_have_its_drawings_stretch() {
    let mut page = BrowserPage::new();
    let sample = Sample::stored(LONG_TOKENS);
    let drawing = &sample.diagnosis.drawings["HL001-1"];
    let file = page.file("page.html", &sample.page());
    for place in ["", "#HL001-1"] {
        page.open_drawn(&file, place);
        let stretch: [u64; 2] = serde_json::from_value(page.value(STRETCH)).unwrap();
        assert_eq!(
            stretch,
            [drawing.from_ns / 1000, drawing.to_ns / 1000 - drawing.from_ns / 1000]
        );
    }
    let shown = page.text("document.getElementById('stretch').innerText");
    assert!(shown.contains("of 20.0s"), "{shown}");
    page.value("document.querySelector('#stretch button').click()");
    let stretch: [u64; 2] = serde_json::from_value(page.value(STRETCH)).unwrap();
    assert_eq!(stretch, [0, 20_000_000]);
    assert_eq!(page.value("document.getElementById('stretch').hidden"), true);
    page.assert_quiet();
}

#[test]
fn the_timeline_opens_at_the_rows_of_the_first_violation() {
    let mut page = BrowserPage::new();
    for (lock, is_far_down) in [(46, true), (0, false)] {
        let sample = many_locks(lock);
        let first = &sample.diagnosis.findings[0].violations[0];
        assert_eq!((first.id.as_str(), &first.lock), ("HL001-1", &format!("l{lock}")));
        let file = page.file("page.html", &sample.page());
        page.open_drawn(&file, "");
        page.shoot(&format!("many_locks-{lock}"));
        for client in ["c1", "c2"] {
            point_until(&mut page, &format!("{client} on l{lock}"));
        }
        let is_scrolled = page.value("document.getElementById('lanes').scrollTop > 0");
        assert_eq!(is_scrolled, is_far_down, "l{lock}");
    }
    page.assert_quiet();
}

#[test]
fn long_tokens_are_told_apart_and_no_number_is_cut() {
    let mut page = BrowserPage::new();
    let file = page.file("page.html", &Sample::stored(LONG_TOKENS).page());
    for (width, scheme) in LOOKS {
        page.look(width, scheme);
        page.open_drawn(&file, "");
        page.shoot(&format!("long_tokens-{width}-{scheme}"));
        let text = page.text("document.getElementById('HL001-1').innerText");
        assert!(text.contains("c3 4294967543, c7 4294967675 (+132)"), "{text}");
        let same =
            page.value("[...document.querySelectorAll('#HL001-1 li .same')].map((one) => one.innerText).join(' ')");
        assert_eq!(same, "4294967 4294967");
        let cut = "[...document.querySelectorAll('.in-hold, .in-owner')].filter((bar) => bar.scrollWidth > bar.clientWidth).map((bar) => bar.innerText).join()";
        assert_eq!(page.value(cut), "", "at {width} px");
    }
    page.resize(1280, 900);
    let held = page.text("[...document.querySelectorAll('#HL001-1 .in-hold')].map((bar) => bar.innerText).join()");
    assert!(held.contains("4294967675"), "{held}");
    page.assert_quiet();
}

#[test]
fn the_timeline_shows_the_owner_that_the_server_has_under_the_clients_of_the_lock() {
    let mut page = BrowserPage::new();
    let file = page.file("page.html", &Sample::stored(LONG_TOKENS).page());
    page.open_drawn(&file, "");
    let told = point_until(&mut page, "owner on the server: c3");
    assert_has(&told, &["from    1.010s", "until   3.000s", "after 1.99s"]);
    assert_has(&point_until(&mut page, "owner on the server: c7"), &["from    3.010s"]);
    page.assert_quiet();
}

#[test]
fn the_policy_lets_nothing_out() {
    let mut page = BrowserPage::new();
    let file = page.file("page.html", &Sample::stored("hl001_stale_holder").page());
    page.open(&file, "");
    page.assert_quiet();
    let asked = "new Promise((done) => { const i = new Image(); i.onload = i.onerror = (e) => done(e.type); i.src = 'http://127.0.0.1:9/x.png'; })";
    assert_eq!(page.value(asked), "error");
    let fetched = "fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')";
    assert_eq!(page.value(fetched), "refused");
    page.value("1");
    assert!(page.complaints.len() >= 2, "{:#?}", page.complaints);
    for said in &page.complaints {
        assert_has(said, &["Content Security Policy"]);
    }
}

#[test]
fn keys_go_through_violations_and_move_the_timeline() {
    let mut page = BrowserPage::new();
    let file = page.file("page.html", &Sample::stored("hl001_stale_holder").page());
    page.open_drawn(&file, "");
    page.press("n");
    page.wait("location.hash === '#HL001-1' && document.querySelector('.current').id === 'HL001-1'");
    page.press("n");
    page.wait("document.querySelector('.current').id === 'HL002-1' && document.getElementById('HL002-1').open");
    // the fold around it is open
    page.wait("document.getElementById('HL002-1').offsetHeight > 0");
    page.press("p");
    page.wait("location.hash === '#HL001-1'");
    page.press("f");
    page.wait("location.hash === ''");
    page.press("+");
    page.wait("location.hash.startsWith('#t=')");
    let zoomed = page.value("location.hash");
    page.press("ArrowRight");
    page.wait(&format!("location.hash !== {zoomed}"));
    page.press("ArrowLeft");
    page.wait(&format!("location.hash === {zoomed}"));
    page.press("-");
    page.wait("location.hash === ''");
    page.press("?");
    page.wait("document.getElementById('help').open");
    page.press("?");
    page.wait("!document.getElementById('help').open");
    page.find("42", "1 found");
    page.press("Enter");
    page.wait("document.getElementById('found').textContent === '1 of 1' && location.hash.startsWith('#t=')");
    page.assert_quiet();
}

#[test]
fn links_lead_to_a_violation_and_to_a_stretch_of_time() {
    let mut page = BrowserPage::new();
    let file = page.file("page.html", &Sample::stored("hl001_stale_holder").page());
    page.open(&file, "#HL002-1");
    page.wait("document.querySelector('.current').id === 'HL002-1' && document.getElementById('HL002-1').open");
    page.open_drawn(&file, "#t=12.0-16.0");
    // the charts keep to the stretch
    page.wait("document.querySelector('svg.window').getAttribute('viewBox').startsWith('12000000 0 4000000 ')");
    page.value("location.hash = '#HL001-1'");
    page.wait("document.querySelector('.current').id === 'HL001-1'");
    page.assert_quiet();
}

#[test]
fn the_pointer_is_told_call_reply_token_and_line() {
    let mut page = BrowserPage::new();
    let file = page.file("page.html", &Sample::stored("hl001_stale_holder").page());
    page.open_drawn(&file, "#HL001-1");
    let told = point_until(&mut page, "token   41");
    assert_has(
        &told,
        &["c3 on l0", "call    ", "reply   11.620s", "line ", "its release call"],
    );
}

/// Moves the pointer over the canvas, row by row at these shares of its width, until the tip has this text.
fn point_until(page: &mut BrowserPage, wanted: &str) -> String {
    let hover = format!(
        "(() => {{ const c = document.getElementById('canvas'), b = c.getBoundingClientRect(); \
        for (let y = 4; y < b.height; y += 4) for (let x = .02; x < 1; x += .02) {{ \
          c.dispatchEvent(new MouseEvent('mousemove', {{ clientX: b.left + b.width * x, clientY: b.top + y, bubbles: true }})); \
          const tip = document.getElementById('tip'); \
          if (!tip.hidden && tip.textContent.includes({wanted:?})) return true; }} return false; }})()"
    );
    page.wait(&hover);
    page.text("document.getElementById('tip').textContent")
}

#[test]
fn servers_have_a_band_with_their_roles_and_acquires_the_server_that_they_went_through() {
    let mut page = BrowserPage::new();
    let file = page.file("page.html", &Sample::stored("leader_killed").page());
    for (width, scheme) in LOOKS {
        page.look(width, scheme);
        page.open_drawn(&file, "");
        page.shoot(&format!("leader_killed-{width}-{scheme}"));
    }
    assert_eq!(page.value("document.getElementById('roles').hidden"), false);
    let led = point_until(&mut page, "n2 leader");
    assert_has(&led, &["seen    3.020s", "line 11", "until   6.000s"]);
    assert_has(&point_until(&mut page, "n3 not serving"), &["until   5.040s"]);
    assert_has(&point_until(&mut page, "token   27"), &["node    n2"]);
    // unknown facts are not shown
    assert_lacks(&point_until(&mut page, "token   31"), &["node"]);
    // a server is found by its name
    page.find("n2", "1 found");
    // and a history without roles has no band
    let file = page.file("without.html", &Sample::stored("hl001_stale_holder").page());
    page.open_drawn(&file, "");
    assert_eq!(page.value("document.getElementById('roles').hidden"), true);
    page.assert_quiet();
}

#[test]
fn without_scripts_the_answer_its_proof_and_the_tables_are_there() {
    let mut page = BrowserPage::new();
    page.without_scripts();
    let file = page.file("page.html", &Sample::stored("hl001_stale_holder").page());
    page.open(&file, "");
    let text = page.text("document.body.innerText");
    let parts = [
        "FAIL",
        "two clients held l0 at the same time, for at least 1.84s",
        "The server took it from c3 at 13.880s",
        "both hold: 13.90s to 15.74s",
        "holds, token 41",
        "mutual exclusion",
        "1 update lost of 2 increments",
        "A script draws the timeline",
    ];
    assert_has(&text, &parts);
    page.wait("document.querySelectorAll('#HL001-1 svg rect.hold').length > 1");
    assert_eq!(
        page.value("document.getElementById('board').offsetHeight"),
        0,
        "no empty board is left standing"
    );
    page.assert_quiet();
}

#[test]
fn a_page_fits_a_phone_and_a_desk_in_light_and_dark() {
    let mut page = BrowserPage::new();
    for name in ["hl001_stale_holder", "recorded_zk_parent_watch", "hl001_holds"] {
        let file = page.file("page.html", &Sample::stored(name).page());
        let mut grounds = Vec::new();
        for (width, scheme) in LOOKS {
            page.look(width, scheme);
            page.open_drawn(&file, "");
            page.shoot(&format!("{name}-{width}-{scheme}"));
            let overflow = page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
            assert_eq!(overflow, 0, "{name} at {width} px is wider than its window");
            grounds.push(page.value("getComputedStyle(document.body).backgroundColor"));
        }
        assert_ne!(grounds[0], grounds[1]);
        page.assert_quiet();
    }
}

#[test]
fn a_long_run_fits_and_says_what_it_leaves_out() {
    let mut page = BrowserPage::new();
    let whole = long(25_000).page();
    assert!(whole.len() <= 2 << 20, "{} bytes", whole.len());
    let longer = long(100_000).page();
    assert!(longer.len() <= 2 << 20, "{} bytes", longer.len());
    let file = page.file("page.html", &longer);
    page.open_drawn(&file, "");
    page.shoot("long");
    let said = page.text("document.querySelector('.left-out').innerText");
    assert!(said.contains("of 100,000 acquires: all acquires within "), "{said}");
    // the part around the proof is there: the last two tokens
    page.find("100999", "1 found");
    page.assert_quiet();
}

#[test]
fn nothing_in_a_name_becomes_markup() {
    let mut page = BrowserPage::new();
    // names and causes with markup, wherever a history has text
    let file = page.file("page.html", &Sample::stored("hostile").page());
    page.open_drawn(&file, "");
    assert_eq!(page.value("document.querySelectorAll('img, #owned').length"), 0);
    assert_eq!(page.value("document.title.includes('owned')"), false);
    assert_eq!(page.value("document.querySelectorAll('script').length"), 2);
    page.shoot("hostile");
    page.assert_quiet();
}

#[test]
fn the_index_filters_runs_and_needs_no_script_to_list_them() {
    use harness::report::index::render;
    use harness::report::listed::{Listed, ListedFind, ListedRecord};
    let listed = |name: &str, sample: &str| {
        let diagnosis = Sample::stored(sample).diagnosis;
        Listed {
            name: name.into(),
            summary: serde_json::from_value(json!(diagnosis)).unwrap(),
            status: "complete".into(),
            info: None,
            page: true,
        }
    };
    let killed = Listed {
        name: "20261121-0640-zk-partition-0001".into(),
        summary: None,
        status: "killed".into(),
        info: Some(info()),
        page: false,
    };
    let runs = [
        killed,
        listed("20261121-0645-zk-partition-8f3a", "hl001_holds"),
        listed("20261121-0652-zk-partition-8f3a", "hl001_stale_holder"),
        listed("20261121-0700-zk-none-1234", "hl004_herd"),
    ];
    use harness::report::diagnosis::Outcome::{Fail, Pass};
    let night = |outcome| ListedRecord {
        name: "20261121-0630-suite-nightly".into(),
        outcome,
        sentence: "1 of 12 rows is not as expected: zk / <b>partition".into(),
        rows: vec![
            ("nightly: zk / <b>partition".into(), outcome),
            ("nightly: steady".into(), Pass),
        ],
        finds: Vec::new(),
    };
    let nights = [night(Fail), night(Pass), night(Fail)];
    let find = |page: Option<&str>| ListedFind {
        kind: "HL005 ghost".into(),
        summary: "nobody got `<b>l0`".into(),
        count: 1089,
        page: page.map(str::to_owned),
    };
    let hunt = ListedRecord {
        name: "20261121-0645-hunt-zk".into(),
        outcome: Fail,
        sentence: "4,000 experiments: 1 held".into(),
        rows: Vec::new(),
        finds: vec![find(Some("20261121-0645-hunt-zk/runs/7/report.html")), find(None)],
    };
    let mut page = BrowserPage::new();
    let file = page.file("index.html", &render(&runs, 7, &nights, &[hunt]));
    page.open(&file, "");
    page.shoot("index");
    let found =
        "document.querySelector('a[href=\"20261121-0645-hunt-zk/runs/7/report.html\"]').closest('li').innerText";
    assert_eq!(page.value(found), "HL005 ghost ×1,089: nobody got <b>l0");
    assert_headings(&mut page);
    assert_eq!(page.value("document.querySelectorAll('#runs tbody tr').length"), 4);
    let last = "document.querySelector('#runs tbody tr:last-child').innerText.split(/\\s+/).slice(0, 7).join(' ')";
    let killed = "killed 2026-11-21 06:40 20261121-0640-zk-partition-0001 zk zk-predecessor-watch naive";
    assert_eq!(page.value(last), killed);
    let first = "document.querySelector('#trends tbody tr').innerText.replace(/\\s+/g, ' ')";
    let flaky = "nightly: zk / <b>partition ✕✓✕ 2 of 3 failed flaky 100 % (2 of 2)";
    assert_eq!(page.value(first), flaky);
    let click = "document.querySelector('#trends th:nth-child(4) button').click()";
    page.value(click);
    assert_eq!(
        page.value("document.querySelector('#trends th:nth-child(4)').ariaSort"),
        "ascending"
    );
    assert_eq!(
        page.value("document.querySelector('#trends tbody tr td').innerText"),
        "nightly: steady"
    );
    page.value(click);
    assert_eq!(page.value(first), flaky);
    page.value("document.querySelector('#runs th:nth-child(10) button').click()");
    let lengths = "[...document.querySelectorAll('#runs tbody td:nth-child(10)')].filter((cell) => cell.dataset.sort).map((cell) => Number(cell.dataset.sort))";
    let lengths: Vec<f64> = serde_json::from_value(page.value(lengths)).unwrap();
    assert!(lengths.len() == 3 && lengths.is_sorted(), "{lengths:?}");
    let suite = "document.querySelector('a[href=\"20261121-0630-suite-nightly/index.html\"]').parentElement.innerText";
    let suite = page.text(suite);
    assert!(suite.ends_with("expected: zk / <b>partition"), "{suite}");
    let shown = "[...document.querySelectorAll('#runs tbody tr')].filter((row) => !row.hidden).length";
    page.set("#query", "{ value: 'none waiters' }");
    assert_eq!(page.value(shown), 1);
    assert_eq!(page.value("document.getElementById('shown').textContent"), "1 of 4");
    page.set("#query", "{ value: '' }");
    page.set("input[value=FAIL]", "{ checked: false }");
    assert_eq!(page.value(shown), 2);
    page.set("input[value=NONE]", "{ checked: false }");
    assert_eq!(page.value(shown), 1);
    page.wait("document.querySelector('.left-out').innerText.startsWith('7 older runs')");
    page.assert_quiet();
}

#[test]
fn the_page_of_a_suite_tells_what_is_wrong_first_and_filters_its_rows() {
    use harness::suite::Record;
    use harness::suite::page::page as render;
    let row = |name: &str, judged: &str, why: &[&str]| {
        json!({
            "name": name, "words": [], "expect": { "outcome": "PASS", "verdicts": {} }, "canary": false, "judged": judged,
            "attempts": [{
                "judged": judged, "why": why, "exit": 1, "outcome": if why.is_empty() { "PASS" } else { "FAIL" }, "verdicts": {},
                "effect": "2 of 2 fault windows: 3 KiB held back", "took_ms": 31000, "run": "runs/001/a run",
                "again": ["harness", "run", "--backend", "zk", "--fault", "partition=holder", "--seed", "8f3a21c4"],
            }],
        })
    };
    let of = |rows: serde_json::Value| -> Record {
        let record = json!({
            "schema": "harness-suite/1", "suite": "nightly", "digest": "d", "harness": "0.1.0", "started": "20261121-0645",
            "shard": null, "wanted": [], "took_ms": 62000, "rows": rows, "exit": 1,
        });
        serde_json::from_value(record).unwrap()
    };
    let why = "HL001 is violated: two clients held `l0` at the same time, for at least 1.84s";
    let now = of(json!([
        row("zk / partition", "as-expected", &[]),
        row(
            "my <b>lock</b> / a-name-that-is-long-and-has-no-place-to-break-it-anywhere",
            "unexpected",
            &[why]
        ),
    ]));
    let before = of(json!([row("zk / partition", "unsure", &["it missed"])]));
    let mut page = BrowserPage::new();
    let before = ("20261120-0645-suite-nightly".to_owned(), before);
    let file = page.file("index.html", &render(&now, &[before]));
    for (width, scheme) in LOOKS {
        page.look(width, scheme);
        page.open(&file, "");
        page.shoot(&format!("suite-{width}-{scheme}"));
        let overflow = page.value("document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(overflow, 0, "it is wider than {width} px");
        assert_headings(&mut page);
    }
    let text = page.text("document.body.innerText");
    let parts = [
        "1 of 2 rows is not as expected: my <b>lock</b>",
        "two clients held l0 at the same time, for at least 1.84s",
        "new my <b>lock</b>",
        "mended zk / partition",
        "--fault partition=holder --seed 8f3a21c4",
    ];
    assert_has(&text, &parts);
    assert_eq!(
        page.value("document.querySelector('section.violation a').getAttribute('href')"),
        "runs/001/a%20run/report.html"
    );
    page.set("input[value=ok]", "{ checked: false }");
    assert_eq!(page.value("document.getElementById('shown').textContent"), "1 of 2");
    page.assert_quiet();
}
