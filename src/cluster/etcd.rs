//! etcd: its command line and its status page.

use std::net::IpAddr;
use std::time::Duration;

use serde::Deserialize;

use super::outlets::Peering;
use super::server::{Answer, Container, Launch, Member, Server, Serving, Setup, find_program};

pub struct Etcd;

const HEARTBEAT: Duration = Duration::from_millis(100);
const ELECTION_TIMEOUT: Duration = Duration::from_millis(1000);

impl Server for Etcd {
    fn backend(&self) -> &'static str {
        "etcd"
    }

    fn product(&self) -> &'static str {
        "etcd"
    }

    fn nodes(&self) -> u32 {
        3
    }

    fn ports(&self) -> usize {
        2
    }

    fn container_ports(&self) -> Vec<u16> {
        vec![2379, 2380]
    }

    fn missing(&self) -> Vec<String> {
        find_program("etcd")
            .is_none()
            .then(|| "etcd".to_owned())
            .into_iter()
            .collect()
    }

    fn install_hint(&self) -> &'static str {
        "apt-get install etcd-server (or put an etcd binary on PATH)"
    }

    fn peering(&self) -> Peering {
        Peering::Socks
    }

    fn launch(&self, setup: &Setup) -> Launch {
        // etcd refuses to run on processors it does not list; the flag is harmless elsewhere
        let mut env = vec![("ETCD_UNSUPPORTED_ARCH".to_owned(), "arm64".to_owned())];
        env.extend(way_out(setup));
        let data = setup.data.join("data").display().to_string();
        Launch {
            program: find_program("etcd").unwrap_or_else(|| "etcd".into()),
            args: arguments(setup, &setup.bind, &data),
            env,
            files: Vec::new(),
        }
    }

    fn image(&self) -> &'static str {
        "quay.io/coreos/etcd:v3.5.21"
    }

    fn container(&self, setup: &Setup) -> Container {
        let mut command = vec!["etcd".to_owned()];
        command.extend(arguments(setup, "0.0.0.0", "/tmp/etcd-data"));
        Container {
            env: way_out(setup),
            command,
        }
    }

    fn question(&self, at: &str) -> Vec<u8> {
        format!(
            "POST /v3/maintenance/status HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\n\
             Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        )
        .into_bytes()
    }

    fn answer(&self, bytes: &[u8], closed: bool) -> Answer {
        if !closed {
            return Answer::Unfinished;
        }
        let text = String::from_utf8_lossy(bytes);
        let body = text.find('{').and_then(|start| Some(&text[start..=text.rfind('}')?]));
        match body.map(serde_json::from_str::<Status>) {
            Some(Ok(status)) => status.answer(),
            _ => Answer::NotYet(text.lines().next().unwrap_or("it closed the connection").to_owned()),
        }
    }
}

/// The part of `/v3/maintenance/status` that matters here; numbers come as strings.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    header: Header,
    #[serde(default)]
    leader: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize, Default)]
struct Header {
    #[serde(default)]
    member_id: String,
}

impl Status {
    fn answer(self) -> Answer {
        if !self.error.is_empty() {
            return Answer::NotYet(self.error);
        }
        if self.leader.is_empty() || self.leader == "0" {
            return Answer::NotYet("it knows no leader".into());
        }
        let role = if self.leader == self.header.member_id {
            "leader"
        } else {
            "follower"
        };
        Answer::Serving(Serving {
            role: role.into(),
            version: self.version,
        })
    }
}

/// The environment that leads what it sends to its peers through its outlet. Nothing else it does goes over plain HTTP.
fn way_out(setup: &Setup) -> Vec<(String, String)> {
    let Some(outlet) = setup.outlet else { return Vec::new() };
    let variables = [
        ("HTTP_PROXY", format!("socks5://{outlet}")),
        // what this machine's user exempts would get out unseen
        ("NO_PROXY", String::new()),
        ("no_proxy", String::new()),
    ];
    variables.map(|(name, value)| (name.to_owned(), value)).into()
}

/// What its peers call a member. Loopback addresses are never led through a proxy, names are, and need not resolve.
fn peer_host<'a>(setup: &Setup, member: &'a Member) -> &'a str {
    if setup.outlet.is_some() && member.host.parse::<IpAddr>().is_ok() {
        &member.name
    } else {
        &member.host
    }
}

fn arguments(setup: &Setup, bind: &str, data: &str) -> Vec<String> {
    let me = setup.me();
    let peer = |member: &Member| format!("http://{}:{}", peer_host(setup, member), member.ports[1]);
    let cluster: Vec<String> = setup
        .members
        .iter()
        .map(|m| format!("{}={}", m.name, peer(m)))
        .collect();
    let settings = [
        ("--name", me.name.clone()),
        ("--data-dir", data.to_owned()),
        ("--listen-client-urls", format!("http://{bind}:{}", me.ports[0])),
        ("--advertise-client-urls", format!("http://{}:{}", me.host, me.ports[0])),
        ("--listen-peer-urls", format!("http://{bind}:{}", me.ports[1])),
        ("--initial-advertise-peer-urls", peer(me)),
        ("--initial-cluster", cluster.join(",")),
        ("--initial-cluster-state", "new".into()),
        ("--heartbeat-interval", HEARTBEAT.as_millis().to_string()),
        ("--election-timeout", ELECTION_TIMEOUT.as_millis().to_string()),
        ("--log-level", "warn".into()),
        ("--logger", "zap".into()),
    ];
    settings
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEADER: &str =
        "HTTP/1.1 200 OK\r\n\r\n{\"header\":{\"member_id\":\"7\"},\"version\":\"3.4.23\",\"leader\":\"7\"}";

    #[test]
    fn a_leader_is_the_member_whose_id_leads() {
        let serving = Serving {
            role: "leader".into(),
            version: "3.4.23".into(),
        };
        assert_eq!(Etcd.answer(LEADER.as_bytes(), true), Answer::Serving(serving));
    }

    #[test]
    fn a_member_without_a_leader_does_not_serve() {
        let without = LEADER.replace("\"leader\":\"7\"", "\"raftTerm\":\"2\"");
        assert_eq!(
            Etcd.answer(without.as_bytes(), true),
            Answer::NotYet("it knows no leader".into())
        );
    }
}
