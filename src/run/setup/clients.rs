//! The clients of a run: the command that starts them, and the request with which each opens its session.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use harness_tls::TlsFiles;
use harness_workloads::Login;
use harness_workloads::protocol::{ClusterEndpoints, MASTER_NAME, OpenRequest, SentinelEndpoints};

use super::{ClientLinks, WallClocks};
use crate::adapters;
use crate::backends::Topology;
use crate::clock::GroundClock;
use crate::cluster::{Cluster, NotWritten, RunTls, find_program};
use crate::config::{Clients, Config};
use crate::run::clients::access::ClientAccess;
use crate::run::clients::child::{ChildCommand, ChildSpawner};
use crate::run::clients::pool::ClientPool;
use crate::run::{RunError, RunSpec};

/// Returns the clients of these servers, none of them started.
pub fn client_pool(
    spec: &RunSpec,
    links: &ClientLinks,
    clocks: &WallClocks,
    servers: &Cluster,
) -> Result<ClientPool, RunError> {
    let logs = spec.folder.clients();
    std::fs::create_dir_all(&logs).map_err(NotWritten::at(&logs))?;
    let config = &spec.config;
    let spawner = ChildSpawner {
        command: client_command(config, servers.login(), servers.tls().map(RunTls::files))?,
        clocks: clocks.clients.clone(),
    };
    let address = |client, server| links.address(config, client, server);
    let opens = opens(config, &servers.announced(), address);
    Ok(ClientPool::new(spec, Arc::new(spawner), GroundClock::Real, opens))
}

/// Returns the request with which each client opens. Its addresses begin with another server each, so that the load spreads.
pub fn opens(config: &Config, announced: &[SocketAddr], address: impl Fn(u32, u32) -> String) -> Vec<OpenRequest> {
    let told = config.backend.told_of(config.nodes);
    let endpoints = |client: u32| {
        let many = told.end - told.start;
        let server = |offset| told.start + (client + offset) % many;
        (0..many).map(|offset| address(client, server(offset))).collect()
    };
    let addresses = |client: u32| {
        let servers = (0..).zip(announced);
        let reached = servers.map(|(server, announced)| (announced.to_string(), address(client, server)));
        reached.collect()
    };
    let sentinel = |client| SentinelEndpoints {
        master: MASTER_NAME.to_owned(),
        addresses: addresses(client),
    };
    let cluster = |client| ClusterEndpoints {
        addresses: addresses(client),
    };
    let topology = config.backend.topology;
    let open = |client| OpenRequest {
        sentinel: (topology == Topology::Sentinel).then(|| sentinel(client)),
        cluster: (topology == Topology::Cluster).then(|| cluster(client)),
        ..OpenRequest::plain(config.backend.name(), endpoints(client), config.lease)
    };
    (0..config.clients).map(open).collect()
}

/// Returns a line for the shell, with `exec` if the line is nothing but one program: the shell would be a second process.
fn as_one_process(line: String) -> String {
    let is_one_program = !line.contains([';', '&', '|', '<', '>', '(', ')', '`', '#', '\n']);
    let program = first_word(&line);
    let is_there = if program.contains('/') {
        Path::new(&program).is_file()
    } else {
        find_program(&program).is_some()
    };
    if is_one_program && is_there {
        format!("exec {line}")
    } else {
        line
    }
}

/// Returns the first word of a line for the shell, without single quotes and backslashes.
fn first_word(line: &str) -> String {
    let (mut word, mut is_quoted) = (String::new(), false);
    let mut letters = line.trim_start().chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => is_quoted = !is_quoted,
            '\\' if !is_quoted => word.extend(letters.next()),
            _ if letter.is_whitespace() && !is_quoted => break,
            _ => word.push(letter),
        }
    }
    word
}

/// Returns the command line of a client process, and its access.
pub fn client_command(
    config: &Config,
    login: Option<Arc<Login>>,
    tls: Option<&TlsFiles>,
) -> Result<ChildCommand, RunError> {
    let access = ClientAccess {
        backend: config.backend.id,
        login,
        tls: tls.cloned(),
    };
    let options = match &config.who {
        Clients::Foreign { command, .. } => {
            let command = adapters::shell_command(command).map_err(RunError::Clients)?;
            let mut command = ChildCommand::of_shell(as_one_process(command), access);
            // a client that is alone in its process needs no thread
            command
                .env
                .push(("HARNESS_CLIENTS".to_owned(), config.per_process.to_string()));
            return Ok(command);
        }
        Clients::Recipe(options) => options,
    };
    let own = std::env::current_exe().map_or_else(|_| "harness".into(), |path| path.display().to_string());
    let mut args = vec!["client".to_owned()];
    args.extend(["--recipe".to_owned(), options.recipe.name.to_owned()]);
    args.extend(["--holder".to_owned(), options.policy.to_string()]);
    args.extend(["--guid".to_owned(), if options.guid { "on" } else { "off" }.to_owned()]);
    args.extend(["--interval".to_owned(), format!("{}us", options.interval.as_micros())]);
    if options.reentrant {
        args.push("--reentrant".to_owned());
    }
    Ok(ChildCommand {
        program: own,
        args,
        env: Vec::new(),
        access,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_one_program_takes_the_place_of_its_shell() {
        for line in ["sleep 1", "/bin/sleep 1", "'/bin/sleep' \"1\"", "env A=1 sleep $B"] {
            assert_eq!(as_one_process(line.into()), format!("exec {line}"));
        }
        // an adapter in the cache of a user
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("it's a program");
        std::fs::write(&program, "").unwrap();
        let line = format!("'{}' once", program.display().to_string().replace('\'', r"'\''"));
        assert_eq!(as_one_process(line.clone()), format!("exec {line}"));
        for line in [
            "cd /tmp && sleep 1",
            "sleep 1; true",
            "sleep $(echo 1)",
            "A=1 sleep 1",
            "exec sleep 1",
            "read line",
            "./no-such-program",
            "",
        ] {
            assert_eq!(as_one_process(line.into()), line);
        }
    }
}
