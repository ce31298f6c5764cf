//! Histories for the tests of reports, written line by line.

use std::fmt::{Display, Write};

use harness_checkers::{History, ReadOptions};

const NEMESIS: &str = r#""process":"nemesis","type":"info","#;

/// Returns the history of these lines, each with its time in nanoseconds and the fields after its number and its time. A line without
/// a process is one of the nemesis.
pub fn history_of(lines: impl IntoIterator<Item = (u64, impl Display)>) -> History {
    history_with("", lines)
}

/// Like [`history_of`], for a lock with these promises.
pub fn history_with(promises: &str, lines: impl IntoIterator<Item = (u64, impl Display)>) -> History {
    let header = r#""format":"harness-history","version":1,"locks":["l0"]"#;
    let mut text = format!(r#"{{{header},"promises":{{{promises}}}}}"#);
    for (index, (time, line)) in (1_u64..).zip(lines) {
        let line = line.to_string();
        let process = if line.contains("\"process\"") { "" } else { NEMESIS };
        let _ = write!(text, "\n{{\"index\":{index},\"time\":{time},{process}{line}}}");
    }
    History::read(text.as_bytes(), &ReadOptions::default()).expect("a history")
}
