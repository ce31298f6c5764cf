//! Where the options of `harness run` come from: what was typed, then the environment (`HARNESS_LEASE`), then the profile,
//! then `harness.toml`, then the defaults. What a layer sets becomes the words that a user would have typed, unless a
//! layer above it has said otherwise, or something that does not go with it.
//!
//! ```toml
//! # harness.toml, in this folder or one above it
//! runtime = "docker"
//!
//! [profile.nightly]
//! time = "5m"
//! ```

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{ArgMatches, Command, CommandFactory};
use serde::Serialize;

use super::args::Cli;
use super::options::run_options;
use crate::settings::{Known, Setting, settings};
use crate::tables::{self, TableError, unknown_word};

/// The file that is looked for.
const FILE: &str = "harness.toml";
/// Before the name of an option, in the environment.
const PREFIX: &str = "HARNESS_";
/// Options that say where the others come from, or belong to one call alone.
const OF_THE_CALL: [&str; 6] = ["config", "no-config", "profile", "show-config", "dry-run", "help"];

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "from", rename_all = "kebab-case")]
pub enum Origin {
    Flag,
    Environment { name: String },
    Profile { profile: String, file: String, line: usize },
    File { file: String, line: usize },
    Default,
}

impl std::fmt::Display for Origin {
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

/// One option with its value and where that comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    pub option: String,
    /// `None` where nothing is set and the run decides.
    pub value: Option<String>,
    #[serde(flatten)]
    pub origin: Origin,
}

/// What the layers below the flags come to.
#[derive(Debug, Default)]
pub struct Layered {
    /// To be put behind what was typed.
    pub words: Vec<String>,
    pub origins: Vec<(String, String, Origin)>,
}

/// The outside that settings come from.
pub struct Outside {
    pub environment: BTreeMap<String, String>,
    /// The file that was found: its name as it is shown, and its text.
    pub file: Option<(String, String)>,
}

impl Outside {
    /// Looks for the file and reads the environment.
    pub fn look(named: Option<&Path>) -> Result<Self, String> {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let environment = env::vars_os()
            .filter_map(text)
            .filter(|(name, _)| name.starts_with(PREFIX))
            .collect();
        let path = match named {
            Some(path) => Some(path.to_owned()),
            None => env::current_dir().ok().and_then(|folder| find(&folder)),
        };
        let read = |path: PathBuf| match std::fs::read_to_string(&path) {
            Ok(text) => Ok((path.display().to_string(), text)),
            Err(error) => Err(format!("could not read {}: {error}", path.display())),
        };
        Ok(Self {
            environment,
            file: path.map(read).transpose()?,
        })
    }
}

fn find(folder: &Path) -> Option<PathBuf> {
    folder
        .ancestors()
        .map(|folder| folder.join(FILE))
        .find(|path| path.is_file())
}

/// The words of a `harness run` with those that the layers below add; `None` where it is no run, or cannot be read at all,
/// which clap then says better.
pub fn layered(words: &[OsString]) -> Result<Option<Layered>, String> {
    let Some(run) = typed(words) else { return Ok(None) };
    if run.get_flag("no_config") {
        return Ok(Some(Layered::default()));
    }
    let outside = Outside::look(run.get_one::<PathBuf>("config").map(PathBuf::as_path))?;
    under(&run, &outside).map(Some)
}

/// What was typed behind `run`, whether or not it is enough.
fn typed(words: &[OsString]) -> Option<ArgMatches> {
    let lenient = Cli::command().mut_subcommand("run", |run| run.mut_args(|argument| argument.required(false)));
    let (name, matches) = lenient.try_get_matches_from(words).ok()?.remove_subcommand()?;
    (name == "run").then_some(matches)
}

/// What the layers under the flags `typed` come to.
pub fn under(typed: &ArgMatches, outside: &Outside) -> Result<Layered, String> {
    let mut cli = Cli::command();
    cli.build();
    let run = cli.find_subcommand("run").expect("there is a command `run`");
    let options: Vec<Known> = run_options()
        .into_iter()
        .filter(|option| !OF_THE_CALL.contains(&option.name.as_str()))
        .collect();
    let mut taken: Vec<String> = flags(run, typed);
    let mut layered = Layered::default();
    let profile = typed
        .get_one::<String>("profile")
        .or_else(|| outside.environment.get("HARNESS_PROFILE"));
    let layers = [
        environment(&options, outside)?,
        file(&options, outside, profile.map(String::as_str))?,
    ];
    for (setting, origin) in layers.into_iter().flatten() {
        if taken
            .iter()
            .any(|other| *other == setting.option || conflict(run, other, &setting.option))
        {
            continue;
        }
        taken.push(setting.option.clone());
        layered.words.extend(setting.word);
        layered.origins.push((setting.option, setting.shown, origin));
    }
    Ok(layered)
}

/// The options that were typed.
fn flags(run: &Command, typed: &ArgMatches) -> Vec<String> {
    let given = run.get_arguments().filter(|argument| {
        let id = argument.get_id().as_str();
        typed.try_contains_id(id).is_ok() && typed.value_source(id) == Some(ValueSource::CommandLine)
    });
    given
        .filter_map(|argument| argument.get_long())
        .map(str::to_owned)
        .collect()
}

fn conflict(run: &Command, one: &str, other: &str) -> bool {
    let argument = |name: &str| run.get_arguments().find(|argument| argument.get_long() == Some(name));
    let excludes = |one: &str, other: &str| {
        let conflicts = argument(one)
            .map(|one| run.get_arg_conflicts_with(one))
            .unwrap_or_default();
        conflicts.iter().any(|argument| argument.get_long() == Some(other))
    };
    excludes(one, other) || excludes(other, one)
}

type Layer = Vec<(Setting, Origin)>;

fn environment(options: &[Known], outside: &Outside) -> Result<Layer, String> {
    let mut layer = Vec::new();
    for option in options {
        let name = format!("{PREFIX}{}", option.name.replace('-', "_").to_uppercase());
        let Some(value) = outside.environment.get(&name) else {
            continue;
        };
        let word = match (option.switch, value.as_str()) {
            (false, _) => Some(format!("--{}={value}", option.name)),
            (true, "1" | "true") => Some(format!("--{}", option.name)),
            (true, "0" | "false" | "") => None,
            (true, _) => return Err(format!("{name}={value}: it is 1 or 0")),
        };
        let setting = Setting {
            option: option.name.clone(),
            word,
            shown: value.clone(),
            line: 0,
        };
        layer.push((setting, Origin::Environment { name }));
    }
    Ok(layer)
}

/// The profile above, then the file.
fn file(options: &[Known], outside: &Outside, profile: Option<&str>) -> Result<Layer, String> {
    let Some((file, text)) = &outside.file else {
        return match profile {
            None => Ok(Vec::new()),
            Some(profile) => Err(format!("profile {profile}: there is no {FILE} here or above")),
        };
    };
    let in_file = |error: TableError| format!("{file}: {error}");
    let mut top = tables::read(text).map_err(in_file)?;
    let profiles = top.remove("profile");
    let names = || options.iter().map(|option| option.name.as_str());
    // `profile` is known too, for whoever types it wrong
    tables::refuse_unknown(&top, names().chain(["profile"])).map_err(in_file)?;
    let mut layer = Vec::new();
    let profiles = profiles
        .as_ref()
        .map(|at| at.table("profile"))
        .transpose()
        .map_err(in_file)?;
    for (name, at) in profiles.into_iter().flatten() {
        let table = at.table(name).map_err(in_file)?;
        // also in the profiles that are not asked for: they are tomorrow's
        tables::refuse_unknown(table, names()).map_err(in_file)?;
        let settings = settings(table, options).map_err(in_file)?;
        if profile == Some(name) {
            let origin = |line| Origin::Profile {
                profile: name.clone(),
                file: file.clone(),
                line,
            };
            layer.extend(settings.into_iter().map(|setting| {
                let line = setting.line;
                (setting, origin(line))
            }));
        }
    }
    if let Some(profile) = profile.filter(|profile| profiles.is_none_or(|known| !known.contains_key(*profile))) {
        let known: Vec<&str> = profiles.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        return Err(format!("{file}: {}", unknown_word("profile", profile, &known)));
    }
    let origin = |line| Origin::File {
        file: file.clone(),
        line,
    };
    layer.extend(settings(&top, options).map_err(in_file)?.into_iter().map(|setting| {
        let line = setting.line;
        (setting, origin(line))
    }));
    Ok(layer)
}

/// Every option, with its value and where that comes from.
pub fn shown(typed: &[OsString], layered: &Layered) -> Vec<Shown> {
    let cli = Cli::command();
    let run = cli.find_subcommand("run").expect("there is a command `run`");
    let matches = self::typed(typed);
    let of = |argument: &clap::Arg| {
        let option = argument.get_long()?.to_owned();
        if OF_THE_CALL.contains(&option.as_str()) {
            return None;
        }
        let below = layered.origins.iter().find(|(name, ..)| *name == option);
        let (value, origin) = match (flag(argument, matches.as_ref()), below) {
            (Some(value), _) => (Some(value), Origin::Flag),
            (None, Some((_, value, origin))) => (Some(value.clone()), origin.clone()),
            (None, None) => (default(argument), Origin::Default),
        };
        Some(Shown { option, value, origin })
    };
    run.get_arguments().filter_map(of).collect()
}

/// The value that was typed.
fn flag(argument: &clap::Arg, matches: Option<&ArgMatches>) -> Option<String> {
    let id = argument.get_id().as_str();
    let matches = matches.filter(|matches| matches.value_source(id) == Some(ValueSource::CommandLine))?;
    if !argument.get_action().takes_values() {
        return Some("true".to_owned());
    }
    let words = matches.get_raw(id)?.map(|word| word.to_string_lossy().into_owned());
    Some(words.collect::<Vec<_>>().join(","))
}

fn default(argument: &clap::Arg) -> Option<String> {
    if !argument.get_action().takes_values() {
        return Some("false".to_owned());
    }
    let values: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    (!values.is_empty()).then(|| values.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str =
        "lease = \"3s\"\nclients = 7\nreentrant = true\n\n[profile.nightly]\nlease = \"4s\"\ntime = \"5m\"\n";

    fn layers(line: &str, environment: &[(&str, &str)], file: Option<&str>) -> Result<Vec<String>, String> {
        let outside = Outside {
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            file: file.map(|text| ("harness.toml".to_owned(), text.to_owned())),
        };
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let layered = under(&typed(&words).expect("it is a run"), &outside)?;
        Ok(layered
            .origins
            .iter()
            .map(|(option, value, origin)| format!("{option}={value} ({origin})"))
            .collect())
    }

    #[test]
    fn a_flag_beats_the_environment_beats_the_profile_beats_the_file() {
        let run = "harness run --backend zk";
        let file = Some(TOML);
        assert_eq!(
            layers(run, &[], file).unwrap(),
            [
                "reentrant=true (file, harness.toml:3)",
                "clients=7 (file, harness.toml:2)",
                "lease=3s (file, harness.toml:1)",
            ]
        );
        let nightly = layers(&format!("{run} --profile nightly --clients 2"), &[], file).unwrap();
        assert_eq!(
            nightly,
            [
                "lease=4s (profile nightly, harness.toml:6)",
                "time=5m (profile nightly, harness.toml:7)",
                "reentrant=true (file, harness.toml:3)",
            ]
        );
        let environment = [
            ("HARNESS_PROFILE", "nightly"),
            ("HARNESS_LEASE", "9s"),
            ("HARNESS_REENTRANT", "0"),
        ];
        let all = layers(run, &environment, file).unwrap();
        assert!(
            all.contains(&"lease=9s (environment, HARNESS_LEASE)".to_owned()),
            "{all:?}"
        );
        assert!(
            all.contains(&"time=5m (profile nightly, harness.toml:7)".to_owned()),
            "{all:?}"
        );
        assert!(
            all.contains(&"reentrant=0 (environment, HARNESS_REENTRANT)".to_owned()),
            "{all:?}"
        );
    }

    #[test]
    fn a_flag_puts_out_what_does_not_go_with_it() {
        let file = "recipe = \"zk-polling\"\nholder = \"naive\"\nclients = 3";
        let own = layers("harness run --backend zk --client ./mine", &[], Some(file)).unwrap();
        assert_eq!(own, ["clients=3 (file, harness.toml:3)"]);
    }

    #[test]
    fn what_a_file_or_the_environment_has_wrong_is_said_with_its_place() {
        let run = "harness run --backend zk";
        let refused = |words: &str, environment: &[(&str, &str)], file| layers(words, environment, file).unwrap_err();
        assert!(
            refused(run, &[], Some("leese = 1"))
                .contains("harness.toml: line 1: there is no key `leese`; did you mean `lease`?")
        );
        assert!(refused(run, &[], Some("[profile.a]\nleese = 1")).contains("line 2"));
        assert!(refused(run, &[], Some("[profil.a]\nlease = 1")).contains("did you mean `profile`"));
        assert!(refused(&format!("{run} --profile nihgtly"), &[], Some(TOML)).contains("did you mean `nightly`"));
        assert!(refused(&format!("{run} --profile nightly"), &[], None).contains("no harness.toml"));
        assert!(refused(run, &[("HARNESS_REENTRANT", "maybe")], None).contains("1 or 0"));
    }

    #[test]
    fn what_is_needed_may_come_from_below() {
        let words: Vec<OsString> = ["harness", "run"].map(OsString::from).to_vec();
        assert!(typed(&words).is_some());
        assert!(typed(&["harness", "list", "runs"].map(OsString::from)).is_none());
    }

    #[test]
    fn every_option_is_shown_with_where_it_comes_from() {
        let words: Vec<OsString> = "harness run --clients 2 --fault latency,reset"
            .split(' ')
            .map(OsString::from)
            .collect();
        let layered = Layered {
            words: Vec::new(),
            origins: vec![("lease".into(), "3s".into(), Origin::Default)],
        };
        let all = shown(&words, &layered);
        let of = |option: &str| all.iter().find(|shown| shown.option == option).unwrap();
        assert_eq!(
            (of("clients").value.as_deref(), &of("clients").origin),
            (Some("2"), &Origin::Flag)
        );
        assert_eq!(of("fault").value.as_deref(), Some("latency,reset"));
        assert_eq!(of("lease").value.as_deref(), Some("3s"));
        assert_eq!(
            (of("hold").value.as_deref(), &of("hold").origin),
            (Some("10ms"), &Origin::Default)
        );
        assert_eq!(of("seed").value, None);
        assert!(all.iter().all(|shown| shown.option != "profile"));
    }
}
