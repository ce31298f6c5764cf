//! Output on stdout: a closed pipe, as in `harness … | head`, is not an error; a full disk is, and changes the exit code.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use super::columns;
use crate::exit::Exit;
use crate::report::escape::{json, lines, no_commands};
use crate::report::screen::ScreenText;

/// Whether output was lost. It is a fact about the process, since stdout is.
static LOST: AtomicBool = AtomicBool::new(false);

/// Prints text on stdout.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    note(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Prints text on stdout without colours, and without the control characters of a history, a client or a server.
pub fn print_plain(text: &str) {
    print(&plain(text));
}

/// Prints lines of a table on stdout: on a terminal no word is broken, and into a file or a pipe each goes as one line.
pub fn print_table(text: &str) {
    print(&(in_columns(text, io::stdout().is_terminal()) + "\n"));
}

/// Returns the lines of [`plain`], wrapped to the width of a terminal, without the last line feed.
pub fn in_columns(text: &str, terminal: bool) -> String {
    let text = text.trim_end_matches('\n');
    let Some(columns) = columns(terminal) else {
        return plain(text);
    };
    // the width of a tab depends on its column
    let lines = text.lines().map(|line| ScreenText::from(line.replace('\t', "    ")));
    ScreenText::join_in_columns(lines.collect(), Some(columns))
}

/// Returns text without control characters and without workflow commands.
pub fn plain(text: &str) -> String {
    no_commands(&lines(text))
}

/// Prints a value as JSON.
pub fn print_json(value: &impl serde::Serialize) {
    let text = serde_json::to_string_pretty(value).expect("what is printed is plain data");
    print(&(json(&text) + "\n"));
}

/// Reports a failed write to stdout, unless its reader has closed the pipe.
pub fn note(written: io::Result<()>) {
    if let Err(error) = written
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("error: could not write to stdout: {error}");
        LOST.store(true, Ordering::Relaxed);
    }
}

/// Returns the exit code of a command, given whether its output was written.
pub fn exit_with_output(exit: Exit) -> Exit {
    match LOST.load(Ordering::Relaxed) {
        true => exit.and(Exit::Environment),
        false => exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_there_is_no_terminal_lines_and_tabs_stay_as_they_are() {
        let trace = "error: it ended:\n\tat org.apache.zookeeper\u{1b}[2J\n";
        assert_eq!(
            in_columns(trace, false),
            "error: it ended:\n\tat org.apache.zookeeper\\u{1b}[2J"
        );
    }
}
