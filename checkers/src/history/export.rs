//! The export of a history for Jepsen's tools: EDN, one map a line.
//!
//! Jepsen has no signals; they become lines of the nemesis, which its checkers ignore and our reader turns back.

use std::fmt::Display;
use std::io::{self, Write};

use super::History;
use super::datum::quoted;
use super::entry::{Entry, F, Mode};
use super::event::Kind;

/// Writes a history as EDN.
///
/// # Errors
/// Fails if writing fails.
pub fn write_edn(history: &History, out: &mut impl Write) -> io::Result<()> {
    for entry in history.entries() {
        write_entry(history, &entry, out)?;
    }
    Ok(())
}

fn write_entry(history: &History, entry: &Entry<'_>, out: &mut impl Write) -> io::Result<()> {
    let (index, time) = (entry.index, entry.time_ns);
    write!(out, "{{:index {index}, :time {time}, ")?;
    let client = entry.process_number().filter(|_| entry.kind != Kind::Signal);
    let Some(process) = client else {
        let f = entry.name.map_or(entry.f.name().to_owned(), keyword);
        write!(out, ":process :nemesis, :type :info, :f :{f}")?;
        match entry.f {
            F::Nemesis => write_field(out, "value", Some(quoted(entry.raw.unwrap_or(""))))?,
            _ => write_signal(entry, out)?,
        }
        return writeln!(out, "}}");
    };
    let f = if entry.extends { F::Extend } else { entry.f };
    let (kind, f) = (entry.kind.name(), f.name());
    write!(out, ":process {process}, :type :{kind}, :f :{f}")?;
    write_value(history, entry, out)?;
    write_field(out, "token", entry.token)?;
    write_field(out, "permits", entry.permits)?;
    write_field(out, "client", entry.client)?;
    write_field(out, "mode", (entry.mode == Mode::Read).then_some(":read"))?;
    write_field(out, "owner", entry.owner.map(quoted))?;
    write_field(out, "error", entry.error.map(quoted))?;
    writeln!(out, "}}")
}

fn write_field(out: &mut impl Write, name: &str, value: Option<impl Display>) -> io::Result<()> {
    value.map_or(Ok(()), |value| write!(out, ", :{name} {value}"))
}

/// Writes the value: for a lock operation the name of the lock, for a register an independent pair of key and value.
fn write_value(history: &History, entry: &Entry<'_>, out: &mut impl Write) -> io::Result<()> {
    let lock = quoted(entry.lock.unwrap_or("lock"));
    let number = |value: Option<u64>| value.map_or("nil".to_owned(), |value| history.value_text(value));
    match entry.f {
        F::Read | F::Write => write!(out, ", :value [{lock} {}]", number(entry.value)),
        F::Cas => write!(
            out,
            ", :value [{lock} [{} {}]]",
            number(entry.expected),
            number(entry.value)
        ),
        _ => write!(out, ", :value {lock}"),
    }
}

fn write_signal(entry: &Entry<'_>, out: &mut impl Write) -> io::Result<()> {
    write!(out, ", :value {{")?;
    if let Some(process) = entry.process_number() {
        write!(out, ":process {process} ")?;
    }
    for (name, text) in [("lock", entry.lock), ("owner", entry.owner), ("cause", entry.cause)] {
        if let Some(text) = text {
            write!(out, ":{name} {} ", quoted(text))?;
        }
    }
    if let Some(token) = entry.token {
        write!(out, ":token {token}")?;
    }
    write!(out, "}}")
}

fn keyword(name: &str) -> String {
    name.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .collect()
}
