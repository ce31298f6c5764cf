//! Tests invariants of every history, on random histories.

use harness_checkers::history::event::{Header, Kind, Process};
use harness_checkers::{
    Budget, Clock, Entry, F, History, HistoryBuilder, Mode, Model, Options, Property, ReadOptions, Verdict, check,
    linearizability, write_edn,
};
use proptest::prelude::*;

/// The next events of clients: the client, and a number that decides the event.
type Script = Vec<(usize, u8)>;

fn script() -> impl Strategy<Value = Script> {
    proptest::collection::vec((0usize..4, any::<u8>()), 0..60)
}

struct Client {
    process: u32,
    open: Option<F>,
    holds: bool,
}

/// Plays a script: each step is the next event of one client, well formed by construction.
fn play(script: &Script, registers: bool) -> History {
    let header: Header = serde_json::from_str(r#"{"format":"harness-history","version":1,"locks":["l0"]}"#).unwrap();
    let mut builder = HistoryBuilder::new(header);
    let mut clients: Vec<Client> = (0..4)
        .map(|process| Client {
            process,
            open: None,
            holds: false,
        })
        .collect();
    let mut fresh = 4;
    for (index, (at, what)) in script.iter().enumerate() {
        let client = &mut clients[*at];
        let mut entry = Entry::new(
            index as u64 + 1,
            index as u64 * 10,
            Process::Client(client.process),
            Kind::Invoke,
            F::Acquire,
        );
        entry.lock = Some("l0");
        match client.open.take() {
            None if !registers && client.holds && what % 8 == 0 => {
                (entry.kind, entry.f) = (Kind::Signal, F::Lost);
                client.holds = false;
            }
            None => {
                entry.f = match (registers, what % 3, client.holds) {
                    (true, 0, _) => F::Read,
                    (true, 1, _) => F::Write,
                    (true, _, _) => F::Cas,
                    (false, _, true) => F::Release,
                    (false, ..) => F::Acquire,
                };
                entry.value = matches!(entry.f, F::Write | F::Cas).then_some(u64::from(what / 3 % 3));
                entry.expected = (entry.f == F::Cas).then_some(u64::from(what / 9 % 3));
                client.open = Some(entry.f);
            }
            Some(f) => {
                entry.f = f;
                entry.kind = [Kind::Ok, Kind::Ok, Kind::Ok, Kind::Ok, Kind::Fail, Kind::Info][usize::from(what % 6)];
                entry.error = (entry.kind == Kind::Fail && f == F::Acquire).then_some("busy");
                entry.value = (f == F::Read && entry.kind == Kind::Ok).then_some(u64::from(what / 6 % 3));
                client.holds = f == F::Acquire && entry.kind == Kind::Ok;
                if entry.kind == Kind::Info {
                    *client = Client {
                        process: fresh,
                        open: None,
                        holds: false,
                    };
                    fresh += 1;
                }
            }
        }
        builder.push(&entry).expect("the script is well formed");
    }
    builder.finish()
}

fn judge(history: &History, model: Model, property: Property) -> Verdict {
    let options = Options {
        model: Some(model),
        ..Options::still()
    };
    check(history, &options).of(property).verdict
}

fn is_illegal(history: &History, model: Model) -> bool {
    linearizability::decide(history, &model, Budget::default(), Clock::still()).illegal > 0
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn mutual_exclusion_is_that_no_two_holds_overlap(script in script()) {
        let history = play(&script, false);
        let holds = history.certain_holds();
        let overlap = holds.iter().enumerate().any(|(at, a)| holds[at + 1..].iter().any(|b| {
            // An open hold lasts until after the last event.
            let end = |hold: &harness_checkers::CertainHold<'_>| if hold.end_index.is_none() { u64::MAX } else { hold.to_ns };
            a.process != b.process && a.from_ns.max(b.from_ns) < end(a).min(end(b))
        }));
        let verdict = judge(&history, Model::OwnerMutex, Property::Hl001);
        prop_assert_eq!(verdict == Verdict::Violated, overlap);
        if overlap {
            prop_assert_eq!(judge(&history, Model::OwnerMutex, Property::Hl002), Verdict::Violated);
        }
    }

    #[test]
    fn a_history_goes_out_and_comes_back(script in script(), registers in any::<bool>()) {
        let history = play(&script, registers);
        prop_assume!(!history.is_empty());
        let mut edn = Vec::new();
        write_edn(&history, &mut edn).unwrap();
        let again = History::read(edn.as_slice(), &ReadOptions::default()).expect("our own EDN");
        let plain = |entry: Entry<'_>| (entry.index, entry.process, entry.kind, entry.f, entry.value, entry.expected, entry.mode == Mode::Read);
        prop_assert!(again.entries().map(plain).eq(history.entries().map(plain)));
        let model = if registers { Model::CasRegister { start: None } } else { Model::TryLock };
        prop_assert_eq!(is_illegal(&again, model), is_illegal(&history, model));
    }

    #[test]
    fn what_was_illegal_stays_illegal(script in script(), cut in 0usize..60, which in 0usize..3) {
        // Not the plain mutex: a later loss may explain earlier events.
        let model = [Model::OwnerMutex, Model::Fenced, Model::CasRegister { start: None }][which];
        let history = play(&script, !model.is_lock());
        let prefix = play(&script[..cut.min(script.len())].to_vec(), !model.is_lock());
        if is_illegal(&prefix, model) {
            prop_assert!(is_illegal(&history, model));
        }
    }
}
