//! Redis: its command line and its `INFO`.

use std::net::SocketAddr;

use super::outlets::Peering;
use super::server::{Answer, Container, Launch, Server, Serving, Setup, find_program};

pub struct Redis;

impl Server for Redis {
    fn backend(&self) -> &'static str {
        "redis"
    }

    fn product(&self) -> &'static str {
        "Redis"
    }

    fn nodes(&self) -> u32 {
        1
    }

    fn ports(&self) -> usize {
        1
    }

    fn container_ports(&self) -> Vec<u16> {
        vec![6379]
    }

    fn missing(&self) -> Vec<String> {
        find_program("redis-server")
            .is_none()
            .then(|| "redis-server".to_owned())
            .into_iter()
            .collect()
    }

    fn install_hint(&self) -> &'static str {
        "apt-get install redis-server (or put a redis-server binary on PATH)"
    }

    fn peering(&self) -> Peering {
        Peering::Replica
    }

    fn launch(&self, setup: &Setup) -> Launch {
        let mut args = arguments(setup, &setup.bind);
        args.extend(["--dir".to_owned(), setup.data.display().to_string()]);
        Launch {
            program: find_program("redis-server").unwrap_or_else(|| "redis-server".into()),
            args,
            ..Launch::default()
        }
    }

    fn image(&self) -> &'static str {
        "redis:7"
    }

    fn container(&self, setup: &Setup) -> Container {
        let mut command = vec!["redis-server".to_owned()];
        command.extend(arguments(setup, "0.0.0.0"));
        Container {
            env: Vec::new(),
            command,
        }
    }

    fn question(&self, _: &str) -> Vec<u8> {
        b"INFO\r\n".to_vec()
    }

    fn answer(&self, bytes: &[u8], closed: bool) -> Answer {
        let text = String::from_utf8_lossy(bytes);
        if let Some(error) = text.strip_prefix('-') {
            return Answer::NotYet(error.trim().to_owned());
        }
        let after = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        // the keyspace section is the last one
        match (after("role:"), after("redis_version:"), text.contains("# Keyspace")) {
            (Some("slave"), _, true) if after("master_link_status:") != Some("up") => {
                Answer::NotYet("it is not in step with its master".into())
            }
            (Some("slave"), version, true) => serving("replica", version),
            (Some(role), version, true) => serving(role, version),
            _ if closed => Answer::NotYet("it closed the connection".into()),
            _ => Answer::Unfinished,
        }
    }
}

fn serving(role: &str, version: Option<&str>) -> Answer {
    Answer::Serving(Serving {
        role: role.to_owned(),
        version: version.unwrap_or("?").to_owned(),
    })
}

/// No persistence: what a test wrote is gone with the server. Keyspace events are what the observer reads.
fn arguments(setup: &Setup, bind: &str) -> Vec<String> {
    let settings = [
        ("--port", setup.me().ports[0].to_string()),
        ("--bind", bind.to_owned()),
        ("--save", String::new()),
        ("--appendonly", "no".into()),
        ("--daemonize", "no".into()),
        ("--protected-mode", "no".into()),
        ("--notify-keyspace-events", "Kg$x".into()),
        // a replica is in step at once, not after five seconds
        ("--repl-diskless-sync-delay", "0".into()),
        ("--loglevel", "notice".into()),
    ];
    let mut arguments: Vec<String> = settings
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect();
    // where there are outlets, the first is the master of the others
    if let Some(outlet) = setup.outlet.filter(|_| setup.me > 0) {
        arguments.extend(["--replicaof".into(), outlet.ip().to_string(), outlet.port().to_string()]);
    }
    arguments
}

/// Makes a replica a master.
pub const PROMOTE: &str = "REPLICAOF NO ONE\r\n";

/// Makes a server the replica of whoever is behind `outlet`; what it has and its master has not is gone.
pub fn follow(outlet: SocketAddr) -> String {
    format!("REPLICAOF {} {}\r\n", outlet.ip(), outlet.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_loads_is_not_serving_and_one_with_a_role_is() {
        assert!(matches!(
            Redis.answer(b"-LOADING Redis is loading\r\n", false),
            Answer::NotYet(_)
        ));
        let late = b"$9\r\n# Server\r\nrole:slave\r\nmaster_link_status:down\r\n# Keyspace\r\n";
        assert!(matches!(Redis.answer(late, false), Answer::NotYet(why) if why.contains("in step")));
        let info = b"$9\r\n# Server\r\nredis_version:7.0.15\r\nrole:master\r\n# Keyspace\r\n";
        assert_eq!(Redis.answer(info, false), serving("master", Some("7.0.15")));
        assert_eq!(Redis.answer(b"$9\r\n# Server\r\nrole:mas", false), Answer::Unfinished);
    }
}
