//! Options of `harness run` as files carry them: a value becomes the words that a user would have typed, so that whatever
//! is wrong with it is refused in the same way.

use crate::tables::{At, Table, TableError, Value};

/// An option of the command line, by its long name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub name: String,
    /// Whether it stands alone, without a value.
    pub switch: bool,
}

/// What one option is set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub option: String,
    /// `None` for a switch that is off.
    pub word: Option<String>,
    /// What it is set to, for a person.
    pub shown: String,
    /// Where it was written, from 1.
    pub line: usize,
}

impl Setting {
    /// Reads the value of an option.
    pub fn read(option: &Known, at: &At<Value>) -> Result<Self, TableError> {
        let name = &option.name;
        let shown = shown(name, at)?;
        let is_switch = matches!(at.value, Value::Switch(_));
        if is_switch != option.switch {
            let wanted = if option.switch {
                "is true or false"
            } else {
                "takes a value, in quotes where it is no number"
            };
            return Err(TableError::at(at.line, format!("`{name}` {wanted}")));
        }
        let word = match at.value {
            Value::Switch(false) => None,
            Value::Switch(true) => Some(format!("--{name}")),
            _ => Some(format!("--{name}={shown}")),
        };
        Ok(Self {
            option: name.clone(),
            word,
            shown,
            line: at.line,
        })
    }
}

/// Those of a table's keys that are options.
pub fn settings(table: &Table, options: &[Known]) -> Result<Vec<Setting>, TableError> {
    let known = options
        .iter()
        .filter_map(|option| Some((option, table.get(&option.name)?)));
    known.map(|(option, at)| Setting::read(option, at)).collect()
}

/// `below`, with what `above` sets in place of it.
pub fn over(above: &[Setting], below: &[Setting]) -> Vec<Setting> {
    let set = |option: &str| above.iter().any(|setting| setting.option == option);
    let kept = below.iter().filter(|setting| !set(&setting.option));
    above.iter().chain(kept).cloned().collect()
}

fn shown(name: &str, at: &At<Value>) -> Result<String, TableError> {
    Ok(match &at.value {
        Value::Text(text) | Value::Number(text) => text.clone(),
        Value::Switch(switch) => switch.to_string(),
        Value::List(items) => {
            let words: Result<Vec<String>, TableError> = items.iter().map(|item| shown(name, item)).collect();
            words?.join(",")
        }
        Value::Table(_) => return Err(TableError::at(at.line, format!("`{name}` takes a value, not a table"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::read;

    fn options() -> Vec<Known> {
        [("fault", false), ("clients", false), ("reentrant", true)]
            .map(|(name, switch)| Known {
                name: name.into(),
                switch,
            })
            .to_vec()
    }

    #[test]
    fn values_become_the_words_that_would_have_been_typed() {
        let table = read("fault = [\"partition=holder\", \"latency\"]\nclients = 7\nreentrant = true").unwrap();
        let words: Vec<_> = settings(&table, &options())
            .unwrap()
            .into_iter()
            .filter_map(|setting| setting.word)
            .collect();
        assert_eq!(
            words,
            ["--fault=partition=holder,latency", "--clients=7", "--reentrant"]
        );
        let off = settings(&read("reentrant = false").unwrap(), &options()).unwrap();
        assert_eq!(off[0].word, None);
    }

    #[test]
    fn a_switch_takes_no_value_and_a_value_is_no_switch() {
        for text in ["reentrant = 3", "clients = true"] {
            assert!(settings(&read(text).unwrap(), &options()).is_err(), "{text}");
        }
    }

    #[test]
    fn what_stands_above_wins() {
        let of = |text| settings(&read(text).unwrap(), &options()).unwrap();
        let both = over(&of("clients = 2"), &of("clients = 9\nfault = \"kill\""));
        let words: Vec<_> = both.into_iter().filter_map(|setting| setting.word).collect();
        assert_eq!(words, ["--clients=2", "--fault=kill"]);
    }
}
