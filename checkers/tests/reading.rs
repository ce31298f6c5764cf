//! Tests of the readers: accepted histories, refused ones, and the error messages.

use std::io::BufReader;

use super::golden::golden;
use super::{essentials, read, read_bytes, verdict};
use harness_checkers::history::event::{Kind, Process};
use harness_checkers::{
    Entry, EventStream, F, History, HistoryBuilder, Model, Options, Property, ReadOptions, Verdict, check,
    check_property, write_edn,
};

const HEADER: &str = r#"{"format":"harness-history","version":1,"locks":["l0"],"new":{"field":[1]}}"#;

fn own(lines: &[impl AsRef<str>]) -> Result<History, String> {
    let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
    read(&format!("{HEADER}\n{}\n", lines.join("\n")))
}

/// Checks that a history was refused with an error that begins with one text and contains another.
#[track_caller]
fn refused(found: Result<History, String>, start: &str, part: &str) {
    let error = found.expect_err(start);
    assert!(error.starts_with(start) && error.contains(part), "{error}");
}

/// Returns options with this model in place of the header's.
fn by(model: Model) -> Options {
    Options {
        model: Some(model),
        ..Options::default()
    }
}

/// Returns a short line of the vocabulary.
fn line(time: u64, process: u32, kind: &str, f: &str) -> String {
    format!(
        r#"{{"index":{time},"time":{time},"process":{process},"type":"{kind}","f":"{f}","lock":"l0","later":null}}"#
    )
}

/// The parameters of [`line`].
type ShortLine<'a> = (u64, u32, &'a str, &'a str);

fn lines(of: &[ShortLine<'_>]) -> Result<History, String> {
    let each = of.iter().copied();
    let each = each.map(|(time, process, kind, f)| line(time, process, kind, f));
    own(&Vec::from_iter(each))
}

#[test]
fn a_history_that_is_not_well_formed_is_refused_with_its_line() {
    let called = (1, 3, "invoke", "acquire");
    let cases: [(&[ShortLine<'_>], &str); 6] = [
        (
            &[called, (2, 3, "invoke", "release")],
            "its acquire of event 1 has no reply",
        ),
        (&[(1, 3, "ok", "acquire")], "reply to acquire without a call"),
        (
            &[called, (2, 3, "ok", "release")],
            "and its open call is the acquire of event 1",
        ),
        (
            &[(5, 3, "invoke", "acquire"), (4, 3, "ok", "acquire")],
            "time goes backwards for process 3",
        ),
        (
            &[called, (2, 3, "info", "acquire"), (3, 3, "invoke", "acquire")],
            "acts after the unknown outcome of event 2",
        ),
        (
            &[(1, 3, "signal", "died"), (2, 3, "invoke", "acquire")],
            "acts after it died",
        ),
    ];
    for (of, part) in cases {
        let start = format!("line {}: the history is not well formed", of.len() + 1);
        refused(lines(of), &start, part);
    }
}

#[test]
fn time_that_goes_backwards_between_processes_is_counted() {
    let history = lines(&[(5, 3, "invoke", "acquire"), (4, 4, "invoke", "acquire")]).unwrap();
    assert_eq!(history.time_inversions(), 1);
}

#[test]
fn a_signal_may_be_older_than_the_lines_above_it() {
    let of = [
        (1, 3, "invoke", "acquire"),
        (5, 3, "ok", "acquire"),
        (9, 4, "invoke", "acquire"),
        (7, 3, "signal", "lost"),
    ];
    let history = lines(&of).unwrap();
    assert_eq!(history.time_inversions(), 0);
    let holds = history.certain_holds();
    assert_eq!((holds[0].from_ns, holds[0].to_ns), (5, 7));
}

#[test]
fn a_torn_last_line_makes_a_partial_history_at_every_length() {
    let last = line(2, 3, "ok", "acquire");
    let first = line(1, 3, "invoke", "acquire");
    for cut in 1..last.len() {
        let history = read(&format!("{HEADER}\n{first}\n{}", &last[..cut])).unwrap();
        assert_eq!((history.len(), history.partial().is_some()), (1, true), "cut at {cut}");
    }
    let whole = read(&format!("{HEADER}\n{first}\n{last}")).unwrap();
    assert_eq!((whole.len(), whole.partial()), (2, None));
}

/// A hold as its client records it: type and f.
const HOLD: [(&str, &str); 4] = [
    ("invoke", "acquire"),
    ("ok", "acquire"),
    ("invoke", "release"),
    ("ok", "release"),
];

/// Returns holds of four processes in turn, one line each event; some have names and texts that differ from line to line.
fn many_lines(events: u64) -> Vec<String> {
    let event = |at: u64| {
        let (process, time) = (at / 4 % 4, at * 10);
        let (kind, f) = HOLD[at as usize % 4];
        format!(
            "{{\"index\":{},\"time\":{time},\"process\":{process},\"type\":\"{kind}\",\"f\":\"{f}\",\"lock\":\"l{}\",\
             \"owner\":\"é{at}\",\"token\":{}}}",
            at + 1,
            at / 16 % 3,
            at / 4
        )
    };
    (0..events).map(event).collect()
}

#[test]
fn a_history_of_many_blocks_is_the_events_in_order() {
    let lines = many_lines(20_000);
    let whole = own(&lines).unwrap();
    assert_eq!(whole.len(), lines.len());
    let mut builder = HistoryBuilder::new(whole.header().clone());
    for (at, line) in lines.iter().enumerate() {
        let one = own(&[line]).or_else(|_| own(&[&lines[at - 1], line])).unwrap();
        let entry = one.entry(one.len() - 1);
        builder.push(&entry).unwrap();
    }
    assert!(builder.finish().entries().eq(whole.entries()));
    assert_eq!(whole.locks().collect::<Vec<_>>(), ["l0", "l1", "l2"]);
}

#[test]
fn a_history_is_decided_as_its_properties_one_by_one() {
    // those of a large one are decided in parallel
    for events in [4, 100_004] {
        let history = own(&many_lines(events)).unwrap();
        let options = Options::still();
        let found = check(&history, &options);
        assert_eq!(found.of(Property::MUTUAL_EXCLUSION).verdict, Verdict::Holds);
        for (property, finding) in Property::ALL.iter().zip(&found.findings) {
            assert_eq!(check_property(&history, &options, *property), *finding);
        }
    }
}

#[test]
fn errors_name_their_line_in_every_block() {
    let lines = many_lines(20_000);
    for at in [0, 1_500, 7_777, 19_998] {
        let mut broken = lines.clone();
        broken[at] = broken[at].replace("\"time\"", "\"time");
        broken.insert(at, "  ".to_owned());
        refused(own(&broken), &format!("line {}, column", at + 3), "");
        broken[at + 1] = lines[at]
            .replace("l0", "l1")
            .replace("l2", "l1")
            .replace("\"process\":", "\"process\":7");
        let found = own(&broken);
        // a reply of a process that called nothing
        if at % 4 == 1 || at % 4 == 3 {
            refused(found, &format!("line {}: the history", at + 3), "");
        }
    }
    let mut torn = lines;
    torn.last_mut().unwrap().truncate(9);
    let history = own(&torn).unwrap();
    assert_eq!(history.partial(), Some("the last line, 20001, is torn"));
}

#[test]
#[cfg(all(feature = "gzip", feature = "zstd"))]
fn compressed_histories_are_read_as_they_are() {
    use std::io::Write as _;
    let text = format!("{HEADER}\n{}\n", many_lines(20_000).join("\n"));
    let plain = read(&text).unwrap();
    let zstd = zstd::encode_all(text.as_bytes(), 1).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(text.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    for compressed in [&zstd, &gzip] {
        assert!(read_bytes(compressed).unwrap().entries().eq(plain.entries()));
        let input = BufReader::with_capacity(1, compressed.as_slice());
        let in_parts = History::read(input, &ReadOptions::default()).unwrap();
        assert!(in_parts.entries().eq(plain.entries()));
        let cut = &compressed[..compressed.len() / 2];
        assert!(read_bytes(cut).is_err(), "cut in the midst");
    }
}

#[test]
#[cfg(not(any(feature = "gzip", feature = "zstd")))]
fn compressed_histories_are_refused_by_name() {
    for (start, name) in [(&[0x1f, 0x8b, 8][..], "gzip"), (&[0x28, 0xb5, 0x2f, 0xfd], "zstd")] {
        let error = read_bytes(start).expect_err(name);
        assert!(error.contains(name) && error.contains("feature"), "{error}");
    }
}

#[test]
fn what_is_no_utf_8_names_its_line() {
    let header = format!("{HEADER}\n{}\n", line(1, 3, "invoke", "acquire"));
    let read = |rest: &[u8]| read_bytes(&[header.as_bytes(), rest].concat());
    for rest in [
        &b"\xff\n\n{}\n"[..],
        b" \xff\n{}",
        b"{\"a\":\"\xff\"}\n{}",
        b"{}\xff\n{}",
    ] {
        refused(read(rest), "line 3, column", "UTF-8");
    }
    assert!(
        read(b"{\"a\":\"\xc3").unwrap().partial().is_some(),
        "cut in the midst of a letter"
    );
}

#[test]
fn a_broken_line_in_the_midst_names_itself() {
    for (broken, place, part) in [
        (r#"{"index":2,"time" 5}"#, "column 19: found `5}`", "expected `:`"),
        (r#"{"index":2,"#, "column 12: found the end of the line", "JSON"),
        (r#"{"index":02}"#, "column", "invalid number"),
        ("[1]", "column 1: found `[1]`", "an object"),
    ] {
        let first = line(1, 3, "invoke", "acquire");
        let found = own(&[&first, broken, &line(3, 3, "ok", "acquire")]);
        refused(found, &format!("line 3, {place}"), part);
    }
}

#[test]
fn an_unknown_word_names_its_line_and_what_is_known() {
    let found = own(&[&line(1, 3, "invoke", "grab")]);
    refused(found, "line 2: found the f `grab`", "expected one of acquire, release");
    refused(own(&[&line(1, 3, "maybe", "acquire")]), "line 2", "the type `maybe`");
    let error = read("{\"format\":\"harness-history\",\"version\":2}\n").expect_err("no such version");
    assert!(error.contains("version 2, expected version 1"), "{error}");
    assert!(read("").expect_err("nothing").contains("empty"));
}

#[test]
fn a_history_with_phases_and_no_end_is_partial() {
    let phase = |name: &str| {
        format!(r#"{{"index":1,"time":1,"process":"nemesis","type":"info","f":"phase","phase":"{name}"}}"#)
    };
    assert!(own(&[&phase("control")]).unwrap().partial().is_some());
    let whole = own(&[&phase("control"), &phase("end")]).unwrap();
    assert_eq!(whole.partial(), None);
    assert_eq!(whole.phases().len(), 2);
}

#[test]
fn fault_windows_keep_their_raw_fields() {
    let start = r#"{"index":1,"time":5,"process":"nemesis","type":"info","f":"partition","window":1,"phase":"start","cut":["c3->n1"]}"#;
    let heal = r#"{"index":2,"time":9,"process":"nemesis","type":"info","f":"partition","window":1,"phase":"heal","evidence":{"bytes_held":7}}"#;
    let history = own(&[start, heal]).unwrap();
    let windows = history.windows();
    assert_eq!(windows.len(), 1);
    assert_eq!(
        (windows[0].number, windows[0].start_ns, windows[0].heal_ns),
        (1, 5, Some(9))
    );
    assert!(windows[0].names_client(3) && !windows[0].names_client(33));
    let healed = windows[0].healed.as_ref().unwrap();
    assert_eq!(healed.evidence.get("bytes_held"), 7);
}

#[test]
fn lines_of_the_nemesis_may_go_back_in_time() {
    let start = r#"{"index":1,"time":9,"process":"nemesis","type":"info","f":"partition","window":1,"phase":"start"}"#;
    let heal = r#"{"index":2,"time":5,"process":"nemesis","type":"info","f":"partition","window":1,"phase":"heal","evidence":{"dropped_packets":7}}"#;
    let silent = r#"{"index":3,"time":9,"process":"nemesis","type":"info","f":"roles","phase":"seen","roles":{"n1":"not serving"}}"#;
    let serves =
        r#"{"index":4,"time":5,"process":"nemesis","type":"info","f":"roles","phase":"seen","roles":{"n1":"master"}}"#;
    let (acquire, acquired) = (line(10, 3, "invoke", "acquire"), line(11, 3, "ok", "acquire"));
    let (release, released) = (line(12, 3, "invoke", "release"), line(13, 3, "ok", "release"));
    let history = own(&[start, heal, &acquire, &acquired, &release, &released]).unwrap();
    assert_eq!(verdict(&history, Property::Hl001), Verdict::Holds);
    let stood = own(&[silent, serves]).unwrap().standstills();
    assert!(stood[0].in_words().contains("for 0.0s") && !stood[0].is_longer_than(0));
}

const EDN: &str = r#"
{:type :info, :f :start, :process :nemesis, :value nil, :time 1}
{:type :invoke, :f :acquire, :value nil, :process 0, :time 5, :index 1, :unknown #{1 2}}
#jepsen.history.Op{:type :ok, :f :acquire, :value nil, :process 0, :time 6, :index 2}
{:type :invoke, :f :acquire, :process 1, :time 4, :index 3} ; time goes back
{:type :info, :f :acquire, :process 1, :time 8, :index 4, :error :timeout}
{:type :invoke, :f :release, :process 0, :time 9, :index 5}
{:type :fail, :f :release, :process 0, :time 9, :index 6, :error [:not-held "x"]}
"#;

#[test]
fn a_history_of_jepsens_is_read_one_map_a_line() {
    let history = read(EDN).unwrap();
    assert_eq!(
        (history.len(), history.counts().operations, history.time_inversions()),
        (7, 3, 1)
    );
    assert_eq!(history.entry(6).error, Some("not-held"));
    assert_eq!(history.windows().len(), 1);
}

#[test]
fn a_vector_of_maps_is_the_same_history() {
    let vector = read(&format!("[{EDN}]")).unwrap();
    let lines = read(EDN).unwrap();
    assert!(vector.entries().eq(lines.entries()));
    assert_eq!(vector.partial(), None);
    assert!(read(&format!("[{EDN}")).unwrap().partial().is_some());
}

#[test]
fn json_of_jepsens_may_have_fields_on_lines_of_their_own() {
    let vector = "[\n  {\n    \"type\": \"invoke\",\n    \"f\": \"acquire\",\n    \"process\": 0,\n    \"value\": null\n  },\n  {\n    \"type\": \"ok\", \"f\": \"acquire\", \"process\": 0\n  },\n  {\n    \"type\": \"info\", \"f\": \"start\", \"process\": \"nemesis\"\n  }\n]\n";
    let history = read(vector).unwrap();
    assert_eq!((history.len(), history.counts().acquires_ok), (3, 1));
    let objects = vector
        .trim_matches(|bracket| "[]\n".contains(bracket))
        .replace("},", "}");
    assert_eq!(read(&objects).unwrap().counts().acquires_ok, 1);
    assert!(read("{\n \"format\": \"harness-history\"\n}").is_err());
}

#[test]
fn a_format_is_recognised_however_small_the_parts_are() {
    let own = format!("\u{feff}{HEADER}\n{}\n", line(1, 3, "invoke", "acquire"));
    let json = r#"{"process":0,"type":"invoke","f":"acquire"}"#;
    for text in [own.as_str(), EDN, &format!("[{EDN}]"), json, &format!("[\n{json}]")] {
        let at_once = read(text).unwrap();
        for bytes in [1, 3, 40] {
            let input = BufReader::with_capacity(bytes, text.as_bytes());
            let in_parts = History::read(input, &ReadOptions::default()).unwrap();
            assert!(in_parts.entries().eq(at_once.entries()), "{bytes} bytes: {text}");
        }
    }
}

#[test]
fn times_since_1970_are_read() {
    let now = 1_764_000_000_000_000_000;
    let history = lines(&[(now, 3, "invoke", "acquire"), (now + 5, 3, "ok", "acquire")]).unwrap();
    assert_eq!(history.end_ns(), now + 5);
    assert_eq!(verdict(&history, Property::Hl001), Verdict::Holds);
    assert!(
        lines(&[(u64::MAX / 2, 3, "invoke", "acquire")])
            .unwrap_err()
            .contains("146 years")
    );
}

#[test]
fn an_unknown_model_of_a_header_is_named() {
    let acquired = line(1, 3, "invoke", "acquire") + "\n" + &line(2, 3, "ok", "acquire");
    let notes = |model: &str, options: &Options| {
        let header = HEADER.replace("\"locks\"", &format!("\"model\":\"{model}\",\"locks\""));
        check(&read(&format!("{header}\n{acquired}\n")).unwrap(), options).notes
    };
    let told = notes("chubby", &Options::default());
    assert!(
        told.len() == 1 && told[0].contains("`chubby`") && told[0].contains("owner-mutex"),
        "{told:?}"
    );
    assert!(notes("mutex", &Options::default()).is_empty());
    assert!(notes("chubby", &by(Model::Fenced)).is_empty());
}

#[test]
fn what_a_foreign_recording_cannot_show_does_not_apply() {
    let verdicts = |text: &str, model: Model| {
        let found = check(&read(text).unwrap(), &by(model));
        (found.of(Property::Hl005).verdict, found.verdict())
    };
    let register = "{:type :invoke, :f :write, :value 1, :process 0}\n{:type :ok, :f :write, :value 1, :process 0}";
    assert_eq!(
        verdicts(register, Model::Register { start: None }),
        (Verdict::NotApplicable, Verdict::Holds)
    );
    let lock = "{:type :invoke, :f :acquire, :process 0}\n{:type :info, :f :start, :process :nemesis}\n\
                {:type :ok, :f :acquire, :process 0}";
    assert_eq!(verdicts(lock, Model::Mutex), (Verdict::NotApplicable, Verdict::Holds));
}

/// A lock that no client acquires for 17 seconds, and faults by names of Jepsen's.
#[test]
fn an_action_of_the_nemesis_is_an_excuse_until_another_one_ends_it() {
    let of = |seconds: u64, process: &str, kind: &str, f: &str| {
        format!(
            "{{:process {process}, :type :{kind}, :f :{f}, :time {}}}",
            seconds * 1_000_000_000
        )
    };
    for (faults, expected) in [
        ([None, None], Verdict::Violated),
        ([Some("pause"), Some("resume")], Verdict::Holds),
        ([Some("kill"), Some("start")], Verdict::Holds),
        ([Some("start-partition"), Some("stop-partition")], Verdict::Holds),
        ([Some("bump-clock"), Some("reset-clock")], Verdict::Holds),
        ([Some("cut-the-power"), None], Verdict::NotApplicable),
    ] {
        let mut lines = vec![of(0, "0", "invoke", "acquire"), of(1, "0", "ok", "acquire")];
        lines.extend([of(2, "0", "invoke", "release"), of(2, "0", "ok", "release")]);
        let [begun, ended] = faults;
        let both_lines = |seconds: u64, action: &str| vec![of(seconds, ":nemesis", "info", action); 2];
        lines.extend(begun.into_iter().flat_map(|action| both_lines(3, action)));
        lines.push(of(4, "1", "invoke", "acquire"));
        lines.extend(ended.into_iter().flat_map(|action| both_lines(20, action)));
        lines.push(of(21, "1", "ok", "acquire"));
        let history = read(&lines.join("\n")).unwrap();
        let found = check(&history, &Options::default());
        let progress = found.of(Property::Hl005);
        assert_eq!(progress.verdict, expected, "{faults:?}");
        let names_it = progress.evidence.contains("`cut-the-power` (event 4)");
        assert_eq!(names_it, expected == Verdict::NotApplicable, "{}", progress.evidence);
    }
}

/// The final actions of a test come whether or not their faults are active.
#[test]
fn an_action_of_the_nemesis_ends_no_other_fault() {
    for (actions, windows) in [
        (
            "pause resume kill resume start start",
            vec![("pause", 0, Some(1)), ("kill", 2, Some(4))],
        ),
        (
            "check-clock-offsets bump-clock strobe-clock kill reset-clock reset-clock start",
            vec![("bump-clock", 1, Some(4)), ("kill", 3, Some(6))],
        ),
        (
            "start-partition stop-partition kill stop-partition start",
            vec![("partition", 0, Some(1)), ("kill", 2, Some(4))],
        ),
        ("start stop kill stop", vec![("fault", 0, Some(1)), ("kill", 2, None)]),
        ("kill reset-clock", vec![("kill", 0, None)]),
        ("hammer-time resume", vec![("hammer-time", 0, Some(1))]),
    ] {
        let lines = actions.split(' ').enumerate().flat_map(|(time, action)| {
            vec![format!("{{:process :nemesis, :type :info, :f :{action}, :time {time}}}"); 2]
        });
        let history = read(&Vec::from_iter(lines).join("\n")).unwrap();
        let found = history.windows();
        let found = found
            .iter()
            .map(|window| (window.fault.as_str(), window.start_ns, window.heal_ns));
        assert_eq!(Vec::from_iter(found), windows, "{actions}");
    }
}

#[test]
fn independent_keys_and_named_fields_name_the_lock() {
    let keyed = "{:type :invoke, :f :acquire, :process 0, :value [7 nil]}\n{:type :invoke, :f :acquire, :process 1, :value [:b nil]}";
    let names = |history: &History| history.locks().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(names(&read(keyed).unwrap()), ["7", "b"]);
    let field = "{:type :invoke, :f :acquire, :process 0, :name \"m\", :value 3}";
    for (key, lock) in [("name", "m"), ("value", "3")] {
        let options = ReadOptions {
            lock_key: Some(key.into()),
            ..ReadOptions::default()
        };
        assert_eq!(names(&History::read(field.as_bytes(), &options).unwrap()), [lock]);
    }
}

#[test]
fn a_malformed_map_names_its_line() {
    let odd = "{:type :invoke, :f :acquire, :process 0}\n{:type :invoke, :f :acquire, :process}\n";
    refused(read(odd), "line 2, column", "");
    let found = read("{:type :invoke, :f :explode, :process 0}");
    refused(found, "line 1: found the f `explode`", "expected one of :acquire");
    let error = read(r#"{"type":"invoke","f":"acquire","process":"w1"}"#).expect_err("a client with a name");
    assert_eq!(error, "line 1: found the process `w1`, expected a number");
    let called = "{:type :invoke, :f :start, :process :nemesis}\n{:type :info, :f :start, :process :nemesis}\n";
    assert_eq!(read(called).expect("lines of the nemesis").windows().len(), 1);
}

#[test]
fn jepsens_register_histories_are_searched() {
    let good = "{:type :invoke, :f :write, :process 0, :value 3}\n{:type :invoke, :f :cas, :process 1, :value [3 4]}\n\
        {:type :ok, :f :cas, :process 1, :value [3 4]}\n{:type :info, :f :write, :process 0, :value 3}\n\
        {:type :invoke, :f :read, :process 2, :value nil}\n{:type :ok, :f :read, :process 2, :value 4}\n";
    let answer = |text: &str| {
        check(&read(text).unwrap(), &Options::default())
            .of(Property::Hl002)
            .clone()
    };
    assert_eq!(answer(good).verdict, Verdict::Holds);
    let bad = answer(&good.replace(":value 4}\n", ":value 5}\n"));
    assert_eq!(bad.verdict, Verdict::Violated);
    assert_eq!(
        bad.violations[0].events.len(),
        6,
        "without the others the read may be of the value at the start: {:?}",
        bad.violations[0].events
    );
}

#[test]
fn values_of_registers_are_whatever_is_written() {
    let of = |written: &str, read_back: &str| {
        let text = format!(
            "{{:type :invoke, :f :write, :process 0, :value {written}}}\n{{:type :ok, :f :write, :process 0, :value {written}}}\n\
             {{:type :invoke, :f :read, :process 1, :value nil}}\n{{:type :ok, :f :read, :process 1, :value {read_back}}}\n"
        );
        let history = read(&text).unwrap();
        let mut edn = Vec::new();
        write_edn(&history, &mut edn).unwrap();
        let again = read_bytes(&edn).unwrap();
        let verdicts = [history, again].map(|history| verdict(&history, Property::Hl002));
        assert_eq!(verdicts[0], verdicts[1], "exported: {written} {read_back}");
        verdicts[0]
    };
    let values = [
        "3",
        "-3",
        "3.5",
        "\"a\"",
        "true",
        "[1 2 3]",
        "99999999999999999999",
        "\\a",
        "{:a 1}",
    ];
    for written in values {
        for read_back in values {
            let holds = written == read_back;
            assert_eq!(of(written, read_back) == Verdict::Holds, holds, "{written} {read_back}");
        }
    }
    assert_eq!(of(":a", "\"a\""), Verdict::Holds, "JSON has strings for keywords");
}

#[test]
fn sentences_have_the_values_of_the_file() {
    let text = "{:type :invoke, :f :write, :process 0, :value -3}\n{:type :ok, :f :write, :process 0, :value -3}\n\
                {:type :invoke, :f :read, :process 1, :value nil}\n{:type :ok, :f :read, :process 1, :value -5}\n";
    let found = check(&read(text).unwrap(), &Options::default());
    let because = &found.of(Property::LINEARIZABLE).violations[0].because;
    let told: Vec<&str> = because.iter().map(|because| because.text.as_str()).collect();
    assert!(told.join(" ").contains("wrote -3. After it `lock` is -3."), "{told:?}");
    assert!(
        told.join(" ").contains("read -5, which is impossible then."),
        "{told:?}"
    );
}

#[test]
fn a_register_that_is_written_nothing_is_refused() {
    for (f, value) in [("write", "nil"), ("cas", "[nil 3]"), ("cas", "3")] {
        let found = read(&format!("{{:type :invoke, :f :{f}, :process 0, :value {value}}}"));
        refused(found, "line 1: found a ", "");
    }
}

#[test]
fn the_initial_value_is_read_as_the_values_are() {
    let text = "{:type :invoke, :f :read, :process 0, :value nil}\n{:type :ok, :f :read, :process 0, :value -1}\n";
    let options = ReadOptions {
        initial: Some("-1".into()),
        ..ReadOptions::default()
    };
    let history = History::read(text.as_bytes(), &options).unwrap();
    assert_eq!(history.initial_value(), history.entry(1).value);
    assert_eq!(verdict(&history, Property::LINEARIZABLE), Verdict::Holds);
    let other = History::read(text.replace("-1", "-2").as_bytes(), &options).unwrap();
    assert_eq!(verdict(&other, Property::LINEARIZABLE), Verdict::Violated);
    assert_eq!(
        history
            .initial_value()
            .map(|value| history.value_text(value))
            .as_deref(),
        Some("-1")
    );
    let options = ReadOptions {
        initial: Some("(".into()),
        ..ReadOptions::default()
    };
    assert!(History::read(text.as_bytes(), &options).is_err());
}

/// Returns the history of Jepsen lines about one lock: process, type, f.
fn jepsen(of: &[(u32, &str, &str)]) -> History {
    let line = |(process, kind, f)| format!("{{:type :{kind}, :f :{f}, :process {process}}}\n");
    let text: String = of.iter().copied().map(line).collect();
    read(&text).unwrap()
}

#[test]
fn a_hold_is_known_until_its_last_renewal() {
    let locked = [(0, "invoke", "lock"), (0, "ok", "lock")];
    let by_another = [(1, "invoke", "lock"), (1, "ok", "lock")];
    let renewed = |answer| [(0, "invoke", "refresh"), (0, answer, "refresh")];
    let hl001 = |parts: &[&[(u32, &'static str, &'static str)]]| {
        let found = check(&jepsen(&parts.concat()), &Options::default());
        let said = found.notes.iter().any(|note| note.contains("renew leases"));
        let renews = parts.concat().iter().any(|(_, _, f)| *f == "refresh");
        assert_eq!(said, renews, "{:?}", found.notes);
        found.of(Property::Hl001).verdict
    };
    assert_eq!(hl001(&[&locked, &by_another]), Verdict::Violated, "nobody renews");
    for answer in ["ok", "fail", "info"] {
        let before = hl001(&[&locked, &renewed(answer), &by_another]);
        assert_eq!(before, Verdict::Holds, "a lease may end after {answer}");
        let released = [(1, "invoke", "unlock"), (1, "ok", "unlock")];
        let after = hl001(&[&locked, &by_another, &released, &renewed(answer)]);
        let expected = if answer == "ok" {
            Verdict::Violated
        } else {
            Verdict::Holds
        };
        assert_eq!(after, expected, "{answer}");
    }
    let both = [(1, "invoke", "refresh"), (1, "ok", "refresh")];
    let overlap = [&locked[..], &by_another, &both, &renewed("ok")];
    assert_eq!(hl001(&overlap), Verdict::Violated);
    let found = check(&jepsen(&overlap.concat()), &Options::default());
    let words = serde_json::to_string(found.of(Property::Hl001)).unwrap();
    assert!(
        words.contains("of its last renewal") && !words.contains("told of"),
        "{words}"
    );
    assert_eq!(hl001(&[&locked, &by_another, &both, &renewed("fail")]), Verdict::Holds);
    let unlocked = [(0, "invoke", "unlock"), (0, "ok", "unlock")];
    assert_eq!(hl001(&[&locked, &by_another, &both, &unlocked]), Verdict::Violated);
}

/// Recordings of TimeLock answer every request with `ok`, and have the outcome in its value.
#[test]
fn an_answer_without_a_token_or_of_false_is_a_refusal() {
    let text = |of: &[(u32, &str, &str, &str)]| {
        let line = |(process, kind, f, value): &(u32, &str, &str, &str)| {
            format!(r#"{{"type":"{kind}","f":"{f}","value":"{value}","process":{process}}}"#)
        };
        let lines: Vec<String> = of.iter().map(line).collect();
        format!("[{}]", lines.join(","))
    };
    let of = [
        (0, "invoke", "lock", "a"),
        (0, "ok", "lock", "token 1"),
        (1, "invoke", "unlock", "a"),
        (1, "ok", "unlock", "false"),
        (1, "invoke", "lock", "b"),
        (1, "ok", "lock", ""),
        (1, "invoke", "refresh", "b"),
        (1, "ok", "refresh", ""),
        (0, "invoke", "refresh", "a"),
        (0, "ok", "refresh", "token 1"),
        (0, "invoke", "lock", "b"),
        (0, "ok", "lock", "token 2"),
        (0, "invoke", "refresh", "a"),
        (0, "ok", "refresh", "token 1"),
        (1, "invoke", "lock", "a"),
        (1, "ok", "lock", "token 3"),
        (0, "invoke", "unlock", "b"),
        (0, "ok", "unlock", "true"),
    ];
    let verdicts = |text: &str| {
        let history = read(text).unwrap();
        [Property::Hl001, Property::Hl002].map(|property| verdict(&history, property))
    };
    let history = read(&text(&of)).unwrap();
    let refused = history.entries().filter(|entry| entry.kind == Kind::Fail).count();
    assert_eq!(refused, 2, "an unlock and a lock");
    assert_eq!(verdicts(&text(&of)), [Verdict::Holds; 2]);
    let last = (0, "invoke", "refresh", "a");
    let renewed = [&of[..], &[last, (0, "ok", "refresh", "token 1")]].concat();
    let verdict = verdicts(&text(&renewed))[0];
    assert_eq!(verdict, Verdict::Violated, "it was granted while the first one held it");
    // an empty answer is no evidence if the call named no lock
    let unnamed = text(&[(0, "invoke", "lock", ""), (0, "ok", "lock", "")])
        .replace(r#""value":"","process":0},"#, r#""process":0},"#);
    assert_eq!(read(&unnamed).unwrap().entry(1).kind, Kind::Ok, "{unnamed}");
}

#[test]
fn what_is_exported_is_read_again_with_the_same_answers() {
    for name in [
        "hl001_stale_holder",
        "hl004_herd",
        "hl005_ghost",
        "hl007_foreign_release",
    ] {
        let history = golden(name);
        let mut edn = Vec::new();
        write_edn(&history, &mut edn).unwrap();
        let again = read_bytes(&edn).unwrap_or_else(|error| panic!("{name}: {error}"));
        let plain = |entry: Entry<'_>| essentials(&entry);
        assert!(again.entries().map(plain).eq(history.entries().map(plain)), "{name}");
        assert_eq!(again.windows(), history.windows(), "{name}");
        assert_eq!(again.partial(), history.partial(), "{name}");
        for property in [Property::Hl001, Property::Hl002, Property::Hl007] {
            let verdicts = [&again, &history].map(|history| verdict(history, property));
            assert_eq!(verdicts[0], verdicts[1], "{name} {}", property.id());
        }
    }
}

#[test]
fn both_readings_of_a_failed_release_are_decided_and_named() {
    let of = [
        (1, 3, "invoke", "acquire"),
        (2, 3, "ok", "acquire"),
        (3, 3, "invoke", "release"),
        (4, 3, "fail", "release"),
        (5, 4, "invoke", "acquire"),
        (6, 4, "ok", "acquire"),
    ];
    let history = lines(&of).unwrap();
    let ours = check(&history, &Options::default());
    assert_eq!(ours.of(Property::Hl002).verdict, Verdict::Holds);
    let note = ours
        .notes
        .iter()
        .find(|note| note.contains("two readings"))
        .expect("the difference is named");
    assert!(note.contains("events 4"), "{note}");
    let strict = check(&history, &by(Model::Mutex));
    assert_eq!(strict.of(Property::Hl002).verdict, Verdict::Violated);
    let note = strict.notes.iter().find(|note| note.contains("two readings"));
    assert!(note.is_some_and(|note| note.contains("events 4")), "{:?}", strict.notes);
}

#[test]
fn a_release_by_another_is_named_where_only_the_plain_mutex_allows_it() {
    let of = [
        (1, 3, "invoke", "acquire"),
        (2, 3, "ok", "acquire"),
        (3, 4, "invoke", "release"),
        (4, 4, "ok", "release"),
    ];
    let found = check(&lines(&of).unwrap(), &Options::default());
    assert_eq!(found.of(Property::Hl002).verdict, Verdict::Violated);
    let note = found.notes.iter().find(|note| note.contains("two readings"));
    assert!(
        note.is_some_and(|note| note.contains("operations: events 3")),
        "{:?}",
        found.notes
    );
}

#[test]
fn a_correct_lock_holds_at_every_resolution_of_its_clock() {
    let header = r#"{"format":"harness-history","version":1,"model":"read-write","locks":["l0"]}"#;
    for grain in [1, 10, 100, 1_000, 100_000] {
        let mut lines = vec![header.to_owned()];
        for (round, first) in (0..400u64).map(|round| (round, round * 20)) {
            let (reads, client) = (round % 3 > 0, round % 8);
            let mode = if reads { r#","mode":"read""# } else { "" };
            for (step, (kind, f)) in HOLD.into_iter().enumerate() {
                let (index, time) = (first + step as u64, (first + step as u64 * 5) / grain * grain);
                lines.push(format!(
                    r#"{{"index":{index},"time":{time},"process":{client},"type":"{kind}","f":"{f}","lock":"l0"{mode}}}"#
                ));
            }
        }
        let history = read(&lines.join("\n")).unwrap();
        for property in [Property::Hl001, Property::Hl002] {
            assert_eq!(verdict(&history, property), Verdict::Holds, "{grain}");
        }
    }
}

#[test]
fn escaped_characters_are_the_characters() {
    let json = r#"{"type":"invoke","f":"acquire","process":0,"value":"\u0041\u00e9\b\f\n"}"#;
    let locks = |json: &str| Vec::from_iter(read(json).unwrap().locks().map(str::to_owned));
    assert_eq!(locks(json), ["Aé\u{8}\u{c}\n"]);
    // two of its escapes are one character, and a half alone is none
    assert_eq!(
        locks(&json.replace(r"\n", r"\ud83d\ude00\ud83d")),
        ["Aé\u{8}\u{c}😀\u{fffd}"]
    );
    let torn = r#"{"type":"invoke","f":"acquire","process":0,"value":"\u00g1"}"#;
    assert!(read(torn).expect_err("no digit").contains("four hexadecimal digits"));
}

#[test]
fn a_string_is_too_long_with_escapes_and_without() {
    for letter in ["a", r"\n", r"\u0041"] {
        let json = |letters: usize| {
            let value = letter.repeat(letters);
            format!(r#"{{"type":"invoke","f":"acquire","process":0,"value":"{value}"}}"#)
        };
        read(&json(1 << 20)).expect("a long one");
        let error = read(&json((1 << 20) + 1)).expect_err("a longer one");
        assert!(error.contains("a shorter string"), "{letter}: {error}");
    }
}

/// A lock that is correct for long, and then granted twice.
#[test]
fn the_proof_is_small_however_long_the_history_was() {
    let mut of = Vec::new();
    for at in (0..60_000).step_by(4) {
        let each = (at + 1..).zip(HOLD);
        of.extend(each.map(|(time, (kind, f))| (time, (at / 4 % 7) as u32, kind, f)));
    }
    for (step, process, kind) in [(1, 8, "invoke"), (2, 8, "ok"), (3, 9, "invoke"), (4, 9, "ok")] {
        of.push((60_000 + step, process, kind, "acquire"));
    }
    let found = check(&lines(&of).unwrap(), &by(Model::Mutex));
    assert_eq!(found.of(Property::Hl002).violations[0].events.len(), 4);
}

#[test]
fn entries_come_back_as_they_were_given() {
    let header = serde_json::from_str(HEADER).unwrap();
    let mut builder = HistoryBuilder::new(header);
    let mut call = Entry::new(1, 10, Process::Client(3), Kind::Invoke, F::Acquire);
    (call.lock, call.wait_ms, call.owner, call.client) = (Some("l0"), Some(5000), Some("s"), Some(3));
    let mut reply = Entry::new(2, 20, Process::Client(3), Kind::Ok, F::Acquire);
    (reply.lock, reply.token, reply.client) = (Some("l0"), Some(u64::MAX), Some(3));
    let mut write = Entry::new(3, 30, Process::Client(3), Kind::Invoke, F::Write);
    (write.lock, write.value, write.client) = (Some("l0"), Some(0), Some(3));
    for entry in [&call, &reply, &write] {
        builder.push(entry).unwrap();
    }
    assert!(builder.push(&write).is_err());
    let history = builder.finish();
    assert_eq!(history.entries().collect::<Vec<_>>(), [call, reply, write]);
}

#[test]
fn the_server_behind_an_acquire_is_kept_and_decides_nothing() {
    let acquire = |node: &str| {
        let call = line(1, 3, "invoke", "acquire");
        let reply = line(2, 3, "ok", "acquire").replace("\"later\":null", node);
        own(&[&call, &reply]).unwrap()
    };
    let known = acquire(r#""node":"n2""#);
    assert_eq!(known.entry(0).node, None);
    assert_eq!(known.entry(1).node, Some("n2"));
    // a field of that name and not ours: it is ignored, and the line is accepted
    for other in [r#""node":7"#, r#""node":null"#, r#""later":1"#] {
        assert_eq!(acquire(other).entry(1).node, None);
    }
    let verdicts = |history: &History| Property::ALL.map(|property| verdict(history, property));
    assert_eq!(verdicts(&known), verdicts(&acquire(r#""later":1"#)));
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_history() {
    let marked = format!("\u{feff}{HEADER}\n{}\n", line(1, 0, "invoke", "acquire"));
    assert_eq!(read(&marked).unwrap().len(), 1);
    EventStream::new(marked.as_bytes()).unwrap();
    assert!(read(&format!("\u{feff}{marked}")).is_err());
}
