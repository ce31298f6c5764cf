//! A setting: one option of `harness run` with its value and its origin (flag, environment, profile, file or default).
//!
//! A value from a file becomes the word of a command line, so that it is refused in the same way.

use serde::Serialize;

use super::toml::{At, TomlError, TomlTable, TomlValue};

/// An option of the command line, by its long name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OptionName {
    #[serde(rename = "option")]
    pub name: String,
    /// Whether it takes no value.
    #[serde(skip)]
    pub switch: bool,
}

impl OptionName {
    /// Returns the setting of this option to a value.
    pub fn set(&self, value: String, origin: SettingOrigin) -> Setting {
        Setting {
            option: self.clone(),
            value: Some(value),
            origin,
        }
    }
}

/// The origin of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "kebab-case")]
pub enum SettingOrigin {
    Flag,
    Environment { name: String },
    Profile { profile: String, file: String, line: usize },
    File { file: String, line: usize },
    Default,
}

impl std::fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment { name } => write!(f, "environment, {name}"),
            Self::Profile { profile, file, line } => write!(f, "profile {profile}, {file}:{line}"),
            Self::File { file, line } => write!(f, "file, {file}:{line}"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// The value of one option.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    #[serde(flatten)]
    pub option: OptionName,
    /// The value as typed; `true` or `false` for a switch. `None` if nothing is set and the run decides.
    pub value: Option<String>,
    #[serde(flatten)]
    pub origin: SettingOrigin,
}

impl Setting {
    /// Returns the setting of an option that takes a value.
    pub fn of(name: &str, value: String, origin: SettingOrigin) -> Self {
        let (name, switch) = (name.to_owned(), false);
        OptionName { name, switch }.set(value, origin)
    }

    /// Reads the value of an option in a file, in the line of `at`.
    fn read(option: &OptionName, at: &At, origin: impl Fn(usize) -> SettingOrigin) -> Result<Self, TomlError> {
        let name = &option.name;
        if !option.switch && matches!(at.value, TomlValue::Switch(_)) {
            let sentence = format!("`{name}` takes a value, not true or false");
            return Err(at.error(sentence));
        }
        let value = match option.switch {
            true => at.switch(name)?.to_string(),
            false => text(name, at)?,
        };
        Ok(option.set(value, origin(at.line)))
    }

    /// Whether a layer above the defaults has set it.
    pub fn is_set(&self) -> bool {
        self.origin != SettingOrigin::Default
    }

    /// Returns the word of a command line: `--lease=2s`, `--reentrant`, or none for a switch that is off.
    pub fn word(&self) -> Option<String> {
        let (name, value) = (&self.option.name, self.value.as_ref()?);
        match self.option.switch {
            true => (value == "true").then(|| format!("--{name}")),
            false => Some(format!("--{name}={value}")),
        }
    }
}

/// Returns the settings of the keys of a table that are options.
pub fn settings(
    table: &TomlTable,
    options: &[OptionName],
    origin: impl Fn(usize) -> SettingOrigin,
) -> Result<Vec<Setting>, TomlError> {
    let known = options
        .iter()
        .filter_map(|option| Some((option, table.get(&option.name)?)));
    known.map(|(option, at)| Setting::read(option, at, &origin)).collect()
}

/// Returns `lower`, with the settings of `upper` in their place.
pub fn over(upper: &[Setting], lower: &[Setting]) -> Vec<Setting> {
    let is_set = |option: &OptionName| upper.iter().any(|setting| setting.option == *option);
    let kept = lower.iter().filter(|setting| !is_set(&setting.option));
    upper.iter().chain(kept).cloned().collect()
}

fn text(name: &str, at: &At) -> Result<String, TomlError> {
    match &at.value {
        TomlValue::Text(text) | TomlValue::Number(text) => Ok(text.clone()),
        TomlValue::Switch(switch) => Ok(switch.to_string()),
        TomlValue::List(items) => {
            let words: Result<Vec<String>, TomlError> = items.iter().map(|item| text(name, item)).collect();
            Ok(words?.join(","))
        }
        TomlValue::Table(_) => Err(at.error(format!("`{name}` takes a value, not a table"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::toml::read;

    fn options() -> Vec<OptionName> {
        [("fault", false), ("clients", false), ("reentrant", true)]
            .map(|(name, switch)| OptionName {
                name: name.into(),
                switch,
            })
            .to_vec()
    }

    fn words(text: &str) -> Result<Vec<String>, TomlError> {
        let settings = settings(&read(text)?, &options(), |_| SettingOrigin::Flag)?;
        Ok(settings.iter().filter_map(Setting::word).collect())
    }

    #[test]
    fn values_become_the_words_that_would_have_been_typed() {
        assert_eq!(
            words("fault = [\"partition=holder\", \"latency\"]\nclients = 7\nreentrant = true").unwrap(),
            ["--fault=partition=holder,latency", "--clients=7", "--reentrant"]
        );
        assert!(words("reentrant = false").unwrap().is_empty());
    }

    #[test]
    fn a_switch_takes_no_value_and_a_value_is_no_switch() {
        for text in ["reentrant = 3", "clients = true"] {
            assert!(words(text).is_err(), "{text}");
        }
    }
}
