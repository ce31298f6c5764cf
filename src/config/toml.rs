//! TOML files (`harness.toml`, suites) with known keys: each value keeps its line, and an unknown key is an error with its
//! line and a suggestion, so that a misspelt key is never ignored.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::suggest::unknown_word;

/// The number of keys that an error lists. The options of a run are more.
const LISTED: usize = 20;

/// A value and its line, from 1.
#[derive(Debug, Clone, PartialEq)]
pub struct At {
    pub line: usize,
    pub value: TomlValue,
}

#[derive(Debug, Clone, PartialEq)]
pub enum TomlValue {
    Text(String),
    /// A number, as written.
    Number(String),
    Switch(bool),
    List(Vec<At>),
    Table(TomlTable),
}

/// Keys and values, by key.
pub type TomlTable = BTreeMap<String, At>;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {sentence}")]
pub struct TomlError {
    pub line: usize,
    pub sentence: String,
}

impl From<TomlError> for String {
    fn from(error: TomlError) -> Self {
        error.to_string()
    }
}

impl TomlError {
    pub fn at(line: usize, sentence: impl Into<String>) -> Self {
        let sentence = sentence.into();
        Self { line, sentence }
    }
}

/// Parses the text of a file.
pub fn read(text: &str) -> Result<TomlTable, TomlError> {
    let line = |span: Range<usize>| 1 + text[..span.start.min(text.len())].matches('\n').count();
    let document =
        DeTable::parse(text).map_err(|error| TomlError::at(error.span().map_or(1, line), error.message()))?;
    table(document.get_ref(), &line)
}

fn table(from: &DeTable<'_>, line: &impl Fn(Range<usize>) -> usize) -> Result<TomlTable, TomlError> {
    let entries = from.iter().map(|(key, value)| {
        let at = At {
            line: line(key.span()),
            value: self::value(value, line)?,
        };
        Ok((key.get_ref().to_string(), at))
    });
    entries.collect()
}

fn value(from: &toml::Spanned<DeValue<'_>>, line: &impl Fn(Range<usize>) -> usize) -> Result<TomlValue, TomlError> {
    Ok(match from.get_ref() {
        DeValue::String(text) => TomlValue::Text(text.clone().into_owned()),
        DeValue::Integer(number) => TomlValue::Number(number.as_str().to_owned()),
        DeValue::Float(number) => TomlValue::Number(number.as_str().to_owned()),
        DeValue::Boolean(switch) => TomlValue::Switch(*switch),
        DeValue::Datetime(_) => {
            let why = "a date is not a value of any key; put it in quotes";
            return Err(TomlError::at(line(from.span()), why));
        }
        DeValue::Array(list) => {
            let item = |item: &toml::Spanned<DeValue<'_>>| {
                Ok(At {
                    line: line(item.span()),
                    value: value(item, line)?,
                })
            };
            TomlValue::List(list.iter().map(item).collect::<Result<_, _>>()?)
        }
        DeValue::Table(inner) => TomlValue::Table(table(inner, line)?),
    })
}

/// Refuses the first key that is not `known`. Without a similar one, the hint lists the known ones, unless they are the options of a run.
pub fn refuse_unknown<'a>(table: &TomlTable, known: impl IntoIterator<Item = &'a str>) -> Result<(), TomlError> {
    let known: Vec<&str> = known.into_iter().collect();
    let unknown = table.iter().filter(|(key, _)| !known.contains(&key.as_str()));
    let Some((key, at)) = unknown.min_by_key(|(_, at)| at.line) else {
        return Ok(());
    };
    let otherwise = match known.len() {
        ..=LISTED => format!("the keys here are {}", known.join(", ")),
        _ => "`harness run --help` lists the options".to_owned(),
    };
    Err(at.error(unknown_word("key", key, known, &otherwise)))
}

/// Whether a switch is there, and on.
pub fn is_on(table: &TomlTable, key: &str) -> Result<bool, TomlError> {
    table.get(key).map_or(Ok(false), |at| at.switch(key))
}

impl At {
    /// Returns an error in the line of this value.
    pub fn error(&self, sentence: impl Into<String>) -> TomlError {
        TomlError::at(self.line, sentence)
    }

    fn wrong(&self, key: &str, expected: &str) -> TomlError {
        self.error(format!("`{key}` must be {expected}"))
    }

    pub fn text(&self, key: &str) -> Result<&str, TomlError> {
        match &self.value {
            TomlValue::Text(text) => Ok(text),
            _ => Err(self.wrong(key, "a string")),
        }
    }

    pub fn switch(&self, key: &str) -> Result<bool, TomlError> {
        match self.value {
            TomlValue::Switch(switch) => Ok(switch),
            _ => Err(self.wrong(key, "true or false")),
        }
    }

    pub fn count(&self, key: &str) -> Result<u32, TomlError> {
        let number = match &self.value {
            TomlValue::Number(number) => number.parse().ok(),
            _ => None,
        };
        number.ok_or_else(|| self.wrong(key, "a whole number"))
    }

    pub fn table(&self, key: &str) -> Result<&TomlTable, TomlError> {
        match &self.value {
            TomlValue::Table(table) => Ok(table),
            _ => Err(self.wrong(key, "a table")),
        }
    }

    pub fn list(&self, key: &str) -> Result<&[At], TomlError> {
        match &self.value {
            TomlValue::List(list) => Ok(list),
            _ => Err(self.wrong(key, "a list")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_knows_its_line_also_inside_of_lists() {
        let table = read("rows = [\n  { name = \"a\" },\n  { name = \"b\",\n    clients = 3 },\n]\n").unwrap();
        let rows = table["rows"].list("rows").unwrap();
        let second = rows[1].table("row").unwrap();
        assert_eq!((second["name"].line, second["clients"].line), (3, 4));
        assert_eq!(second["clients"].count("clients"), Ok(3));
    }

    #[test]
    fn a_text_that_is_no_toml_is_an_error_with_its_line() {
        assert_eq!(read("a = 1\nb = = 2\n").unwrap_err().line, 2);
        assert_eq!(read("a = 1\na = 2\n").unwrap_err().line, 2);
    }

    #[test]
    fn a_key_that_resembles_none_is_refused_with_those_that_there_are() {
        let refused = refuse_unknown(&read("xyz = 1").unwrap(), ["each", "between"]).unwrap_err();
        let sentence = "there is no key `xyz`\nhint: the keys here are each, between";
        assert_eq!(refused.sentence, sentence);
    }

    #[test]
    fn a_value_of_another_kind_is_refused_with_what_it_should_be() {
        let table = read("retries = \"many\"").unwrap();
        let retries = &table["retries"];
        let error = retries.count("retries").unwrap_err();
        assert!(error.sentence.contains("whole number"));
        assert!(retries.switch("retries").is_err());
    }
}
