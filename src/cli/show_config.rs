//! `harness run --show-config`: every option with its value and its origin.

use std::collections::BTreeMap;
use std::time::Duration;

use super::args::RunArgs;
use super::settings::run_options;
use super::stdout::{print_json, print_table};
use crate::config::Clients;
use crate::config::heading::is_configurable;
use crate::config::setting::Setting;
use crate::exit::Exit;

/// Prints every option with its value and origin.
pub fn show_config(args: &RunArgs) -> Exit {
    let shown = shown(args);
    if args.json {
        print_json(&shown);
        return Exit::Holds;
    }
    let value = |setting: &Setting| setting.value.clone().unwrap_or_else(|| "-".to_owned());
    let names = shown.iter().map(|setting| setting.option.name.len()).max().unwrap_or(0);
    let values = shown.iter().map(|setting| value(setting).len()).max().unwrap_or(0);
    let line = |setting: &Setting| {
        let (name, value) = (&setting.option.name, value(setting));
        format!("{name:<names$}  {value:<values$}  {}\n", setting.origin)
    };
    print_table(&shown.iter().map(line).collect::<String>());
    Exit::Holds
}

fn shown(args: &RunArgs) -> Vec<Setting> {
    let configurable = run_options(is_configurable);
    let mut decided = decided(args);
    let settings = args.settings.iter();
    let settings = settings.filter(|setting| configurable.contains(&setting.option));
    let complete = |setting: &Setting| {
        let decided = decided.remove(setting.option.name.as_str());
        Setting {
            value: decided.filter(|_| !setting.is_set()).or_else(|| setting.value.clone()),
            ..setting.clone()
        }
    };
    settings.map(complete).collect()
}

/// Returns the values of unset options whose defaults depend on other options. The run itself refuses options that cannot be
/// combined.
fn decided(args: &RunArgs) -> BTreeMap<&'static str, String> {
    let Ok(config) = args.config(0) else {
        return BTreeMap::new();
    };
    let mut decided = BTreeMap::from([
        ("nodes", config.nodes.to_string()),
        ("wait", typed(config.wait)),
        ("vary", typed(config.vary)),
        ("answer-limit", typed(config.patience())),
        ("progress-bound", typed(config.progress_bound)),
    ]);
    if let Clients::Recipe(options) = &config.who {
        decided.insert("recipe", options.recipe.name.to_owned());
        decided.insert("interval", typed(options.interval));
    }
    decided
}

/// Returns a time as the value of an option.
fn typed(time: Duration) -> String {
    match time.subsec_millis() {
        0 => format!("{}s", time.as_secs()),
        _ => format!("{}ms", time.as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::settings::typed_run;

    fn shown_of(words: &str) -> BTreeMap<String, String> {
        let words = format!("harness run --no-config {words}");
        let args = typed_run(words.split(' ').map(str::to_owned).collect());
        let values = shown(&args).into_iter();
        values
            .map(|setting| (setting.option.name, setting.value.unwrap_or_default()))
            .collect()
    }

    #[test]
    fn a_default_that_depends_on_other_options_is_shown_as_the_run_takes_it() {
        for (words, option, value) in [
            ("--backend zk", "nodes", "3"),
            ("--backend zk", "recipe", "zk-predecessor-watch"),
            ("--backend redis", "nodes", "1"),
            ("--backend redis --recipe redlock", "nodes", "5"),
            ("--backend redis", "wait", "10s"),
            ("--backend redis --each 3 --time 90s", "wait", "90s"),
            ("--backend redis --lease 1500ms", "answer-limit", "8s"),
            ("--backend redis", "progress-bound", "10s"),
            ("--backend nats", "progress-bound", "19s"),
            ("--backend nats --progress-bound 4s", "progress-bound", "4s"),
            // a value that is set is shown as it is
            ("--backend zk --nodes 5", "nodes", "5"),
            // and a client has no recipe
            ("--backend redis --client ./mine", "recipe", ""),
        ] {
            assert_eq!(shown_of(words)[option], value, "{words}");
        }
    }
}
