//! Histories for the tests of reports, written line by line.

use std::fmt::{Display, Write};

use harness_checkers::{History, ReadOptions};

/// The history of these lines, each with its time in nanoseconds and with what comes after its number and its time.
pub fn history_of(lines: impl IntoIterator<Item = (u64, impl Display)>) -> History {
    history_with("", lines)
}

/// The same of a lock that promises this.
pub fn history_with(promises: &str, lines: impl IntoIterator<Item = (u64, impl Display)>) -> History {
    let header = r#""format":"harness-history","version":1,"locks":["l0"]"#;
    let mut text = format!(r#"{{{header},"promises":{{{promises}}}}}"#);
    for (index, (time, line)) in (1_u64..).zip(lines) {
        let _ = write!(text, "\n{{\"index\":{index},\"time\":{time},{line}}}");
    }
    History::read(text.as_bytes(), &ReadOptions::default()).expect("a history")
}
