//! The generated messages of etcd's API, compared with a new generation from their `.proto` files. `HARNESS_GENERATE=1 cargo nextest run -p
//! harness-workloads --features generate generated` writes it anew, after a change of a `.proto` file or of the compiler's version.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Returns the files of a folder, by name.
fn files(folder: &Path) -> BTreeMap<String, String> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

#[test]
fn the_messages_of_etcd_are_generated_from_its_protos() {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let made = tempfile::tempdir().unwrap();
    let descriptors = protox::compile(["etcd.proto", "lock.proto", "election.proto"], [&protos]).unwrap();
    let mut compiler = prost_build::Config::new();
    compiler.out_dir(made.path()).compile_fds(descriptors).unwrap();

    let kept = protos.join("generated");
    let generated = files(made.path());
    if std::env::var_os("HARNESS_GENERATE").is_some() {
        for (name, text) in &generated {
            fs::write(kept.join(name), text).unwrap();
        }
    }
    let kept = files(&kept);
    // not `assert_eq!`, which would print thousands of lines
    let differ = generated.iter().filter(|&(name, text)| kept.get(name) != Some(text));
    let names: Vec<_> = differ.map(|(name, _)| name).collect();
    assert!(
        names.is_empty(),
        "workloads/proto/generated is older than workloads/proto in {names:?}: run this test with HARNESS_GENERATE=1"
    );
    assert_eq!(
        generated.keys().collect::<Vec<_>>(),
        kept.keys().collect::<Vec<_>>(),
        "workloads/proto/generated has other files"
    );
}
