//! The open files of a run: each link listens, and has a connection on both its sides.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::config::Config;

/// Of one link: its listener, and both sides of a client's connection to a server, or of the previous one.
const OF_A_LINK: u64 = 4;
/// Of all other parts: histories, logs, pipes to processes of clients, observers.
const OF_A_RUN: u64 = 200;
/// Pipes to a process of clients.
const OF_A_PROCESS: u64 = 4;

/// Raises the limit of open files to the needs of this run, as far as this process may. The error names the missing number.
pub fn make_room(config: &Config) -> Result<(), String> {
    let links = u64::from(config.clients) * u64::from(config.nodes);
    let needed = links * OF_A_LINK + u64::from(config.processes()) * OF_A_PROCESS + OF_A_RUN;
    let (soft, hard) =
        getrlimit(Resource::RLIMIT_NOFILE).map_err(|error| format!("the limit of open files: {error}"))?;
    if soft >= needed {
        return Ok(());
    }
    if hard < needed {
        return Err(too_few(config, needed, hard));
    }
    setrlimit(Resource::RLIMIT_NOFILE, needed, hard).map_err(|error| format!("the limit of open files: {error}"))
}

fn too_few(config: &Config, needed: u64, hard: u64) -> String {
    format!(
        "{} clients on {} servers need about {needed} open files, and at most {hard} are allowed here\nhint: fewer --clients, or a higher limit (`ulimit -Hn`)",
        config.clients, config.nodes
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_clients_fit_and_the_sentence_says_what_many_need() {
        let mut config = Config::example();
        make_room(&config).unwrap();
        (config.clients, config.per_process) = (5_000, 500);
        let sentence = too_few(&config, 60_240, 4_096);
        assert!(
            sentence.starts_with("5000 clients on 3 servers need about 60240 open files, and at most 4096 are allowed"),
            "{sentence}"
        );
    }
}
