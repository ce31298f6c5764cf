//! `harness adapters`: installs the lock libraries that `--client NAME` runs.

use std::borrow::Cow;

use super::Failure;
use super::stdout::print;
use crate::adapters::{self, Adapter, Installed};
use crate::backends::Backend;
use crate::config::suggest::unknown_word;
use crate::config::{named_backends, parse_backend};
use crate::exit::Exit;

/// Installs the named adapters, or those of a backend, or all. A failed installation does not prevent the others.
pub fn install(names: &[String], backend: Option<&str>) -> Result<Exit, Failure> {
    let known = |name: &String| {
        let adapter = adapters::typed(name).map_err(Failure::usage)?;
        adapter.ok_or_else(|| {
            let names = adapters::all().iter().map(|adapter| adapter.name.as_str());
            Failure::usage(unknown_word("client", name, names, "`harness list clients` shows all"))
        })
    };
    let wanted: Vec<Cow<'_, Adapter>> = if names.is_empty() {
        let backend = backend.map(parse_backend).transpose().map_err(Failure::usage)?;
        let of_backend = listed(backend);
        if let (Some(backend), true) = (backend, of_backend.is_empty()) {
            let has_some = |other: &&'static Backend| !listed(Some(*other)).is_empty();
            let others: Vec<&str> = named_backends().filter(has_some).map(Backend::name).collect();
            let others = others.join(", ");
            return Err(Failure::usage(format!(
                "no adapter is for {backend}, only for {others}\nhint: `harness list clients` shows all"
            )));
        }
        of_backend.into_iter().map(Cow::Borrowed).collect()
    } else {
        names.iter().map(known).collect::<Result<_, _>>()?
    };
    let count = wanted.len();
    let mut failed = Vec::new();
    for (number, adapter) in (1..).zip(wanted) {
        // a program in Rust takes minutes to build
        eprintln!("[{number}/{count}] {}: {}", adapter.name, adapter.library);
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

/// Returns the adapters whose locks work on a backend, or all.
fn listed(backend: Option<&Backend>) -> Vec<&'static Adapter> {
    let works = |adapter: &&Adapter| backend.is_none_or(|backend| backend.takes_locks_of(&adapter.backend));
    adapters::all().iter().filter(works).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_has_the_adapters_whose_locks_work_on_it() {
        let names = |backend: &str| {
            let adapters = listed(Some(parse_backend(backend).unwrap())).into_iter();
            adapters.map(|adapter| adapter.name.as_str()).collect::<Vec<_>>()
        };
        assert!(names("redis").contains(&"redis-py") && !names("redis").contains(&"kazoo-lock"));
        assert_eq!(names("valkey"), names("redis"));
        assert!(names("kube-lease").contains(&"kubert"));
        assert!(names("mariadb").is_empty());
        assert_eq!(listed(None).len(), adapters::all().len());
    }
}
