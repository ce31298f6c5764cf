//! The checkers in WebAssembly for `page.html`: a history in, findings as JSON and drawings out.
//!
//! The page calls [`room`], writes a line of options and the history into the result, calls [`check`], and reads the JSON at [`answer`].

use std::cell::RefCell;

use harness_checkers::{History, Model, Options, OrderDrawing, Property, ReadOptions, check as decide, draw_as_text};
use serde_json::{Map, Value, json};

thread_local! {
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Returns a pointer to memory for an input of this length.
#[unsafe(no_mangle)]
pub extern "C" fn room(bytes: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        input.clear();
        input.resize(bytes, 0);
        input.as_mut_ptr()
    })
}

/// Checks the input, frees it, and returns the length of the answer in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn check() -> usize {
    let input = INPUT.take();
    let answer = checked(&input).unwrap_or_else(|error| json!({ "error": error }));
    ANSWER.with_borrow_mut(|kept| {
        *kept = answer.to_string().into_bytes();
        kept.len()
    })
}

/// Returns a pointer to the answer.
#[unsafe(no_mangle)]
pub extern "C" fn answer() -> *const u8 {
    ANSWER.with_borrow(|kept| kept.as_ptr())
}

/// Returns the findings, and a drawing of each violation: as text, and as SVG if operations can be drawn.
fn checked(input: &[u8]) -> Result<Value, String> {
    let mut parts = input.splitn(2, |byte| *byte == b'\n');
    let (asked, history) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let asked: Value = serde_json::from_slice(asked).map_err(|error| format!("the options: {error}"))?;
    let text = |name: &str| asked[name].as_str().filter(|text| !text.is_empty());
    let model = text("model").map(str::parse::<Model>).transpose();
    let model = model.map_err(|error| error.to_string())?;
    let read = ReadOptions {
        lock_key: text("lock_key").map(str::to_owned),
        initial: text("initial").map(str::to_owned),
    };
    let history = History::read(history, &read).map_err(|error| error.to_string())?;
    let found = decide(
        &history,
        &Options {
            model,
            ..Options::default()
        },
    );
    let judged_by: Model = found.model.parse().map_err(|error| format!("{error}"))?;
    let holds = history.certain_holds();
    let violations = found.findings.iter().flat_map(|finding| &finding.violations);
    let drawings = violations.map(|violation| {
        let drawing = OrderDrawing::of_violation(&history, &judged_by, violation);
        let text = draw_as_text(&history, &holds, violation);
        json!({ "id": violation.id, "text": text, "svg": drawing.map(|drawing| drawing.svg()) })
    });
    let drawings: Vec<Value> = drawings.collect();
    let names = Property::ALL.map(|property| (property.id().to_owned(), json!(property.name())));
    Ok(json!({
        "events": history.len(),
        "verdict": found.verdict(),
        "names": Map::from_iter(names),
        "drawings": drawings,
        "findings": found,
    }))
}
