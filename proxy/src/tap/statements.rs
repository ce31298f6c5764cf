//! The names of SQL statements: the function of a lock that one calls, or its first word. And the statements that are prepared.

use std::collections::BTreeMap;

use super::{MessageName, TapError};

/// Statements that are known at once.
const MAX_STATEMENTS: usize = 4096;

/// The name of a statement and the print of the request that prepared it.
pub(super) type Statement = (MessageName, u64);

/// Returns the name of a statement. `functions` are calls in capitals, each with its name; a longer one precedes the one that it contains.
pub(super) fn statement_name(statement: &[u8], functions: &[(&str, &str)]) -> MessageName {
    let upper = statement.to_ascii_uppercase();
    let is_called = |call: &str| upper.windows(call.len()).any(|part| part == call.as_bytes());
    if let Some((_, name)) = functions.iter().find(|(call, _)| is_called(call)) {
        return MessageName::new(name.as_bytes());
    }
    let word = without_comments(&upper);
    let end = word.iter().position(|byte| !byte.is_ascii_alphabetic());
    MessageName::new(&word[..end.unwrap_or(word.len())])
}

/// Returns the statement after the comments with which libraries mark it: `/* ApplicationName=… */ SELECT`.
fn without_comments(statement: &[u8]) -> &[u8] {
    let mut rest = statement.trim_ascii_start();
    while let Some(comment) = rest.strip_prefix(b"/*") {
        let Some(end) = comment.windows(2).position(|part| part == b"*/") else {
            break;
        };
        rest = comment[end + 2..].trim_ascii_start();
    }
    rest.strip_prefix(b"(").unwrap_or(rest).trim_ascii_start()
}

/// Removes the named statements that an SQL statement deallocates.
pub(super) fn forget_deallocated(known: &mut BTreeMap<Vec<u8>, Statement>, statement: &[u8]) {
    let text = without_comments(statement).trim_ascii_end();
    let text = text.strip_suffix(b";").unwrap_or(text);
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let words: Vec<&[u8]> = words.collect();
    let (verb, name) = match words.as_slice() {
        [verb, name] => (*verb, *name),
        [verb, prepare, name] if prepare.eq_ignore_ascii_case(b"PREPARE") => (*verb, *name),
        _ => return,
    };
    let is = |keyword: &[u8]| verb.eq_ignore_ascii_case(keyword);
    if (is(b"DEALLOCATE") || is(b"DISCARD")) && name.eq_ignore_ascii_case(b"ALL") {
        known.retain(|name, _| name.is_empty());
    } else if is(b"DEALLOCATE") {
        let quoted = name.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\""));
        known.remove(&quoted.map_or_else(|| name.to_ascii_lowercase(), <[u8]>::to_vec));
    }
}

/// Keeps a statement under its name or number.
pub(super) fn remember<K: Ord>(
    known: &mut BTreeMap<K, Statement>,
    key: K,
    statement: Statement,
) -> Result<(), TapError> {
    if known.len() >= MAX_STATEMENTS && !known.contains_key(&key) {
        return Err(TapError("too many statements"));
    }
    known.insert(key, statement);
    Ok(())
}
