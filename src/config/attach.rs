//! The options of a run on servers that harness did not start ([`Attach`]), and the choice of the runtime.

use clap::Args;

use super::Config;
use super::heading::SERVERS;
use crate::cluster::{
    AskedServers, AttachedServers, ClusterError, NodeCommands, Runtime, RuntimeChoice, RuntimeRequest, ServersObey,
    choose,
};

/// Maximum number of servers of a cluster.
pub const MAX_NODES: u32 = 9;

/// Servers that are running, and what may be done to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Attach {
    /// Use running servers instead of starting some: a list of HOST:PORT
    ///
    /// Clients write only entries with a mark of the run in their names, and these are removed at the end. If the servers hold
    /// other data, harness asks before it does anything. Faults act on the links and processes of clients; faults on servers
    /// need commands such as --on-kill.
    #[arg(long, help_heading = SERVERS, value_name = "SERVERS", value_delimiter = ',', value_parser = host_and_port, conflicts_with_all = ["image", "port_base"])]
    pub servers: Vec<String>,
    /// Command that kills a server of --servers; {node} is its number, as is $HARNESS_NODE
    #[arg(long, help_heading = SERVERS, value_name = "CMD", requires_all = ["servers", "on_start"])]
    pub on_kill: Option<String>,
    /// Command that starts a killed server of --servers
    #[arg(long, help_heading = SERVERS, value_name = "CMD", requires_all = ["servers", "on_kill"])]
    pub on_start: Option<String>,
    /// Command that pauses a server of --servers
    #[arg(long, help_heading = SERVERS, value_name = "CMD", requires_all = ["servers", "on_resume"])]
    pub on_pause: Option<String>,
    /// Command that resumes a paused server of --servers
    #[arg(long, help_heading = SERVERS, value_name = "CMD", requires_all = ["servers", "on_pause"])]
    pub on_resume: Option<String>,
    /// Do not ask if the servers of --servers hold other data
    #[arg(long, help_heading = SERVERS, requires = "servers")]
    pub yes: bool,
    /// Name or address of this machine under which clients on other hosts reach the proxy
    ///
    /// The links then listen on all addresses of this machine.
    #[arg(long, help_heading = SERVERS, value_name = "HOST")]
    pub advertise: Option<String>,
    /// Prefix of the names of this run's locks in the store. Completed by `RunArgs::config`.
    #[arg(skip)]
    pub mark: Option<String>,
}

fn host_and_port(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match port.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(1..)) => Ok(text.to_owned()),
        _ => Err("expected HOST:PORT, such as 10.0.0.5:6379".to_owned()),
    }
}

impl Attach {
    /// Whether the run uses servers that harness did not start.
    pub fn is_attached(&self) -> bool {
        !self.servers.is_empty()
    }

    fn commands(&self) -> NodeCommands {
        NodeCommands {
            kill: self.on_kill.clone(),
            start: self.on_start.clone(),
            pause: self.on_pause.clone(),
            resume: self.on_resume.clone(),
        }
    }

    /// Returns the actions that attached servers support; `None` if harness starts the servers, which then support all.
    pub fn obey(&self) -> Option<ServersObey> {
        self.is_attached().then(|| self.commands().obey())
    }

    /// Returns the prefix of the names of locks in the store; empty if harness starts the servers.
    pub fn mark(&self) -> &str {
        self.mark.as_deref().unwrap_or_default()
    }

    /// Returns the name of a lock for clients and the store.
    pub fn stored(&self, lock: &str) -> String {
        [self.mark(), lock].concat()
    }

    /// Returns the name of a lock in the run, from its name in the store.
    pub fn plain<'a>(&self, stored: &'a str) -> &'a str {
        stored.strip_prefix(self.mark()).unwrap_or(stored)
    }
}

impl Config {
    /// Chooses the runtime of the run: attached servers, or the way to start its own.
    pub async fn choose_runtime(&self) -> Result<RuntimeChoice, ClusterError> {
        let attach = &self.attach;
        if !attach.is_attached() {
            let software = self.backend.software;
            let asked = AskedServers {
                image: self.image.as_deref(),
                version: self.server_version.as_deref(),
            };
            let choice = choose(self.runtime, software, asked).await?;
            return self.with_upgrade(choice).await;
        }
        let servers = attach.servers.join(", ");
        let runtime = Runtime::Attached(AttachedServers {
            servers: attach.servers.clone(),
            commands: attach.commands(),
        });
        let why = format!("{servers}: not started by harness, and not stopped by it");
        Ok(RuntimeChoice::of(runtime, why))
    }

    /// Refuses options that cannot be combined with these. The error has a hint.
    pub fn check_attach(&self) -> Result<(), String> {
        let attach = &self.attach;
        if attach.is_attached() && self.runtime != RuntimeRequest::Auto {
            let why = "--servers are running already, so --runtime has nothing to start\nhint: leave --runtime out";
            return Err(why.into());
        }
        let servers = attach.servers.len();
        if servers > MAX_NODES as usize {
            return Err(format!(
                "--servers has {servers} servers; a run has at most {MAX_NODES}"
            ));
        }
        if attach.advertise.is_some() && self.proxy.is_toxiproxy() {
            let why = "--advertise is for the built-in proxy; a Toxiproxy has its own addresses\nhint: --proxy builtin";
            return Err(why.into());
        }
        if attach.advertise.is_some() && self.runtime == RuntimeRequest::Simulated {
            let why = "--advertise is for clients on other hosts, and simulated servers have none\nhint: leave --advertise out";
            return Err(why.into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_host_and_a_port() {
        for right in ["10.0.0.5:6379", "db-1.example.org:5432", "[::1]:2181"] {
            assert_eq!(host_and_port(right).as_deref(), Ok(right));
        }
        for wrong in ",6379,host,host:,:6379,host:0,host:70000,redis://h:x".split(',') {
            assert!(host_and_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_lock_has_its_own_name_in_the_store_only_where_others_have_theirs() {
        assert_eq!(Attach::default().stored("l0"), "l0");
        let attached = Attach {
            mark: Some("harness-1a2b3c4d-".into()),
            ..Attach::default()
        };
        assert_eq!(attached.stored("l0"), "harness-1a2b3c4d-l0");
        let plain = ["harness-1a2b3c4d-l0", "l7"].map(|stored| attached.plain(stored));
        assert_eq!(plain, ["l0", "l7"]);
    }
}
