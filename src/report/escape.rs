//! Escapes control characters in text of a history, a client or a server, so that no terminal, CI runner, Markdown or
//! XML parser acts on them.

use std::borrow::Cow;

/// Escapes text on one line, line feeds and tabs as well.
pub fn line(raw: &str) -> Cow<'_, str> {
    escaped(raw, is_control)
}

/// Escapes text of several lines: line feeds and tabs stay.
pub fn lines(raw: &str) -> Cow<'_, str> {
    escaped(raw, |letter| is_control(letter) && !matches!(letter, '\n' | '\t'))
}

/// Returns a line of output in which a GitHub runner finds no workflow command. The runner trims a line before it looks
/// for `::command::`, and finds `##[command]` anywhere:
/// <https://github.com/actions/runner/blob/main/src/Runner.Common/ActionCommand.cs>.
pub fn no_command(line: &str) -> Cow<'_, str> {
    let text = line.trim_start();
    let indent = &line[..line.len() - text.len()];
    let mark = if text.starts_with("::") { "\\" } else { "" };
    if mark.is_empty() && !text.contains("##[") {
        return Cow::Borrowed(line);
    }
    Cow::Owned(format!("{indent}{mark}{}", text.replace("##[", "#\\#[")))
}

/// Returns text of several lines, none of which is a workflow command.
pub fn no_commands(text: &str) -> String {
    text.split_inclusive('\n').map(no_command).collect()
}

/// Returns JSON with escapes of its own for control characters and for the commands that a GitHub runner finds anywhere.
pub fn json(raw: &str) -> String {
    let mut text = String::with_capacity(raw.len());
    for letter in raw.chars() {
        if is_control(letter) && letter != '\n' {
            text.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            text.push(letter);
        }
    }
    text.replace("##[", "#\\u0023[")
}

fn escaped(raw: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !raw.contains(&is_escaped) {
        return Cow::Borrowed(raw);
    }
    let mut text = String::with_capacity(raw.len() + 8);
    for letter in raw.chars() {
        if is_escaped(letter) {
            // `\n`, `\t`, `\r`, else `\u{1b}`
            text.extend(letter.escape_debug());
        } else {
            text.push(letter);
        }
    }
    Cow::Owned(text)
}

/// Whether a character is a control character, changes the direction of text, ends a line, or is forbidden in XML.
fn is_control(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(letter, '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_not_sent() {
        assert_eq!(
            line("a\x1b[31m\u{202e}b\r\nc\u{7}"),
            "a\\u{1b}[31m\\u{202e}b\\r\\nc\\u{7}"
        );
        assert_eq!(lines("a\tb\n\x1b"), "a\tb\n\\u{1b}");
        assert_eq!(line("plain ünïcode ×3"), "plain ünïcode ×3");
        for forbidden in ['\u{0}', '\u{85}', '\u{2028}', '\u{2069}', '\u{ffff}'] {
            let shown = lines(&forbidden.to_string()).into_owned();
            assert!(shown.is_ascii() && shown.starts_with('\\'), "{shown}");
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "##[a]": ["\u{1b}[2J\u{9b}", "\u{202e}\n##[b]"] });
        let text = json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.contains("##[") && text.is_ascii(), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn no_line_is_a_command_of_a_runner() {
        assert_eq!(no_command("   ::error::pwned"), "   \\::error::pwned");
        assert_eq!(no_command("lock ##[add-mask]x"), "lock #\\#[add-mask]x");
        assert_eq!(no_command("at [::1]:2181, std::io"), "at [::1]:2181, std::io");
    }
}
