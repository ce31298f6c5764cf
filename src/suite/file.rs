//! The file of a suite: defaults, groups of rows that share settings, products of settings, and rows. Each error in it
//! has its line.
//!
//! ```toml
//! [defaults]
//! lease = "1s"
//!
//! [[group]]
//! backend = "zk"
//! rows = [
//!   { recipe = "zk-polling", fault = "pause-holder", expect = { HL001 = "violated", HL003 = "holds" } },
//! ]
//!
//! # a row for each client with each fault
//! [[product]]
//! backend = "redis"
//! client = ["redis-py", "python-redis-lock"]
//! fault = ["none", "kill-holder"]
//! ```

use std::collections::{BTreeMap, BTreeSet};

use harness_checkers::Property;

use super::{Expectation, Expected, Suite, SuiteRow};
use crate::config::setting::{OptionName, Setting, SettingOrigin, over, settings};
use crate::config::shard::stable_hash;
use crate::config::suggest::unknown_word;
use crate::config::toml::{At, TomlError, TomlTable, TomlValue, is_on, read as read_toml, refuse_unknown};
use crate::report::diagnosis::Outcome;

/// Keys of a row besides the options of `harness run`.
const ROW_KEYS: [&str; 5] = ["name", "expect", "outcome", "canary", "retries"];
/// Keys that defaults, groups and rows share besides those options.
const RETRIES: &str = "retries";

/// The settings of rows that do not set them themselves.
#[derive(Clone, Default)]
struct Common {
    settings: Vec<Setting>,
    retries: u32,
}

impl Common {
    fn with(&self, table: &TomlTable, options: &[OptionName]) -> Result<Self, TomlError> {
        let retries = table.get(RETRIES).map(|at| at.count(RETRIES)).transpose()?;
        Ok(Self {
            settings: over(&settings(table, options, in_suite)?, &self.settings),
            retries: retries.unwrap_or(self.retries),
        })
    }
}

/// Reads a suite. Its name is `name`, that of the file, unless the file sets one.
pub fn read(text: &str, name: &str, options: &[OptionName]) -> Result<Suite, TomlError> {
    let top = read_toml(text)?;
    refuse_unknown(&top, ["name", "defaults", "group", "product", "row"])?;
    let name = top.get("name").map_or(Ok(name), |at| at.text("name"))?.to_owned();
    let common = match top.get("defaults") {
        None => Common::default(),
        Some(at) => {
            let table = at.table("defaults")?;
            refuse_unknown(table, names(options).chain([RETRIES]))?;
            Common::default().with(table, options)?
        }
    };
    let mut rows = Vec::new();
    for group in items(&top, "group")? {
        let table = group.table("group")?;
        refuse_unknown(table, names(options).chain([RETRIES, "rows"]))?;
        let common = common.with(table, options)?;
        for row in items(table, "rows")? {
            rows.push(self::row(row, &common, options)?);
        }
    }
    for product in items(&top, "product")? {
        for row in factors(product)? {
            rows.push(self::row(&row, &common, options)?);
        }
    }
    for row in items(&top, "row")? {
        rows.push(self::row(row, &common, options)?);
    }
    unique(&rows)?;
    Ok(Suite {
        name,
        digest: format!("{:016x}", stable_hash(text.as_bytes())),
        rows,
    })
}

fn names(options: &[OptionName]) -> impl Iterator<Item = &str> {
    options.iter().map(|option| option.name.as_str())
}

/// A row is run as a process of its own, which gets the value without its origin.
fn in_suite(line: usize) -> SettingOrigin {
    let file = String::new();
    SettingOrigin::File { file, line }
}

fn items<'a>(table: &'a TomlTable, key: &str) -> Result<&'a [At], TomlError> {
    table.get(key).map_or(Ok(&[]), |at| at.list(key))
}

/// Returns the rows of a product: one for each choice of a value from every list. A row is named after its values, with
/// the product's own name in front if it has one.
fn factors(product: &At) -> Result<Vec<At>, TomlError> {
    let table = product.table("product")?;
    let mut rows: Vec<(TomlTable, Vec<String>)> = vec![(table.clone(), Vec::new())];
    for (key, at) in table {
        let TomlValue::List(values) = &at.value else { continue };
        let chosen = |(row, name): &(TomlTable, Vec<String>), value: &At| {
            let (mut row, mut name) = (row.clone(), name.clone());
            row.insert(key.clone(), value.clone());
            match &value.value {
                TomlValue::Text(text) | TomlValue::Number(text) => name.push(text.clone()),
                TomlValue::Switch(switch) => name.push(format!("{key}={switch}")),
                _ => return Err(value.error(format!("`{key}` takes values, and no lists or tables"))),
            }
            Ok((row, name))
        };
        let all = rows
            .iter()
            .flat_map(|row| values.iter().map(move |value| chosen(row, value)));
        rows = all.collect::<Result<_, _>>()?;
    }
    let named = |(mut row, mut name): (TomlTable, Vec<String>)| {
        if let Some(at) = table.get("name") {
            name.insert(0, at.text("name")?.to_owned());
        }
        let line = product.line;
        let value = TomlValue::Text(name.join(" / "));
        if !name.is_empty() {
            row.insert("name".to_owned(), At { line, value });
        }
        let value = TomlValue::Table(row);
        Ok(At { line, value })
    };
    rows.into_iter().map(named).collect()
}

fn row(at: &At, common: &Common, options: &[OptionName]) -> Result<SuiteRow, TomlError> {
    let table = at.table("row")?;
    refuse_unknown(table, names(options).chain(ROW_KEYS))?;
    let Common { settings, retries } = common.with(table, options)?;
    let canary = is_on(table, "canary")?;
    let expect = expectation(table)?;
    let violated = expect.outcome == Outcome::Fail;
    if canary && violated {
        let sentence = "a canary expects what its lock cannot keep: the row is in order when that expectation fails";
        return Err(at.error(sentence));
    }
    let name = match table.get("name") {
        Some(at) => match at.text("name")?.trim() {
            "" => return Err(at.error("a name has at least one letter")),
            name => name.to_owned(),
        },
        None => name_of(&settings).ok_or_else(|| at.error("a row without a recipe or a client needs a name"))?,
    };
    Ok(SuiteRow {
        name,
        line: at.line,
        settings,
        expect,
        canary,
        retries,
    })
}

/// `zk-polling naive / partition=holder`, `kazoo-lock / none`
fn name_of(settings: &[Setting]) -> Option<String> {
    let of = |option: &str| {
        let mut found = settings.iter().filter(|setting| setting.option.name == option);
        found.next().and_then(|setting| setting.value.as_deref())
    };
    let attitude = of("holder").filter(|holder| *holder != "careful");
    let attitude = attitude.map(|holder| format!(" {holder}")).unwrap_or_default();
    Some(format!(
        "{}{attitude} / {}",
        of("recipe").or_else(|| of("client"))?,
        of("fault").unwrap_or("none")
    ))
}

fn expectation(row: &TomlTable) -> Result<Expectation, TomlError> {
    let mut verdicts = BTreeMap::new();
    if let Some(at) = row.get("expect") {
        for (id, at) in at.table("expect")? {
            let property = Property::ALL.into_iter().find(|property| property.id() == id);
            let ids = Property::ALL.map(Property::id);
            let unknown = || at.error(unknown_word("property", id, ids, "HL001 to HL011"));
            let property = property.ok_or_else(unknown)?;
            verdicts.insert(property, expected(id, at)?);
        }
    }
    let violated = verdicts.values().any(|expected| *expected == Expected::Violated);
    let follows = if violated { Outcome::Fail } else { Outcome::Pass };
    let Some(at) = row.get("outcome") else {
        return Ok(Expectation {
            outcome: follows,
            verdicts,
        });
    };
    let outcome = match at.text("outcome")? {
        "pass" => Outcome::Pass,
        "fail" => Outcome::Fail,
        "unsure" => Outcome::Unsure,
        other => {
            let why = unknown_word("outcome", other, ["pass", "fail", "unsure"], "pass, fail or unsure");
            return Err(at.error(why));
        }
    };
    if (outcome == Outcome::Fail) != violated {
        let sentence = "a row fails exactly when `expect` has a property that is \"violated\"";
        return Err(at.error(sentence));
    }
    Ok(Expectation { outcome, verdicts })
}

fn expected(id: &str, at: &At) -> Result<Expected, TomlError> {
    let typed = at.text(id)?;
    let words = Expected::ALL.map(Expected::word);
    let known = Expected::ALL.into_iter().find(|expected| expected.word() == typed);
    known.ok_or_else(|| at.error(unknown_word("verdict", typed, words, &words.join(", "))))
}

/// Refuses two rows of one name: a comparison of two nights could not distinguish them.
fn unique(rows: &[SuiteRow]) -> Result<(), TomlError> {
    let mut seen = BTreeSet::new();
    match rows.iter().find(|row| !seen.insert(row.name.as_str())) {
        None => Ok(()),
        Some(row) => Err(TomlError::at(
            row.line,
            format!("there is a row `{}` already; give this one another `name`", row.name),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Vec<OptionName> {
        let names = ["backend", "recipe", "holder", "fault", "lease", "clients"];
        names
            .map(|name| OptionName {
                name: name.into(),
                switch: false,
            })
            .to_vec()
    }

    fn suite(text: &str) -> Result<Suite, String> {
        read(text, "nightly", &options()).map_err(|error| error.to_string())
    }

    fn names(suite: &Suite) -> Vec<&str> {
        suite.rows.iter().map(|row| row.name.as_str()).collect()
    }

    const GOOD: &str = r#"
[defaults]
lease = "1s"
retries = 1

[[group]]
backend = "zk"
fault = "none"
rows = [
  { recipe = "zk-polling" },
  { recipe = "zk-polling", holder = "naive", fault = "partition=holder", lease = "2s", expect = { HL001 = "violated", HL003 = "holds" } },
]

[[row]]
name = "canary"
backend = "redis"
canary = true
retries = 0
"#;

    #[test]
    fn a_row_has_what_its_group_and_the_defaults_say_and_its_own_word_wins() {
        let suite = suite(GOOD).unwrap();
        let expected = ["zk-polling / none", "zk-polling naive / partition=holder", "canary"];
        assert_eq!(names(&suite), expected);
        let words = suite.rows[1].words();
        for word in ["--lease=2s", "--backend=zk"] {
            assert!(words.contains(&word.into()), "{words:?}");
        }
        assert_eq!(words.len(), 5);
        assert_eq!(suite.rows[1].expect.outcome, Outcome::Fail);
        assert_eq!(suite.rows[1].expect.verdicts[&Property::Hl003], Expected::Holds);
        assert_eq!((suite.rows[0].retries, suite.rows[2].retries), (1, 0));
        assert!(suite.rows[2].canary);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_with_its_line() {
        let refused = |text: &str, line: &str, words: &str| {
            let error = suite(text).unwrap_err();
            assert!(error.starts_with(line) && error.contains(words), "{text}: {error}");
        };
        for (text, line, words) in [
            ("[[rows]]\nrecipe = \"a\"", "line 1", "did you mean `row`"),
            ("[defaults]\nname = \"a\"", "line 2", "no key `name`"),
            ("[[row]]\nclients = 3", "line 1", "needs a name"),
        ] {
            refused(text, line, words);
        }
        const ROW: &str = "[[row]]\nrecipe = \"a\"\n";
        refused(&ROW.repeat(2), "line 3", "already");
        let canary = format!("{ROW}canary = true\nexpect = {{ HL001 = \"violated\" }}");
        refused(&canary, "line 1", "canary");
        for (key, words) in [
            ("leese = \"1s\"", "did you mean `lease`"),
            ("expect = { HL01 = \"holds\" }", "no property `HL01`"),
            ("expect = { HL001 = \"hold\" }", "did you mean `holds`"),
            ("outcome = \"fail\"", "violated"),
            ("name = \" \"", "at least one letter"),
        ] {
            refused(&format!("{ROW}{key}"), "line 3", words);
        }
    }

    #[test]
    fn a_product_has_a_row_for_each_choice_from_its_lists() {
        let text = r#"
[defaults]
lease = "1s"

[[product]]
backend = "redis"
recipe = ["a", "b"]
fault = ["none", "reset"]
clients = 3
expect = { HL001 = "holds" }

[[product]]
name = "long"
backend = ["zk", "redis"]
"#;
        let suite = suite(text).unwrap();
        let expected = "none / a, none / b, reset / a, reset / b, long / zk, long / redis";
        assert_eq!(names(&suite).join(", "), expected);
        let words = suite.rows[2].words();
        for word in "--recipe=a --fault=reset --backend=redis --clients=3 --lease=1s".split(' ') {
            assert!(words.contains(&word.into()), "{words:?}");
        }
        assert_eq!(suite.rows[3].expect.verdicts[&Property::Hl001], Expected::Holds);
        let twice = "[[product]]\nrecipe = [\"a\", \"a\"]";
        assert!(self::suite(twice).unwrap_err().contains("already"));
    }

    #[test]
    fn two_versions_of_a_file_have_two_digests() {
        let changed = suite(&GOOD.replace("1s", "3s")).unwrap();
        assert_ne!(suite(GOOD).unwrap().digest, changed.digest);
    }
}
