//! Layers of settings for `harness run`: a flag overrides the environment (`HARNESS_LEASE`), which overrides the profile,
//! which overrides the rest of `harness.toml`, which overrides the default.
//!
//! ```toml
//! # harness.toml, in this folder or above it in the repository
//! runtime = "docker"
//!
//! [profile.nightly]
//! time = "5m"
//! ```
//!
//! clap's table of the flags is the schema of all layers. Their result is one word for each option, parsed by clap.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::mem::discriminant;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, FromArgMatches};

use super::args::{Cli, RunArgs};
use super::discovery::{self, FILE};
use super::{Failure, complain, refuse};
use crate::config::heading::{describes_experiment, is_configurable};
use crate::config::setting::{OptionName, Setting, SettingOrigin, settings};
use crate::config::suggest::{similar, unknown_word};
use crate::config::toml;
use crate::exit::Exit;

const PREFIX: &str = "HARNESS_";
const PROFILE: &str = "HARNESS_PROFILE";

/// Returns the command line as typed: arguments that `harness run` requires may also come from the layers below the flags.
pub fn command() -> Command {
    Cli::command().mut_subcommand("run", |run| run.mut_args(|argument| argument.required(false)))
}

/// Returns the options of `harness run` whose heading is `wanted`, by their long names.
pub fn run_options(wanted: impl Fn(&str) -> bool) -> Vec<OptionName> {
    options(&run_command(), wanted).map(|(option, _)| option).collect()
}

/// Warns of variables that set an option of `harness run`, for a command that ignores them.
pub fn warn_of_variables(command: &str) {
    let cli = Cli::command();
    let has_set = cli.find_subcommand(command).is_some_and(|command| {
        let mut arguments = command.get_arguments();
        arguments.any(|argument| argument.get_long() == Some("set"))
    });
    let of_experiments = match has_set {
        true => run_options(describes_experiment),
        false => Vec::new(),
    };
    for option in run_options(|_| true) {
        let variable = variable_of(&option);
        if env::var_os(&variable).is_some() {
            eprintln!("warning: only `harness run` reads {variable}; `harness {command}` ignores it");
            if of_experiments.contains(&option) {
                eprintln!("hint: --set {}=VALUE sets it in every run", option.name);
            }
        }
    }
}

/// Warns that a command ignores `harness.toml`, which may name another lock.
pub fn warn_of_file(command: &str) {
    if let Ok(Some((path, _))) = discovery::nearest() {
        let path = path.display();
        eprintln!("warning: only `harness run` reads {path}; `harness {command}` ignores it");
    }
}

/// `HARNESS_LEASE`, for `--lease`.
fn variable_of(option: &OptionName) -> String {
    format!("{PREFIX}{}", option.name.replace('-', "_").to_uppercase())
}

/// Reads words as `harness run` does, without any other layer.
pub fn parse_run(words: impl IntoIterator<Item = String>) -> Result<RunArgs, clap::Error> {
    let matches = run_command().no_binary_name(true).try_get_matches_from(words)?;
    RunArgs::from_arg_matches(&matches)
}

/// Reads settings as `harness run` does, without any other layer. The run knows which options were given.
pub fn run_of(settings: &[Setting]) -> Result<RunArgs, clap::Error> {
    let set = settings.iter().filter(|setting| setting.is_set());
    Ok(RunArgs {
        settings: settings.to_vec(),
        ..parse_run(set.filter_map(Setting::word))?
    })
}

/// Returns the reason for which clap refuses the options of a run, without the usage.
pub fn refusal(error: &clap::Error) -> String {
    let text = error.to_string();
    let sentence = text.trim_start_matches("error: ").split("\n\n").next();
    sentence.unwrap_or_default().to_owned()
}

/// Returns the settings of `--set`.
pub fn set(given: &[String], options: &[OptionName]) -> Result<Vec<Setting>, Failure> {
    let setting = |given: &String| {
        let refused = |why: &str| Failure::usage(format!("--set {given}: {why}"));
        let (key, value) = given.split_once('=').ok_or_else(|| refused("expected OPTION=VALUE"))?;
        let names = options.iter().map(|option| option.name.as_str());
        let option = options.iter().find(|option| option.name == key);
        let unknown = || match run_options(|_| true).iter().any(|other| other.name == key) {
            true => format!("--{key} is not an option of the experiment"),
            false => unknown_word("option", key, names, "see `harness run --help`"),
        };
        let option = option.ok_or_else(|| refused(&unknown()))?;
        if option.switch && !["true", "false"].contains(&value) {
            return Err(refused("expected true or false"));
        }
        Ok(option.set(value.to_owned(), SettingOrigin::Flag))
    };
    given.iter().map(setting).collect()
}

/// Returns the options of a run: the flags in `typed`, completed by the other layers. Errors are printed.
pub fn run_args(typed: &ArgMatches) -> Result<RunArgs, Exit> {
    let sources = if typed.get_flag("no_config") {
        Ok(Sources::default())
    } else {
        Sources::look(typed.get_one::<PathBuf>("file").map(PathBuf::as_path))
    };
    let settings = sources
        .and_then(|sources| layered(typed, &sources))
        .map_err(|sentence| complain(Exit::Usage, sentence))?;
    run_of(&settings).map_err(|error| {
        let exit = refuse(&error);
        for setting in settings.iter().filter(|setting| is_about(&error, setting)) {
            eprintln!("hint: --{} comes from: {}", setting.option.name, setting.origin);
        }
        exit
    })
}

fn run_command() -> Command {
    let mut cli = Cli::command();
    let run = cli.find_subcommand_mut("run").expect("there is a command `run`");
    run.clone().bin_name("harness run")
}

fn options(run: &Command, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = (OptionName, &Arg)> {
    let wanted = run
        .get_arguments()
        .filter(move |argument| argument.get_help_heading().is_some_and(&wanted));
    wanted.filter_map(|argument| {
        let name = argument.get_long()?.to_owned();
        let switch = !argument.get_action().takes_values();
        Some((OptionName { name, switch }, argument))
    })
}

/// Whether a refusal by clap names an option that was not typed.
fn is_about(error: &clap::Error, setting: &Setting) -> bool {
    let flag = format!("--{}", setting.option.name);
    let names = |text: &str| text.split([' ', '=']).next() == Some(&flag);
    let typed = matches!(setting.origin, SettingOrigin::Flag | SettingOrigin::Default);
    !typed
        && match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(text)) => names(text),
            Some(ContextValue::Strings(texts)) => texts.iter().any(|text| names(text)),
            _ => false,
        }
}

/// The environment and the file.
#[derive(Debug, Default)]
struct Sources {
    /// The variables that begin with `HARNESS_`.
    environment: BTreeMap<String, OsString>,
    /// The file's name, as it is shown, and its text.
    file: Option<(String, String)>,
}

impl Sources {
    fn look(named: Option<&Path>) -> Result<Self, String> {
        let variables = env::vars_os().map(|(name, value)| (name.to_string_lossy().into_owned(), value));
        let file = match named {
            None => discovery::nearest()?,
            Some(path) => match std::fs::read_to_string(path) {
                Ok(text) => Some((path.to_owned(), text)),
                Err(error) => return Err(format!("could not read {}: {error}", path.display())),
            },
        };
        Ok(Self {
            environment: variables.filter(|(name, _)| name.starts_with(PREFIX)).collect(),
            file: file.map(|(path, text)| (path.display().to_string(), text)),
        })
    }

    /// Returns the settings in the environment, then those of the profile, then the rest of the file.
    fn settings(&self, options: &[OptionName], profile: Option<&str>) -> Result<Vec<Setting>, String> {
        let named = self.environment.get(PROFILE).filter(|value| !value.is_empty());
        let named = named.map(|value| text_of(PROFILE, value));
        let profile = profile.or(named.transpose()?);
        let mut all = self.variables(options)?;
        match (&self.file, profile) {
            (Some((file, text)), _) => {
                all.extend(in_file(options, file, text, profile).map_err(|error| format!("{file}: {error}"))?)
            }
            (None, Some(profile)) => return Err(format!("profile {profile}: there is no {FILE} here or above")),
            (None, None) => {}
        }
        Ok(all)
    }

    fn variables(&self, options: &[OptionName]) -> Result<Vec<Setting>, String> {
        let known: Vec<String> = options.iter().map(variable_of).collect();
        let read = |(name, value): (&String, &OsString)| {
            let Some(index) = known.iter().position(|known| known == name) else {
                let known = known.iter().map(String::as_str).chain([PROFILE]);
                return Err(unknown_variable(name, known));
            };
            let option = &options[index];
            let value = match (option.switch, text_of(name, value)?) {
                (false, value) => value,
                (true, "1" | "true") => "true",
                (true, "0" | "false" | "") => "false",
                (true, other) => return Err(format!("{name}={other}: expected 1 or 0")),
            };
            let origin = SettingOrigin::Environment { name: name.clone() };
            Ok(option.set(value.to_owned(), origin))
        };
        let set = self.environment.iter().filter(|(name, _)| *name != PROFILE);
        set.map(read).collect()
    }
}

fn text_of<'a>(name: &str, value: &'a OsString) -> Result<&'a str, String> {
    let text = value.to_str();
    text.ok_or_else(|| format!("the variable {name} is not text: {value:?}"))
}

/// Returns the error for an unknown variable. Suggestions disregard the prefix that all names share.
fn unknown_variable<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known = known.map(|known| known.trim_start_matches(PREFIX));
    let hint = match similar(name.trim_start_matches(PREFIX), known).first() {
        Some(nearest) => format!("did you mean `{PREFIX}{nearest}`?"),
        None => "`harness run --show-config` lists the options; HARNESS_LEASE sets --lease".to_owned(),
    };
    format!("there is no variable `{name}`\nhint: {hint}")
}

/// Returns the settings of the profile, then the rest of the file.
fn in_file(options: &[OptionName], file: &str, text: &str, profile: Option<&str>) -> Result<Vec<Setting>, String> {
    let mut top = toml::read(text)?;
    let profiles = top.remove("profile");
    let names = || options.iter().map(|option| option.name.as_str());
    toml::refuse_unknown(&top, names().chain(["profile"]))?;
    let mut all = Vec::new();
    let profiles = profiles.as_ref().map(|at| at.table("profile")).transpose()?;
    // a profile that is not applied is checked as well: the next call may apply it
    for (name, at) in profiles.into_iter().flatten() {
        let table = at.table(name)?;
        toml::refuse_unknown(table, names())?;
        let settings = settings(table, options, |line| SettingOrigin::Profile {
            profile: name.clone(),
            file: file.to_owned(),
            line,
        })?;
        if profile == Some(name) {
            all.extend(settings);
        }
    }
    if let Some(profile) = profile.filter(|profile| profiles.is_none_or(|known| !known.contains_key(*profile))) {
        let known: Vec<&str> = profiles.into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let hint = known.join(", ");
        return Err(unknown_word("profile", profile, known, &hint));
    }
    let file = file.to_owned();
    all.extend(settings(&top, options, |line| SettingOrigin::File {
        file: file.clone(),
        line,
    })?);
    Ok(all)
}

/// Returns every option with its value and origin, in the order of the help. A layer sets no option that a layer above
/// it has set, and none that conflicts with one.
fn layered(typed: &ArgMatches, sources: &Sources) -> Result<Vec<Setting>, String> {
    let mut run = run_command();
    run.build();
    let flag = |(option, argument): (OptionName, &Arg)| flag(option, argument, typed).transpose();
    let mut set: Vec<Setting> = options(&run, |_| true).filter_map(flag).collect::<Result<_, _>>()?;
    let configurable: Vec<OptionName> = options(&run, is_configurable).map(|(option, _)| option).collect();
    let profile = typed.get_one::<String>("profile").map(String::as_str);
    for setting in sources.settings(&configurable, profile)? {
        // within a layer clap refuses it: a file with a recipe and a client does not say which of them is meant
        let is_above = |other: &Setting| discriminant(&other.origin) != discriminant(&setting.origin);
        let excludes = |other: &Setting| {
            other.option == setting.option || is_above(other) && conflict(&run, &other.option, &setting.option)
        };
        if !set.iter().any(excludes) {
            set.push(setting);
        }
    }
    let of = |(option, argument): (OptionName, &Arg)| {
        let found = set.iter().find(|setting| setting.option == option).cloned();
        found.unwrap_or_else(|| default(option, argument))
    };
    Ok(options(&run, |_| true).map(of).collect())
}

fn conflict(run: &Command, one: &OptionName, other: &OptionName) -> bool {
    let excludes = |one: &OptionName, other: &OptionName| {
        let mut arguments = run.get_arguments();
        let argument = arguments.find(|argument| argument.get_long() == Some(&one.name));
        let conflicts = argument.map(|one| run.get_arg_conflicts_with(one)).unwrap_or_default();
        conflicts
            .iter()
            .any(|argument| argument.get_long() == Some(&other.name))
    };
    excludes(one, other) || excludes(other, one)
}

/// Returns the typed value.
fn flag(option: OptionName, argument: &Arg, typed: &ArgMatches) -> Result<Option<Setting>, String> {
    let id = argument.get_id().as_str();
    if typed.value_source(id) != Some(ValueSource::CommandLine) {
        return Ok(None);
    }
    let value = if option.switch {
        "true".to_owned()
    } else {
        let words = typed.get_raw(id).into_iter().flatten();
        let words: Option<Vec<&str>> = words.map(|word| word.to_str()).collect();
        words
            .ok_or_else(|| format!("--{} is not UTF-8", option.name))?
            .join(",")
    };
    Ok(Some(option.set(value, SettingOrigin::Flag)))
}

fn default(option: OptionName, argument: &Arg) -> Setting {
    let values = argument.get_default_values().iter();
    let values: Vec<String> = values.map(|value| value.to_string_lossy().into_owned()).collect();
    let value = match option.switch {
        true => Some("false".to_owned()),
        false => (!values.is_empty()).then(|| values.join(",")),
    };
    let origin = SettingOrigin::Default;
    Setting { option, value, origin }
}

/// Returns the run of a command line.
#[cfg(test)]
pub fn typed_run(words: Vec<String>) -> RunArgs {
    let matches = command().try_get_matches_from(words).expect("it parses");
    run_args(matches.subcommand_matches("run").expect("it is a run")).expect("it is complete")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOML: &str =
        "lease = \"3s\"\nclients = 7\nreentrant = true\n\n[profile.nightly]\nlease = \"4s\"\ntime = \"5m\"\n";

    /// Returns the settings that are set, in the order of the help.
    fn set(line: &str, environment: &[(&str, &str)], file: Option<&str>) -> Result<Vec<String>, String> {
        let sources = Sources {
            environment: environment
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect(),
            file: file.map(|text| ("harness.toml".to_owned(), text.to_owned())),
        };
        let typed = command().try_get_matches_from(line.split(' ')).expect("it can be read");
        let all = layered(typed.subcommand_matches("run").expect("it is a run"), &sources)?;
        let set = all.iter().filter(|setting| setting.is_set());
        Ok(set
            .map(|setting| format!("{} ({})", setting.word().unwrap_or_default(), setting.origin))
            .collect())
    }

    #[test]
    fn a_flag_beats_the_environment_beats_the_profile_beats_the_file() {
        let file = Some(TOML);
        assert_eq!(
            set("harness run --backend zk", &[], file).unwrap(),
            [
                "--backend=zk (flag)",
                "--lease=3s (file, harness.toml:1)",
                "--clients=7 (file, harness.toml:2)",
                "--reentrant (file, harness.toml:3)",
            ]
        );
        assert_eq!(
            set("harness run --profile nightly --clients 2", &[], file).unwrap(),
            [
                "--lease=4s (profile nightly, harness.toml:6)",
                "--clients=2 (flag)",
                "--time=5m (profile nightly, harness.toml:7)",
                "--reentrant (file, harness.toml:3)",
                "--profile=nightly (flag)",
            ]
        );
        for file in [None, file] {
            let empty = set("harness run --clients 2", &[("HARNESS_PROFILE", "")], file).unwrap();
            assert_eq!(empty, set("harness run --clients 2", &[], file).unwrap());
        }
        let environment = [
            ("HARNESS_PROFILE", "nightly"),
            ("HARNESS_LEASE", "9s"),
            ("HARNESS_REENTRANT", "0"),
        ];
        assert_eq!(
            set("harness run", &environment, file).unwrap(),
            [
                "--lease=9s (environment, HARNESS_LEASE)",
                "--clients=7 (file, harness.toml:2)",
                "--time=5m (profile nightly, harness.toml:7)",
                " (environment, HARNESS_REENTRANT)",
            ]
        );
    }

    #[test]
    fn a_flag_excludes_what_conflicts_with_it() {
        let file = "recipe = \"zk-polling\"\nholder = \"naive\"\nclients = 3";
        let own = set("harness run --client ./mine", &[], Some(file)).unwrap();
        assert_eq!(own, ["--clients=3 (file, harness.toml:3)", "--client=./mine (flag)"]);
        // the promises of a file's client are overridden with the client
        let file = Some("client = \"./mine\"\npromise = \"renews=false\"");
        let recipe = set("harness run --recipe zk-polling", &[], file).unwrap();
        assert_eq!(recipe, ["--recipe=zk-polling (flag)"]);
        // a layer that conflicts with itself is refused when it is parsed
        let both = set("harness run", &[], Some("recipe = \"zk-polling\"\nclient = \"./mine\"")).unwrap();
        assert_eq!(both.len(), 2, "{both:?}");
    }

    #[test]
    fn what_is_wrong_in_a_file_or_the_environment_is_said_with_its_place() {
        let in_file = |text: &str| set("harness run", &[], Some(text)).unwrap_err();
        let variable = |name: &str, value: &str| set("harness run", &[(name, value)], None).unwrap_err();
        let profile = |name: &str, file| set(&format!("harness run --profile {name}"), &[], file).unwrap_err();
        for (sentence, words) in [
            (in_file("[profile.a]\nleese = 1"), "line 2"),
            (in_file("[profil.a]\nlease = 1"), "did you mean `profile`"),
            (in_file("dry-run = true"), "there is no key `dry-run`"),
            (profile("nihgtly", Some(TOML)), "did you mean `nightly`"),
            (profile("nightly", None), "no harness.toml"),
            (variable("HARNESS_REENTRANT", "maybe"), "1 or 0"),
            (
                variable("HARNESS_XYZ", "1"),
                "there is no variable `HARNESS_XYZ`\nhint: `harness run --show-config` lists",
            ),
        ] {
            assert!(sentence.contains(words), "{words}: {sentence}");
        }
    }

    #[test]
    fn a_variable_that_is_not_text_is_refused_and_not_passed_over() {
        use std::os::unix::ffi::OsStringExt;

        let options = run_options(is_configurable);
        let of = |name: &str| Sources {
            environment: BTreeMap::from([(name.to_owned(), OsString::from_vec(vec![0xff]))]),
            file: None,
        };
        for name in ["HARNESS_LEASE", "HARNESS_PROFILE", "HARNESS_REENTRANT"] {
            let refused = of(name).settings(&options, None).unwrap_err();
            assert_eq!(refused, format!("the variable {name} is not text: \"\\xFF\""));
        }
    }

    #[test]
    fn a_value_that_is_refused_is_traced_to_its_origin() {
        let setting = |name: &str, origin| Setting::of(name, "never".to_owned(), origin);
        let error = parse_run(["--backend=zk", "--time=never"].map(String::from)).unwrap_err();
        let variable = || SettingOrigin::Environment {
            name: "HARNESS_TIME".into(),
        };
        assert!(is_about(&error, &setting("time", variable())));
        assert!(!is_about(&error, &setting("lease", variable())));
        assert!(!is_about(&error, &setting("time", SettingOrigin::Flag)));
    }

    #[test]
    fn every_option_has_a_value_or_a_default_and_a_heading() {
        let line = "harness run --clients 2 --fault latency,reset --fault kill";
        let typed = command().try_get_matches_from(line.split(' ')).unwrap();
        let all = layered(typed.subcommand_matches("run").unwrap(), &Sources::default()).unwrap();
        let of = |option: &str| {
            let found = all.iter().find(|setting| setting.option.name == option).expect(option);
            (found.value.as_deref(), &found.origin)
        };
        assert_eq!(of("clients"), (Some("2"), &SettingOrigin::Flag));
        assert_eq!(of("fault"), (Some("latency,reset,kill"), &SettingOrigin::Flag));
        assert_eq!(of("hold"), (Some("10ms"), &SettingOrigin::Default));
        assert_eq!(of("quiet"), (Some("false"), &SettingOrigin::Default));
        assert_eq!(of("seed"), (None, &SettingOrigin::Default));
        for argument in run_command().get_arguments() {
            assert!(argument.get_help_heading().is_some(), "{argument}");
        }
    }
}
