//! `harness run --show-config`: each option, its value, and where that comes from.

use super::layers::Shown;
use super::stdout::{print, print_json};
use crate::exit::Exit;

pub fn show_config(options: &[Shown], json: bool) -> Exit {
    if json {
        print_json(&options);
    } else {
        print(&table(options));
    }
    Exit::Holds
}

fn table(options: &[Shown]) -> String {
    let value = |shown: &Shown| shown.value.clone().unwrap_or_else(|| "-".to_owned());
    let names = options.iter().map(|shown| shown.option.len()).max().unwrap_or(0);
    let values = options.iter().map(|shown| value(shown).len()).max().unwrap_or(0);
    let line = |shown: &Shown| {
        let (option, value) = (&shown.option, value(shown));
        format!("{option:<names$}  {value:<values$}  {}\n", shown.origin)
    };
    options.iter().map(line).collect()
}
