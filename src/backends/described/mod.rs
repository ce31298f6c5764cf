//! Described stores, from a TOML file ([`StoreDescription`]): the description becomes a [`Backend`], and the rest of harness does
//! not see a difference. `config::store_file` reads the file.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use harness_proxy::tap::Protocol;

use super::Backend;
use crate::cluster::{
    BoxFuture, ContainerSpec, KillSignal, Launch, LoginGuard, NodeAddress, NodeSetup, Peering, ServerSoftware,
    find_program,
};

mod commands;
mod data;
mod observer;
mod probe;
mod template;

use data::DescribedData;
pub use template::{PlaceValues, Template};

/// The folder of files in a container.
const CONTAINER_FOLDER: &str = "/harness";

/// The description of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreDescription {
    /// Letters, digits and dashes: part of the names of runs and containers.
    pub name: String,
    /// The name for people.
    pub product: String,
    /// The whole path of the file; `None` if it is part of harness.
    pub file: Option<PathBuf>,
    pub nodes: u32,
    /// The ports of a container; the first serves clients.
    pub ports: Vec<u16>,
    pub keeps_data: bool,
    pub kill: KillSignal,
    /// The command of a local server.
    pub local: Option<StoreCommand>,
    /// An image, and the command in place of its own.
    pub docker: Option<(String, Option<StoreCommand>)>,
    pub env: Vec<(String, Template)>,
    /// Paths in the folder of a server, and contents.
    pub files: Vec<(String, Template)>,
    pub members: Vec<MemberList>,
    pub ready: ReadyWhen,
    pub role: Option<RoleQuestion>,
    /// Prints grants and revocations.
    pub observer: Option<Template>,
    /// Prints the entries of others on attached servers.
    pub holds: Option<Template>,
    /// Removes the entries of a run from attached servers.
    pub remove: Option<Template>,
}

/// A command: words, or a line for the shell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreCommand {
    Words(Vec<Template>),
    Shell(Template),
}

/// A placeholder that names all servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberList {
    pub name: String,
    /// The text for each server.
    pub each: Template,
    pub between: String,
    /// Whether the server whose configuration it is in is left out.
    pub others: bool,
}

/// The readiness of a server: its port accepts connections, and this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadyWhen {
    Connects,
    /// Its log has a line with this text.
    Log(String),
    /// This command succeeds.
    Command(Template),
}

/// The query of a server's role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleQuestion {
    /// Its first word of output is the role.
    pub command: Template,
    /// The roles of leaders.
    pub leads: Vec<String>,
}

/// The placeholders of one server, without those of [`MemberList`].
pub const OF_A_SERVER: &[&str] = &["node", "name", "host", "port", "port2", "port3"];
/// Further ones in commands, files and the environment of a server.
pub const OF_ITS_START: &[&str] = &["bind", "folder", "store", "lease_ms", "harness"];
/// Further ones in queries of a server.
pub const OF_A_QUESTION: &[&str] = &["container", "store", "harness"];
/// Those in commands about all servers.
pub const OF_ALL_SERVERS: &[&str] = &["host", "port", "servers", "store", "mark", "harness"];

impl StoreDescription {
    /// Returns the folder of the file.
    fn folder(&self) -> &Path {
        let folder = self.file.as_deref().and_then(Path::parent);
        folder.unwrap_or(Path::new("/"))
    }

    /// Returns the values for a server's start.
    fn values(&self, setup: &NodeSetup, folder: &Path) -> PlaceValues {
        let mut values = self.of_server(&setup.nodes, setup.me);
        values.extend(named([
            ("bind", setup.bind.clone()),
            ("folder", folder.display().to_string()),
            ("store", self.folder().display().to_string()),
            ("lease_ms", setup.lease.as_millis().to_string()),
            ("harness", program_of_harness()),
        ]));
        values
    }

    /// Returns the values for a server, with the lists of members.
    fn of_server(&self, nodes: &[NodeAddress], me: usize) -> PlaceValues {
        let mut values = of_node(&nodes[me]);
        for list in &self.members {
            let listed = nodes.iter().enumerate().filter(|(at, _)| !list.others || *at != me);
            let each: Vec<String> = listed.map(|(_, node)| list.each.fill(&of_node(node))).collect();
            values.insert(list.name.clone(), each.join(&list.between));
        }
        values
    }

    /// Returns the values for a command about all servers.
    fn of_servers(&self, servers: &[SocketAddr], mark: &str) -> PlaceValues {
        let all: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let first = servers.first();
        named([
            ("host", first.map_or(String::new(), |server| server.ip().to_string())),
            ("port", first.map_or(String::new(), |server| server.port().to_string())),
            ("servers", all.join(",")),
            ("store", self.folder().display().to_string()),
            ("mark", mark.to_owned()),
            ("harness", program_of_harness()),
        ])
    }

    fn launch(&self, setup: &NodeSetup) -> Launch {
        let values = self.values(setup, &setup.data);
        let words = self.local.as_ref().map(|command| command.words(&values));
        let mut words = words.unwrap_or_default().into_iter();
        Launch {
            program: words.next().unwrap_or_default().into(),
            args: words.collect(),
            env: filled(&self.env, &values),
            files: filled(&self.files, &values),
            secrets: Vec::new(),
        }
    }

    fn container(&self, setup: &NodeSetup) -> ContainerSpec {
        let values = self.values(setup, Path::new(CONTAINER_FOLDER));
        let command = self.docker.as_ref().and_then(|(_, command)| command.as_ref());
        let files = filled(&self.files, &values).into_iter();
        ContainerSpec {
            env: filled(&self.env, &values),
            command: command.map(|command| command.words(&values)).unwrap_or_default(),
            files: files
                .map(|(path, text)| (format!("{CONTAINER_FOLDER}/{path}"), text))
                .collect(),
        }
    }

    /// Returns the missing program of a local server.
    fn missing(&self) -> Vec<String> {
        let Some(local) = &self.local else {
            let file = self.file.as_deref().unwrap_or(Path::new(&self.name));
            return vec![format!("[local] in {}", file.display())];
        };
        let store = named([
            ("store", self.folder().display().to_string()),
            ("harness", program_of_harness()),
        ]);
        let StoreCommand::Words(_) = local else {
            return Vec::new();
        };
        let program = local.words(&store).into_iter().next().unwrap_or_default();
        let is_there = match program.contains('/') {
            true => Path::new(&program).is_file(),
            false => find_program(&program).is_some(),
        };
        (!is_there).then_some(program).into_iter().collect()
    }
}

impl StoreCommand {
    fn words(&self, values: &PlaceValues) -> Vec<String> {
        match self {
            Self::Words(words) => words.iter().map(|word| word.fill(values)).collect(),
            Self::Shell(line) => vec!["sh".to_owned(), "-c".to_owned(), line.fill(values)],
        }
    }
}

/// Returns texts under their names, with these values.
fn filled(named: &[(String, Template)], values: &PlaceValues) -> Vec<(String, String)> {
    let filled = named.iter().map(|(name, text)| (name.clone(), text.fill(values)));
    filled.collect()
}

fn named<const N: usize>(values: [(&str, String); N]) -> PlaceValues {
    values.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Returns the path of this program.
fn program_of_harness() -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "harness".into());
    program.display().to_string()
}

fn of_node(node: &NodeAddress) -> PlaceValues {
    let port = |number: usize| node.ports.get(number).map(ToString::to_string).unwrap_or_default();
    named([
        ("node", node.number.to_string()),
        ("name", node.name.clone()),
        ("host", node.host.clone()),
        ("port", port(0)),
        ("port2", port(1)),
        ("port3", port(2)),
    ])
}

fn leaked<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// Returns the backend of a description. It lives as long as harness.
pub fn backend(description: StoreDescription) -> &'static Backend {
    let store = leaked(description);
    let images: Vec<&'static str> = store.docker.iter().map(|(image, _)| image.as_str()).collect();
    let probe = move |server| -> BoxFuture<'static, _> { Box::pin(probe::ask(store, server)) };
    let software = leaked(ServerSoftware {
        backend: &store.name,
        product: &store.product,
        nodes: store.nodes,
        ports: &store.ports,
        keeps_data: store.keeps_data,
        kill: store.kill,
        stop: None,
        images: leaked(images),
        install_hint: "install it, or use --runtime docker where the file has [docker]",
        files: &[],
        peering: Peering::Direct,
        missing: leaked(|| store.missing()),
        launch: leaked(|setup: &NodeSetup| store.launch(setup)),
        confined: false,
        container: leaked(|setup: &NodeSetup| store.container(setup)),
        probe: leaked(probe),
        guard: LoginGuard::Unknown,
        first_connection: None,
        membership: None,
        upgrade: Err("its description has neither the place of its data nor the versions that read them"),
        speaks_tls: false,
    });
    leaked(Backend {
        file: store.file.as_deref(),
        observe: store.observer.as_ref().map(|command| observer::of(store, command)),
        ..Backend::plain(software, Protocol::Opaque, leaked(DescribedData(store)))
    })
}

/// The backends of files that were read, by their paths.
static READ: Mutex<BTreeMap<PathBuf, &'static Backend>> = Mutex::new(BTreeMap::new());

/// Returns the backend of a file, whose text is read once. `describe` parses the text, with the whole path; an error is a
/// sentence that begins with the path.
pub fn of_file(
    path: &str,
    describe: impl FnOnce(&str, &Path) -> Result<StoreDescription, String>,
) -> Result<&'static Backend, String> {
    let failed = |error: std::io::Error| format!("{path}: {error}");
    let whole = std::fs::canonicalize(path).map_err(failed)?;
    let mut known = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(backend) = known.get(&whole) {
        return Ok(backend);
    }
    let text = std::fs::read_to_string(&whole).map_err(failed)?;
    let description = describe(&text, &whole).map_err(|error| format!("{path}: {error}"))?;
    let backend = backend(description);
    known.insert(whole, backend);
    Ok(backend)
}

/// Time for a query of a server.
const QUESTION: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template::read(text, |_| true).unwrap()
    }

    fn description() -> StoreDescription {
        StoreDescription {
            name: "mine".into(),
            product: "Mine".into(),
            file: Some("/stores/mine.toml".into()),
            nodes: 3,
            ports: vec![80, 90],
            keeps_data: true,
            kill: KillSignal::Kill,
            local: Some(StoreCommand::Words(vec![template("{store}/serve"), template("{port}")])),
            docker: Some(("mine:1".into(), Some(StoreCommand::Shell(template("serve {port2}"))))),
            env: vec![("NODE".into(), template("{name}"))],
            files: vec![("mine.conf".into(), template("peers = [{peers}]\nin = {folder}\n"))],
            members: vec![MemberList {
                name: "peers".into(),
                each: template("'{host}:{port2}'"),
                between: ", ".into(),
                others: true,
            }],
            ready: ReadyWhen::Connects,
            role: None,
            observer: None,
            holds: None,
            remove: None,
        }
    }

    fn setup() -> NodeSetup {
        NodeSetup {
            data: "/tmp/n2".into(),
            ..NodeSetup::of_test(3, &[8000, 9000], 1)
        }
    }

    #[test]
    fn a_server_is_started_with_its_own_values_and_the_members() {
        let store = description();
        let launch = store.launch(&setup());
        assert_eq!(
            (launch.program, launch.args),
            ("/stores/serve".into(), vec!["8002".to_owned()])
        );
        assert_eq!(launch.env, [("NODE".to_owned(), "n2".to_owned())]);
        let text = "peers = ['127.0.0.1:9001', '127.0.0.1:9003']\nin = /tmp/n2\n";
        assert_eq!(launch.files, [("mine.conf".to_owned(), text.to_owned())]);
        let container = store.container(&setup());
        assert_eq!(container.command, ["sh", "-c", "serve 9002"]);
        assert_eq!(container.files[0].0, "/harness/mine.conf");
        assert!(container.files[0].1.ends_with("in = /harness\n"), "{container:?}");
    }

    #[test]
    fn a_backend_of_a_description_has_its_name_and_no_recipe() {
        let backend = backend(description());
        assert_eq!(
            (backend.name(), backend.id, backend.default_recipe),
            ("mine", None, None)
        );
        assert_eq!(backend.typed(), "/stores/mine.toml");
        assert_eq!((backend.software.missing)(), ["/stores/serve"], "it is not there");
        assert!(backend.observe.is_none());
    }
}
