//! Histories for the tests of reports, written line by line.

use std::fmt::{Display, Write};

use harness_checkers::{History, ReadOptions};

/// Returns the history of these lines, each with its time in nanoseconds and the fields after its number and its time.
pub fn history_of(lines: impl IntoIterator<Item = (u64, impl Display)>) -> History {
    history_with("", lines)
}

/// Like [`history_of`], for a lock with these promises.
pub fn history_with(promises: &str, lines: impl IntoIterator<Item = (u64, impl Display)>) -> History {
    let header = r#""format":"harness-history","version":1,"locks":["l0"]"#;
    let mut text = format!(r#"{{{header},"promises":{{{promises}}}}}"#);
    for (index, (time, line)) in (1_u64..).zip(lines) {
        let _ = write!(text, "\n{{\"index\":{index},\"time\":{time},{line}}}");
    }
    History::read(text.as_bytes(), &ReadOptions::default()).expect("a history")
}
