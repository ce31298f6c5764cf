//! Tests of explanations and drawings for a caller's own models, whose states are texts, searched key by key.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::done;
use super::golden::golden;
use harness_checkers::linearizability::{
    Explanation, Operation, Searched, SequentialSpec, explain, search, search_by_key,
};
use harness_checkers::{
    Budget, Clock, History, Model, Options, OrderDrawing, Property, ReadOptions, check, draw_as_text,
};

#[derive(Debug, Clone)]
enum TextOp {
    Put(&'static str, &'static str),
    Append(&'static str, &'static str),
    Get(&'static str, &'static str),
}

/// A store of texts, as Porcupine's tests have one.
struct TextStore;

impl SequentialSpec for TextStore {
    type Op = TextOp;
    type State = BTreeMap<String, String>;

    fn initial(&self) -> Self::State {
        BTreeMap::new()
    }

    fn step(&self, mut state: Self::State, op: &TextOp) -> Option<Self::State> {
        match op {
            TextOp::Put(key, value) => drop(state.insert((*key).to_owned(), (*value).to_owned())),
            TextOp::Append(key, value) => state.entry((*key).to_owned()).or_default().push_str(value),
            TextOp::Get(key, value) => {
                let found = state.get(*key).map_or("", String::as_str);
                return (found == *value).then_some(state);
            }
        }
        Some(state)
    }
}

fn key(op: &TextOp) -> &'static str {
    match op {
        TextOp::Put(key, _) | TextOp::Append(key, _) | TextOp::Get(key, _) => key,
    }
}

/// Two appends that overlap, and a read that has a third order of them; another key is as it should be.
fn operations(read: &'static str) -> Vec<Operation<TextOp>> {
    vec![
        done(TextOp::Put("a", "x"), 0, 1),
        done(TextOp::Append("a", "y"), 2, 6),
        done(TextOp::Put("b", "<q>"), 2, 3),
        done(TextOp::Append("a", "z"), 3, 5),
        done(TextOp::Get("b", "<q>"), 4, 5),
        done(TextOp::Get("a", read), 7, 8),
        done(TextOp::Get("b", "<q>"), 9, 10),
    ]
}

fn explained(operations: &[Operation<TextOp>]) -> Option<Explanation<BTreeMap<String, String>>> {
    explain(&TextStore, operations, Budget::default(), Clock::still())
}

#[test]
fn a_state_may_be_a_map_of_texts() {
    for read in ["xyz", "xzy"] {
        let found = search(&TextStore, &operations(read), Budget::default(), Clock::still());
        assert!(matches!(found, Searched::Order(_)), "{read}: {found:?}");
        assert_eq!(explained(&operations(read)), None);
    }
    let found = search(&TextStore, &operations("xy"), Budget::default(), Clock::still());
    assert_eq!(found, Searched::NoOrder { blocked: 5 });
}

#[test]
fn each_key_is_searched_by_itself() {
    let operations = operations("xy");
    let found = search_by_key(&TextStore, &operations, key, Budget::default(), Clock::still());
    assert_eq!(found["a"], Searched::NoOrder { blocked: 5 });
    assert_eq!(found["b"], Searched::Order(vec![2, 4, 6]));
}

/// Returns a clock that advances by a quarter of a millisecond at each call, so that it depends only on the calls.
fn by_looks() -> Clock {
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    Clock(|| LOOKS.fetch_add(250_000, Relaxed))
}

#[test]
fn a_key_without_an_order_is_found_behind_one_that_takes_for_ever() {
    // 40 appends at once, and a read of what none of their orders gives: hopeless by any search
    let mut operations: Vec<_> = (0..40).map(|_| done(TextOp::Append("a", "x"), 0, 1000)).collect();
    let parts: [&'static str; 4] = ["p", "q", "r", "s"];
    operations.extend((0..40).map(|at| done(TextOp::Append("a", parts[at % 4]), 0, 1000)));
    operations.push(done(TextOp::Get("a", "none"), 1001, 1002));
    let budget = Budget {
        time: Duration::from_secs(3600),
        ..Budget::default()
    };
    let short = Budget {
        time: Duration::from_millis(8),
        ..budget
    };
    let alone = search_by_key(&TextStore, &operations, key, short, by_looks());
    assert!(matches!(alone["a"], Searched::Unknown { .. }), "{alone:?}");
    operations.push(done(TextOp::Put("b", "1"), 0, 1));
    operations.push(done(TextOp::Get("b", "2"), 2, 3));
    let found = search_by_key(&TextStore, &operations, key, budget, by_looks());
    assert_eq!(found["b"], Searched::NoOrder { blocked: 82 });
    assert!(matches!(found["a"], Searched::Unknown { .. }), "{found:?}");
}

#[test]
fn an_explanation_has_what_is_needed_and_the_states_that_were_possible() {
    let found = explained(&operations("xy")).expect("no order");
    assert_eq!(found.blocked, 5);
    let mut texts: Vec<&str> = found.states.iter().map(|state| state["a"].as_str()).collect();
    texts.sort_unstable();
    assert_eq!(texts, ["xyz", "xzy"]);
    // With an unknown answer, the put might have come between the two appends.
    assert_eq!(found.needed, [0, 3, 5]);
    assert!(found.prefix.len() >= 3, "{:?}", found.prefix);
}

#[test]
fn the_drawing_says_what_was_asked_and_answered() {
    let operations = operations("xy");
    let found = explained(&operations).expect("no order");
    let words = |place: usize| format!("{:?}", operations[place].op);
    let drawing = OrderDrawing::of("a <b> & c", &found, &operations, |place| format!("p{place}"), words);
    let (svg, page) = (drawing.svg(), drawing.html());
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
    assert!(
        svg.contains("a &lt;b&gt; &amp; c") && svg.contains("Get(&quot;a&quot;, &quot;xy&quot;)"),
        "{svg}"
    );
    assert!(svg.contains("class=\"bar impossible\""), "{svg}");
    assert!(svg.contains("possible here: ") && svg.contains("xzy"), "{svg}");
    assert!(page.contains(&svg) && page.contains("is impossible."), "{page}");
    assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
}

#[test]
fn violations_of_golden_histories_are_drawn() {
    let drawn = |name: &str, model: Option<Model>| {
        let history = golden(name);
        let options = Options {
            model,
            ..Options::default()
        };
        let found = check(&history, &options);
        let judged_by: Model = found.model.parse().expect("a model");
        let violations = &found.of(Property::LINEARIZABLE).violations;
        let violation = violations.first()?;
        Some(OrderDrawing::of_violation(&history, &judged_by, violation)?.svg())
    };
    let mutex = drawn("model_mutex_second_holder", Some(Model::Mutex)).expect("it is violated");
    assert!(mutex.contains("possible here: taken"), "{mutex}");
    let owners = drawn("model_fenced_violated", None).expect("it is violated");
    assert!(owners.contains("acquire: ok, token"), "{owners}");
    assert_eq!(drawn("hl001_holds", None), None);
}

#[test]
fn an_overlap_whose_times_go_back_is_drawn_as_text() {
    let lines = "{:type :invoke, :f :acquire, :process 0, :time 10}\n{:type :ok, :f :acquire, :process 0, :time 20}\n\
                 {:type :invoke, :f :acquire, :process 1, :time 30}\n{:type :ok, :f :acquire, :process 1, :time 90}\n\
                 {:type :invoke, :f :release, :process 0, :time 50}\n";
    let history = History::read(lines.as_bytes(), &ReadOptions::default()).expect("a history");
    let found = check(&history, &Options::default());
    let violation = &found.of(Property::MUTUAL_EXCLUSION).violations[0];
    let text = draw_as_text(&history, &history.certain_holds(), violation);
    assert!(text.contains("^^"), "{text}");
}
