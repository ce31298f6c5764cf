//! Measures the time and memory to read and decide a file, and writes such files.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use harness_checkers::history::event::Kind;
use harness_checkers::{F, History, Model, Options, ReadOptions, check, write_edn};

use super::{Case, by_another_process, generate, peak_kib};

/// Prints the table from a file to the verdict: all properties. Limits: 1.2 s on two processors and 300 MB.
pub fn read_table() {
    println!("\n| file of 10,000,020 events | read | decided | in all | processor time | peak of the process |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let exe = std::env::current_exe().expect("this program has a path");
    let folder = exe.parent().expect("a program is in a folder");
    let compressed = cfg!(feature = "zstd").then_some("jsonl.zst");
    for ending in ["jsonl"].into_iter().chain(compressed) {
        let path = folder.join(format!("bench-history.{ending}"));
        let name = path.to_string_lossy().into_owned();
        write(&["5000000".to_owned(), name.clone()]);
        let told = by_another_process(&["read", &name]);
        println!("| {ending} | {} |", told.lines().next().unwrap_or_default());
        std::fs::remove_file(&path).expect("the file can be removed");
    }
}

/// `bench file OPERATIONS PATH`: writes a history, compressed if the path ends in `.zst`.
pub fn write(arguments: &[String]) {
    let operations = arguments[0].parse().expect("a number of operations");
    let case = Case {
        operations,
        clients: 20,
        locks: 4,
        ..Case::default()
    };
    let mut text = String::from(
        "{\"format\":\"harness-history\",\"version\":1,\"run\":\"bench\",\"model\":\"mutex\",\"locks\":[\"l0\",\"l1\",\"l2\",\"l3\"],\
         \"lease_ms\":2000,\"promises\":{\"tokens\":true}}\n",
    );
    let (mut index, mut token) = (0u64, 0u64);
    generate(&case, Model::OwnerMutex, &mut |entry| {
        index += 1;
        let process = entry.process_number().expect("a client");
        let kind = if entry.kind == Kind::Invoke { "invoke" } else { "ok" };
        let (f, lock, time) = (entry.f.name(), entry.lock.expect("a lock"), index * 104_729);
        let _ = write!(
            text,
            "{{\"index\":{index},\"time\":{time},\"process\":{process},\"client\":{process},\"type\":\"{kind}\",\"f\":\"{f}\",\"lock\":\"{lock}\""
        );
        if entry.f == F::Acquire {
            token += u64::from(entry.kind == Kind::Ok);
            let _ = if entry.kind == Kind::Ok {
                write!(text, ",\"token\":{token}")
            } else {
                write!(text, ",\"wait_ms\":5000")
            };
        }
        text.push_str("}\n");
    });
    let file = std::fs::File::create(&arguments[1]).expect("the file can be written");
    write_text(file, text.as_bytes(), arguments[1].ends_with(".zst"));
}

fn write_text(mut file: std::fs::File, text: &[u8], compressed: bool) {
    #[cfg(feature = "zstd")]
    if compressed {
        zstd::stream::copy_encode(text, file, 3).expect("the file can be written");
        return;
    }
    assert!(!compressed, "the feature `zstd` is off");
    file.write_all(text).expect("the file can be written");
}

/// `bench read PATH`: reads a history and decides it.
pub fn read(arguments: &[String]) {
    let started = Instant::now();
    let history = History::open(Path::new(&arguments[0]), &ReadOptions::default()).expect("a history");
    let read = started.elapsed();
    let found = check(&history, &Options::default());
    let total = started.elapsed();
    println!(
        "{:.2} s | {:.2} s | {:.2} s | {:.2} s | {:.0} MB",
        read.as_secs_f64(),
        (total - read).as_secs_f64(),
        total.as_secs_f64(),
        processor_seconds(),
        peak_kib() as f64 / 1024.0,
    );
    println!("{} events: {:?}", history.len(), found.verdict());
    for finding in &found.findings {
        println!(
            "  {} {:>9}us {:?}: {}",
            finding.property.id(),
            finding.check_us,
            finding.verdict,
            finding.evidence
        );
    }
}

/// `bench edn PATH PATH`: writes a history as EDN.
pub fn write_as_edn(arguments: &[String]) {
    let history = History::open(Path::new(&arguments[0]), &ReadOptions::default()).expect("a history");
    let mut out = std::io::BufWriter::new(std::fs::File::create(&arguments[1]).expect("the file can be written"));
    write_edn(&history, &mut out).expect("the file can be written");
}

/// Returns the processor time of this process, by proc(5): in ticks of which there are a hundred a second.
pub fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}
