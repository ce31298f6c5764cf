//! Templates with placeholders, `{port}`, in a file that describes a store, and their values.

use std::collections::BTreeMap;

/// A text with valid placeholders. `{{word}` is the text `{word}`; any other brace is text, too, as in JSON and `${VARIABLE}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Template(Vec<TemplatePart>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Place(String),
}

/// The value of each placeholder.
pub type PlaceValues = BTreeMap<String, String>;

impl Template {
    /// Parses a text. The error is an unknown placeholder.
    pub fn read(text: &str, is_known: impl Fn(&str) -> bool) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            plain.push_str(&rest[..at]);
            rest = &rest[at + 1..];
            match placeholder(rest) {
                Some(name) if is_known(name) => {
                    parts.push(TemplatePart::Text(std::mem::take(&mut plain)));
                    parts.push(TemplatePart::Place(name.to_owned()));
                    rest = &rest[name.len() + 1..];
                }
                Some(name) => return Err(name.to_owned()),
                None => {
                    plain.push('{');
                    // a doubled brace before a word is text
                    if let Some(meant) = rest.strip_prefix('{')
                        && let Some(name) = placeholder(meant)
                    {
                        plain.push_str(&meant[..=name.len()]);
                        rest = &meant[name.len() + 1..];
                    }
                }
            }
        }
        plain.push_str(rest);
        parts.push(TemplatePart::Text(plain));
        Ok(Self(parts))
    }

    /// Returns the text with these values; a placeholder without one is removed.
    pub fn fill(&self, values: &PlaceValues) -> String {
        let part = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Place(name) => values.get(name).cloned().unwrap_or_default(),
        };
        self.0.iter().map(part).collect()
    }
}

/// Returns the word before the closing brace, if the text after the opening one is a placeholder.
fn placeholder(after: &str) -> Option<&str> {
    let (word, _) = after.split_once('}')?;
    let letters =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-' || letter == '_';
    (word.starts_with(|letter: char| letter.is_ascii_lowercase()) && word.chars().all(letters)).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(text: &str) -> Result<String, String> {
        let values: PlaceValues = [("port", "8080"), ("node", "2")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        Template::read(text, |name| ["port", "node", "empty"].contains(&name)).map(|text| text.fill(&values))
    }

    #[test]
    fn placeholders_are_filled_and_other_braces_stay() {
        for (text, wanted) in [
            ("--port={port} --name n{node}", "--port=8080 --name n2"),
            (r#"{"port": {port}, "tags": {}}"#, r#"{"port": 8080, "tags": {}}"#),
            ("${HOME}/x{empty}y", "${HOME}/xy"),
            ("awk '{{print}'", "awk '{print}'"),
            (r#"{"a":{"b":{port}}}"#, r#"{"a":{"b":8080}}"#),
            ("{{{{port}", "{{{port}"),
            ("}{", "}{"),
            ("{", "{"),
            ("", ""),
        ] {
            assert_eq!(filled(text).as_deref(), Ok(wanted), "{text}");
        }
    }
}
