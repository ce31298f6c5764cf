//! `harness adapters`: installs the lock libraries that `--client NAME` runs.

use std::borrow::Cow;

use super::Failure;
use super::stdout::print;
use crate::adapters::{self, Adapter, Installed};
use crate::config::suggest::unknown_word;
use crate::exit::Exit;

/// Installs these adapters, or those of a backend, or all. One that cannot be installed does not keep the others from it.
pub fn install(names: &[String], backend: Option<&str>) -> Result<Exit, Failure> {
    let known = |name: &String| {
        let adapter = adapters::typed(name).map_err(Failure::usage)?;
        adapter.ok_or_else(|| {
            let names = adapters::all().iter().map(|adapter| adapter.name.as_str());
            Failure::usage(unknown_word("client", name, names, "`harness list clients` shows all"))
        })
    };
    let wanted: Vec<Cow<'_, Adapter>> = if names.is_empty() {
        let of_backend = |adapter: &&Adapter| backend.is_none_or(|backend| adapter.backend == backend);
        adapters::all().iter().filter(of_backend).map(Cow::Borrowed).collect()
    } else {
        names.iter().map(known).collect::<Result<_, _>>()?
    };
    let mut failed = Vec::new();
    for adapter in wanted {
        eprintln!("{}: {}", adapter.name, adapter.library);
        match adapter.install() {
            Ok(Installed::Now(folder)) => print(&format!("{}: installed in {}\n", adapter.name, folder.display())),
            Ok(Installed::Before(folder)) => {
                print(&format!("{}: was installed in {}\n", adapter.name, folder.display()))
            }
            Err(error) => failed.push(format!("{}: {error}", adapter.name)),
        }
    }
    if failed.is_empty() {
        return Ok(Exit::Holds);
    }
    Err(Failure::environment(failed.join("\n")))
}
