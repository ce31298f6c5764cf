//! The command on simulated servers: its findings, their repetition, and the marks of models in its output.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use harness_workloads::defects::{DEFECTS, Defect, VARIABLE};

use crate::command::{Answer, Harness, again, assert_has, assert_lacks, assert_says, tests, texts};
use crate::outcome::comes_out;

impl Harness {
    fn simulated(&self, words: &str) -> Answer {
        self.run(&format!("--runtime simulated {words}"))
    }

    /// Returns the folders of its hunts, the oldest first.
    pub fn hunts(&self) -> Vec<PathBuf> {
        self.folders_with("hunt.json")
    }

    /// Returns the folders of its runs, the oldest first.
    fn runs(&self) -> Vec<PathBuf> {
        self.folders_with("run.json")
    }
}

#[test]
fn a_waiter_that_is_cut_off_breaks_a_queue_that_believes_a_wake_up_and_not_one_that_looks_again() {
    let harness = Harness::new();
    let words = "run --json --quiet --runtime simulated --backend zk --fault partition=waiter --seed 1";
    for (defect, outcome) in [
        ("none", "0, HL001 not violated, a window"),
        (
            "zk-predecessor-watch: who is woken is first",
            "1, HL001 violated, a window",
        ),
    ] {
        let answer = Answer::to(harness.command(words).env(VARIABLE, defect));
        answer.assert_is(outcome);
        assert_has(&answer.diagnosis.to_string(), &["waiter | every server"]);
    }
}

#[test]
fn nothing_has_to_be_installed_and_the_same_seed_has_the_same_history_in_another_process() {
    let harness = Harness::new();
    let words = "run --quiet --runtime simulated --backend redis --time 20s --fault partition,drop-reply,kill --seed";
    let [five, again, six] = [5, 5, 6].map(|seed| {
        assert_says(harness.command(&format!("{words} {seed}")).env("PATH", ""), 0, &[]);
        let history = harness.latest_history();
        // the first line has the name of the run
        let (header, events) = history.split_once('\n').unwrap();
        assert!(header.contains(r#""runtime":"simulated""#), "{header}");
        events.to_owned()
    });
    assert_eq!(harness.runs().len(), 3);
    assert!(five.lines().count() > 1000);
    assert!(five == again, "the same seed has another history");
    assert!(five != six, "another seed has the same history");
}

#[test]
fn every_output_says_that_the_servers_were_simulated() {
    let harness = Harness::new();
    let answer = harness.answer("run --runtime simulated --backend redis --time 20s --fault none --seed 3");
    assert_has(&answer.stdout, &["simulated servers"]);
    assert_has(&answer.stderr, &["simulated servers, real recipes"]);
    let run = harness.runs().remove(0);
    let has = |file: &str, words: &str| {
        let text = fs::read_to_string(run.join(file)).unwrap();
        assert!(text.contains(words), "{file} does not say {words}");
    };
    has("run.json", r#""runtime": "simulated""#);
    has("verdict.json", r#""runtime": "simulated""#);
    for report in ["junit.xml", "summary.md", "report.html"] {
        has(report, "simulated servers");
    }
    for report in ["summary.md", "report.html"] {
        has(report, "It makes the same run, line by line.");
    }
}

#[test]
fn a_simulated_run_is_not_compared_with_a_real_one() {
    let harness = Harness::new();
    for seed in [1, 2] {
        harness.simulated(&format!("--backend redis --time 20s --fault none --seed {seed}"));
    }
    let runs = harness.runs();
    let compare = format!("compare {} {}", runs[0].display(), runs[1].display());
    harness.answer(&compare).assert_exit(0);
    let info = runs[0].join("run.json");
    let real = fs::read_to_string(&info)
        .unwrap()
        .replace(r#""runtime": "simulated""#, r#""runtime": "local""#);
    fs::write(&info, real).unwrap();
    harness.assert_says(&compare, 2, &["simulated servers"]);
}

#[test]
fn a_run_is_made_again_line_by_line() {
    let harness = Harness::new();
    harness.simulated("--backend redis --recipe redis-setnx --fault kill-holder --time 20s --seed 9");
    harness.assert_replayed();
    let history = harness.runs()[0].join("history.jsonl");
    let changed = fs::read_to_string(&history)
        .unwrap()
        .replacen(r#""index":40,"#, r#""index":41,"#, 1);
    fs::write(&history, changed).unwrap();
    let replayed = harness.answer("replay latest");
    replayed.assert_exit(70);
    assert_has(&replayed.stdout, &["line 41"]);
    let info = harness.runs()[0].join("run.json");
    let interrupted = fs::read_to_string(&info)
        .unwrap()
        .replace(r#""status": "complete""#, r#""status": "interrupted""#);
    fs::write(&info, interrupted).unwrap();
    let replayed = harness.answer("replay latest");
    replayed.assert_exit(3);
    assert_has(&replayed.stdout, &["line 41", "the stored run is interrupted"]);
}

#[test]
fn a_run_on_servers_that_elect_a_leader_has_the_same_history_in_another_process() {
    for backend in ["etcd", "nats"] {
        let harness = Harness::new();
        let words = format!("--backend {backend} --fault partition,drop-reply,kill,server-kill --time 20s --seed 5");
        harness.simulated(&words).assert_exit(0);
        harness.assert_replayed();
    }
}

#[test]
fn hunts_on_the_model_of_nats_break_the_locks_without_a_revision_and_not_the_others() {
    for (recipe, experiments, code) in [
        ("nats-key-put", 200, 1),
        ("nats-key-no-revision", 200, 1),
        ("nats-key-revision", 60, 0),
        ("nats-key-marker", 60, 0),
    ] {
        let harness = Harness::new();
        let words =
            format!("--backend nats --recipe {recipe} --experiments {experiments} --until first --seed 1 --jobs 2");
        hunted(&harness, &words, code);
    }
}

/// Returns the record of a hunt with these words, and asserts its exit code.
pub fn hunted(harness: &Harness, words: &str, exit: i32) -> serde_json::Value {
    harness.printed(&format!("hunt --runtime simulated --quiet --json {words}"), exit)
}

#[test]
fn a_hunt_on_models_ends_once_its_experiments_see_nothing_new() {
    let words = "--backend redis --fault none --set clients=2 --until saturated --for 300s --seed 1";
    let record = hunted(&Harness::new(), words, 0);
    assert!(record["counts"]["experiments"].as_u64() >= Some(100), "{record:#}");
    assert!(record["took_ms"].as_u64() < Some(280_000), "{record:#}");
}

#[test]
fn a_hunt_continues_from_any_folder_and_its_own_results_list_it() {
    let harness = Harness::new();
    let words = "--runtime simulated --backend redis --fault none --set clients=2 --experiments 2 --seed 1";
    harness.answer(&format!("hunt --quiet {words}"));
    let (hunt, index) = (harness.hunts().remove(0), harness.results().join("index.html"));
    fs::remove_file(&index).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let words = format!("hunt --quiet --json --continue {}", hunt.display());
    let answer = Answer::to(harness.command(&words).current_dir(elsewhere.path()));
    // as many again
    let experiments = &answer.diagnosis["counts"]["experiments"];
    assert_eq!(*experiments, 4, "{}", answer.stderr);
    assert!(index.is_file() && !elsewhere.path().join("results").exists());
}

#[test]
fn experiments_on_models_leave_files_of_finds_alone_and_a_find_is_the_same_again() {
    let harness = Harness::new();
    let words = "--backend redis --recipe redis-set-px-get-del --experiments 200 --until end --seed 1 --jobs 2";
    let record = hunted(&harness, words, 1);
    assert_eq!(record["counts"]["experiments"], 200, "{record:#}");
    assert_eq!(record["counts"]["failed"], 0, "{record:#}");
    let finds = record["finds"].as_array().unwrap();
    assert!(finds.iter().any(|find| find["property"] == "HL007"), "{record:#}");
    let hunt = harness.hunts().remove(0);
    let kept = fs::read_dir(hunt.join("runs")).unwrap().count();
    assert!(kept > 0 && kept <= finds.len(), "{kept} runs of {} finds", finds.len());
    for find in finds {
        let run = hunt.join(find["run"].as_str().unwrap());
        harness.assert_same_again(&run.display().to_string());
    }
}

/// Returns the JSON of a command while its recipe has a defect.
fn with_defect(harness: &Harness, defect: &Defect, words: &str) -> serde_json::Value {
    let mut command = harness.command(words);
    Answer::to(command.env(VARIABLE, format!("{}: {}", defect.recipe, defect.name))).diagnosis
}

/// Returns the first find of a hunt of at most 1,000 experiments in a recipe with a defect.
fn find(harness: &Harness, defect: &Defect, seed: u32) -> Option<serde_json::Value> {
    let store = defect.recipe.split('-').next().expect("a recipe has a name");
    let backend = if store == "redlock" { "redis" } else { store };
    let words = format!(
        "hunt --runtime simulated --quiet --json --backend {backend} --recipe {} --experiments 1000 --until first --jobs 1 --seed {seed}",
        defect.recipe
    );
    let record = with_defect(harness, defect, &words);
    let finds = record["finds"].as_array().expect("a hunt has finds");
    finds.first().cloned()
}

/// Returns the defects that a hunt does not find.
fn missed<'a>(defects: impl Iterator<Item = &'a Defect>) -> Vec<&'a Defect> {
    defects
        .filter(|defect| find(&Harness::new(), defect, 2).is_none())
        .collect()
}

#[test]
fn a_defect_that_is_planted_in_a_recipe_of_each_backend_is_found_within_a_thousand_experiments() {
    let of_backends =
        ["redis-", "zk-", "etcd-"].map(|backend| DEFECTS.iter().find(|defect| defect.recipe.starts_with(backend)));
    assert_eq!(missed(of_backends.into_iter().flatten()), Vec::<&Defect>::new());
}

mod nightly {
    use super::*;

    #[test]
    fn what_shrink_leaves_of_a_find_on_zookeepers_model_is_small_and_comes_each_time() {
        is_cut_down("zk-predecessor-watch", "an unanswered create is forgotten");
    }

    #[test]
    fn a_grant_that_a_paused_member_of_etcd_kept_back_is_taken_by_a_naive_holder_alone() {
        let words = "--backend etcd --recipe etcd-lock-rpc --fault server-pause";
        let naive = format!("{words} --holder naive --seed 8");
        comes_out("simulated", &naive, "1, HL007 violated");
        comes_out("simulated", &format!("{words} --seed 1"), "0, HL007 not violated");
    }

    #[test]
    fn a_thousand_clients_share_four_processes() {
        let words = "--backend redis --recipe redis-set-px-lua --clients 1000 --per-process 250 --locks 250 --rate 100 --time 12s --seed 1";
        let answer = comes_out("simulated", words, "0");
        assert_eq!(answer.diagnosis["run"]["clients"], 1000);
    }

    #[test]
    fn each_defect_that_is_planted_in_a_recipe_is_found_within_a_thousand_experiments() {
        assert_eq!(missed(DEFECTS.iter()), Vec::<&Defect>::new());
    }
}

#[test]
fn what_shrink_leaves_of_a_find_on_models_is_small_and_comes_each_time() {
    is_cut_down("redis-watchdog", "an error ends the renewal");
}

/// Hunts a defect, and cuts the find down.
fn is_cut_down(recipe: &'static str, name: &'static str) {
    let defect = Defect { name, recipe };
    assert!(DEFECTS.contains(&defect));
    let harness = Harness::new();
    let found = find(&harness, &defect, 101).expect("it is found");
    let run = harness.hunts().remove(0).join(found["run"].as_str().unwrap());
    let left = with_defect(&harness, &defect, &format!("shrink --quiet --json {}", run.display()));
    let windows = left["windows"].as_array().unwrap().len();
    let clients = left["clients"].as_u64().unwrap();
    assert!(windows <= 3 && clients <= 3, "{name}: {left:#}");
    assert_eq!(
        (&left["property"], &left["class"]),
        (&found["property"], &found["class"])
    );
    // the printed command repeats the violation
    let again = with_defect(&harness, &defect, &format!("{} --json --quiet", again(&left)));
    let same = again["findings"].as_array().unwrap().iter();
    let same = same.filter(|finding| finding["property"] == found["property"]);
    let same: Vec<_> = same
        .flat_map(|finding| finding["violations"].as_array().unwrap())
        .collect();
    let is_same = |violation: &&serde_json::Value| violation["class"] == found["class"];
    assert!(same.iter().any(is_same), "{name}: {left:#}");
    assert!(same[0]["events"].as_array().unwrap().len() <= 10, "{name}: {left:#}");
}

#[test]
fn a_hunt_on_models_has_the_same_experiments_however_many_jobs_make_them() {
    let harness = Harness::new();
    let words = "--backend zk --recipe zk-polling --set guid=off --experiments 20 --until end --seed 3 --jobs";
    let of = |jobs: u32| {
        let record = harness.answer(&format!("hunt --runtime simulated --quiet --json {words} {jobs}"));
        let record = record.diagnosis;
        let finds = record["finds"].as_array().unwrap().iter();
        let finds = finds.map(|find| ["property", "class", "count"].map(|key| find[key].to_string()));
        (
            record["counts"].clone(),
            record["faults"].clone(),
            std::collections::BTreeSet::from_iter(finds),
        )
    };
    assert_eq!(of(1), of(2));
}

tests! {
    comes_out:
        faults_of_every_family_act_on_models("simulated", "--backend redis --fault any --seed 11 --time 60s", "0")
        faults_act_on_models_of_several_masters(
            "simulated", "--backend redis --recipe redlock --fault partition,server-pause --seed 3 --time 30s", "0")
        // A stopped leader executes a delayed request and creates its key long after the release. Found by a hunt: the client
        // rested, and renewed the lease of that key for five seconds.
        a_careful_etcd_client_that_rests_keeps_no_key_of_a_late_request(
            "simulated",
            "--backend etcd --recipe etcd-mutex --lease 2s --fault server-pause=leader --clients 4 --locks 1 --hold 1ms --wait 500ms \
             --per-process 2 --think 1769ms --progress-bound 5s --grants 100 --time 20s --seed f6df4328",
            "0, HL007 holds")
}

#[test]
fn a_message_that_does_not_come_gives_way_to_one_that_comes_often() {
    let harness = Harness::new();
    let windows = |words: &str| {
        let answer = harness.simulated(&format!("--backend redis --seed 3 {words}"));
        answer.windows().to_vec()
    };
    let did = |window: &serde_json::Value| window["did"].as_str().unwrap_or_default().to_owned();
    let gives_way = |window: &serde_json::Value| did(window).contains("in place of `");
    let any = windows("--fault any --time 30s");
    let given_way: Vec<_> = any.iter().filter(|window| gives_way(window)).collect();
    assert!(!given_way.is_empty(), "{any:#?}");
    assert!(
        given_way.iter().all(|window| window["had_effect"] == true),
        "{given_way:#?}"
    );
    // a named fault waits for its message, whatever else comes
    let named = windows("--fault drop-reply=GETDEL:1 --time 20s");
    assert!(!named.is_empty());
    let is_missed = |window: &serde_json::Value| window["had_effect"] == false && !gives_way(window);
    assert!(named.iter().all(is_missed), "{named:#?}");
}

/// Returns the history of a run without the header, which has the name of the run.
fn lines_of(run: &Path) -> Vec<String> {
    let history = fs::read_to_string(run.join("history.jsonl")).expect("a run has a history");
    history.lines().skip(1).map(str::to_owned).collect()
}

#[test]
fn a_run_ends_at_its_first_violation_where_it_is_to() {
    let harness = Harness::new();
    let words = "--backend redis --recipe redis-set-px-del --holder naive --clients 10 --hold 100ms --fault partition=holder --seed 4";
    let whole = harness.simulated(words);
    let ended = harness.simulated(&format!("{words} --stop-on-violation"));
    let length = |answer: &Answer| answer.diagnosis["length_ns"].as_u64().expect("a run has a length");
    for answer in [&whole, &ended] {
        answer.assert_exit(1);
    }
    let first = |answer: &Answer| answer.finding("HL002")["violations"][0].clone();
    let at = first(&ended)["at_ns"].as_u64().expect("a violation has a time");
    assert_eq!(first(&ended)["at_ns"], first(&whole)["at_ns"]);
    // a second until it is certain, then active faults heal and locks are released
    assert!(length(&ended) < at + 10_000_000_000 && length(&ended) < length(&whole) / 2);
    let why = ended.diagnosis["ended_early"].as_str().expect("it says so");
    assert_has(why, &["HL002 two-holders on l0"]);
    assert!(whole.diagnosis.get("ended_early").is_none());
    let phases = texts(&ended.diagnosis["phases"], "name");
    assert_eq!(phases, ["control", "warm-up", "faults", "violation", "end"]);
    let runs = harness.runs();
    let (one, other) = (lines_of(&runs[0]), lines_of(&runs[1]));
    let same = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    assert!(other[same].contains(r#""phase":"violation""#), "{}", other[same]);
    let stored = runs[1].display().to_string();
    assert!(fs::read_to_string(runs[1].join("verdict.json")).is_ok_and(|text| text.contains("ended_early")));
    let screen = harness.answer(&format!("check {stored}")).stdout;
    assert_has(&screen, &["\n  ended         the run ended early"]);
    assert_lacks(&screen, &["unsure"]);
    harness.assert_same_again(&stored);
}

#[test]
fn a_lease_that_the_application_extends_is_kept_and_one_that_compares_no_owner_takes_anothers_lock() {
    let harness = Harness::new();
    let words = "--backend redis --recipe redis-set-px-extend --lease 1s --hold 1500ms --odd-turns 30 --fault partition=holder --time 30s --seed 1";
    harness.simulated(words).assert_exit(0);
    let history = lines_of(&harness.runs()[0]).concat();
    let extended = [r#""type":"ok","f":"extend""#, r#""type":"fail","f":"extend""#];
    assert_has(&history, &extended);
    assert_has(&history, &[r#""f":"lost""#]);
    let answer = harness.simulated(&format!("{words} --holder naive"));
    answer.assert_is("1, HL001 violated, HL002 violated");
}

#[test]
fn a_run_without_a_violation_is_the_same_whether_it_is_to_end_at_one_or_not() {
    let harness = Harness::new();
    for words in [
        "--backend redis --recipe redis-set-px-lua --tries 30 --fault partition,kill-holder --seed 3",
        "--backend zk --recipe zk-read-write --reads 50 --fault partition,pause-waiter --seed 5",
    ] {
        for more in ["", " --stop-on-violation"] {
            let answer = harness.simulated(&format!("{words} --time 15s{more}"));
            answer.assert_exit(0);
            assert!(answer.diagnosis.get("ended_early").is_none());
        }
        let runs = harness.runs();
        let [.., one, other] = &runs[..] else {
            panic!("{runs:?}")
        };
        let (one, other) = (lines_of(one), lines_of(other));
        let differ = one.iter().zip(&other).find(|(one, other)| one != other);
        assert_eq!((differ, one.len()), (None, other.len()), "{words}");
    }
}

#[test]
fn a_hunt_for_one_find_ends_its_experiment_at_the_violation() {
    for (until, early) in [("first", true), ("end", false)] {
        let harness = Harness::new();
        let words = format!(
            "--recipe redis-getset --fault clock --set grants=1000 --set time=20s --experiments 3 --seed 1 --until {until}"
        );
        let record = hunted(&harness, &format!("--backend redis {words}"), 1);
        let find = &record["finds"][0];
        let again = find["again"].as_array().expect("a find can be made again");
        assert_eq!(
            again.iter().any(|word| word == "--stop-on-violation"),
            early,
            "{again:?}"
        );
        let run = harness.hunts()[0].join(find["run"].as_str().expect("a find has a run"));
        let lines = lines_of(&run);
        assert_eq!(lines.iter().any(|line| line.contains(r#""phase":"violation""#)), early);
    }
}

/// Returns the acquires that clients of the latest run called: the time in seconds, the lock, and the delay.
fn latest_acquires(harness: &Harness) -> Vec<(f64, String, Duration)> {
    let lines = harness.latest_lines().into_iter();
    let called = lines.filter(|line| line["type"] == "invoke" && line["f"] == "acquire");
    let acquire = |line: serde_json::Value| {
        let at = line["time"].as_f64().expect("a time") / 1e9;
        let late = Duration::from_micros(line["late_us"].as_u64().unwrap_or(0));
        (at, line["lock"].as_str().unwrap_or_default().to_owned(), late)
    };
    called.map(acquire).collect()
}

#[test]
fn acquires_come_due_at_their_rate_while_the_servers_stand_still() {
    let harness = Harness::new();
    let words = "--backend redis --recipe redis-set-px-lua --hold 2ms --vary 0s --fault server-pause --window 5s --time 30s --seed 3";
    let open = harness.simulated(&format!("{words} --rate 40"));
    let acquires = latest_acquires(&harness);
    let closed = harness.simulated(words);
    let free = latest_acquires(&harness);
    // acquires that were due while every client waited for the servers are made later, and are as many as at any other time
    let late = acquires
        .iter()
        .filter(|(.., late)| *late > Duration::from_secs(1))
        .count();
    let before: Vec<_> = acquires.iter().filter(|(at, ..)| (1.0..4.0).contains(at)).collect();
    assert!((90..150).contains(&before.len()), "{}", before.len());
    assert!(late > 100, "{late}");
    assert!(free.iter().all(|(.., late)| late.is_zero()));
    let p99 = |answer: &Answer| answer.diagnosis["latency"]["p99_ns"].as_u64().expect("a latency");
    assert!(p99(&open) > 1_000_000_000, "{}", p99(&open));
    assert!(p99(&closed) < 500_000_000, "{}", p99(&closed));
    let said = open.diagnosis["latency"]["late"].as_u64();
    assert!(said.is_some_and(|said| said >= late as u64), "{said:?}");
}

#[test]
fn clients_think_begin_one_by_one_and_prefer_a_lock() {
    let harness = Harness::new();
    let words =
        "--backend redis --recipe redis-set-px-lua --hold 1ms --vary 0s --seed 1 --clients 4 --locks 3 --time 20s";
    harness
        .simulated(&format!("{words} --think 500ms --ramp 8s --skew 2"))
        .assert_exit(0);
    let acquires = latest_acquires(&harness);
    let within = |from: f64, to: f64| acquires.iter().filter(|(at, ..)| (from..to).contains(at)).count();
    // two acquires a second of each client that has begun
    assert!((2..7).contains(&within(0.0, 2.0)), "{}", within(0.0, 2.0));
    assert!((12..21).contains(&within(6.0, 8.0)), "{}", within(6.0, 8.0));
    let share = |lock: &str| acquires.iter().filter(|(_, of, _)| of == lock).count() as f64 / acquires.len() as f64;
    let (first, last) = (share("l0"), share("l2"));
    assert!(first > 0.55 && last < 0.2, "{first} {last}");
}

#[test]
fn the_recovery_lasts_until_each_of_many_clients_had_a_turn() {
    // one turn of all clients takes 30 seconds, and the bound for one of them is 20
    let words = "--backend zk --recipe zk-predecessor-watch --clients 60 --hold 500ms --vary 0s --fault partition --seed 1 --time 60s";
    let answer = comes_out("simulated", words, "0");
    let length = answer.diagnosis["length_ns"].as_u64().expect("a length");
    assert!(length > 70_000_000_000, "{length}");
}
