//! Printing data: a reader that went away, as `harness … | head` does, is not an error.

use std::io::{self, Write};

/// Prints text on stdout.
pub fn print(text: &str) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_all(text.as_bytes()).and_then(|()| out.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        eprintln!("error: could not write to stdout: {error}");
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl serde::Serialize) {
    let mut text = serde_json::to_string_pretty(value).expect("what is printed is plain data");
    text.push('\n');
    print(&text);
}
