//! The TOML file that describes a store (`--backend my-store.toml`), read and checked: an unknown key or placeholder is an error
//! with its line and a suggestion.

use std::path::Path;
use std::sync::LazyLock;

use super::attach::MAX_NODES;
use super::suggest::unknown_word;
use super::toml::{At, TomlError, TomlTable, TomlValue, is_on, read, refuse_unknown};
use crate::backends::Backend;
use crate::backends::described::{
    self, MemberList, OF_A_QUESTION, OF_A_SERVER, OF_ALL_SERVERS, OF_ITS_START, ReadyWhen, RoleQuestion, StoreCommand,
    StoreDescription, Template,
};
use crate::cluster::KillSignal;

const KEYS: &str = "name product nodes ports keeps-data kill local docker env files members ready role observer data";

/// The extension that distinguishes a file from the name of a backend.
const EXTENSION: &str = ".toml";

/// Whether `--backend` names a file.
pub fn is_file(text: &str) -> bool {
    text.ends_with(EXTENSION)
}

/// Returns the backend that the file at this path describes. The error is a sentence with the path and the line.
pub fn backend(path: &str) -> Result<&'static Backend, String> {
    described::of_file(path, |text, file| describe(text, file).map_err(String::from))
}

/// The store files in harness: their backends have names.
const BUILT_IN: &[&str] = &[include_str!("../../workloads/stores/kube-lease.toml")];

/// Returns the backends of the files in harness, which have no [`BackendId`](harness_workloads::BackendId).
pub fn built_in() -> &'static [&'static Backend] {
    static READ: LazyLock<Vec<&'static Backend>> = LazyLock::new(|| {
        let read = BUILT_IN.iter().map(|text| {
            let description = describe(text, Path::new("")).expect("the file is part of the source");
            described::backend(StoreDescription {
                file: None,
                ..description
            })
        });
        read.collect()
    });
    &READ
}

/// Reads the text of the file at `file`.
fn describe(text: &str, file: &Path) -> Result<StoreDescription, TomlError> {
    let table = read(text)?;
    refuse_unknown(&table, KEYS.split(' '))?;
    let stem = || file.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let name = text_of(&table, "name")?.unwrap_or_else(stem);
    if name.is_empty() || !name.chars().all(is_plain) {
        let line = table.get("name").map_or(1, |at| at.line);
        let sentence = format!("`name` is {name:?}; it takes small letters, digits and dashes");
        return Err(TomlError::at(line, sentence));
    }
    let lists = member_lists(&table)?;
    let lists_named: Vec<&str> = lists.iter().map(|list| list.name.as_str()).collect();
    // the placeholders that are known in one place
    let of_start = [OF_A_SERVER, OF_ITS_START, &lists_named].concat();
    let of_question = [OF_A_SERVER, OF_A_QUESTION, &lists_named].concat();
    let ports = ports(&table)?;
    let local = inner(&table, "local", &["command"])?;
    let local = local
        .map(|at| command(required(at, "local", "command")?, &of_start))
        .transpose()?;
    let docker = inner(&table, "docker", &["image", "command"])?;
    let docker = docker.map(|at| docker_server(at, &of_start)).transpose()?;
    if local.is_none() && docker.is_none() {
        let sentence = "a store needs a [local] command or a [docker] image\nhint: docs/stores.md";
        return Err(TomlError::at(1, sentence));
    }
    Ok(StoreDescription {
        product: text_of(&table, "product")?.unwrap_or_else(|| name.clone()),
        name,
        file: Some(file.to_owned()),
        nodes: nodes(&table)?,
        ports,
        keeps_data: is_on(&table, "keeps-data")?,
        kill: kill(&table)?,
        local,
        docker,
        env: texts(&table, "env", &of_start)?,
        files: files(&table, &of_start)?,
        ready: ready(&table, &of_question)?,
        role: role(&table, &of_question)?,
        observer: inner(&table, "observer", &["command"])?
            .map(|at| template(required(at, "observer", "command")?, "command", OF_ALL_SERVERS))
            .transpose()?,
        holds: in_data(&table, "holds", OF_ALL_SERVERS)?,
        remove: in_data(&table, "remove", OF_ALL_SERVERS)?,
        members: lists,
    })
}

/// Whether a letter can be part of a name.
fn is_plain(letter: char) -> bool {
    matches!(letter, 'a'..='z' | '0'..='9' | '-')
}

/// Reads a text with placeholders.
fn template(at: &At, key: &str, known: &[&str]) -> Result<Template, TomlError> {
    Template::read(at.text(key)?, |name| known.contains(&name)).map_err(|name| {
        let all: Vec<String> = known.iter().map(|name| format!("{{{name}}}")).collect();
        let places = all.join(" ");
        let otherwise = format!("a literal brace is written twice; the placeholders here are {places}");
        let (typed, all) = (format!("{{{name}}}"), all.iter().map(String::as_str));
        at.error(unknown_word("placeholder", &typed, all, &otherwise))
    })
}

/// Returns a table in the file, which may have only these keys.
fn inner<'a>(table: &'a TomlTable, key: &str, keys: &[&'static str]) -> Result<Option<&'a At>, TomlError> {
    let Some(at) = table.get(key) else { return Ok(None) };
    refuse_unknown(at.table(key)?, keys.iter().copied())?;
    Ok(Some(at))
}

/// Returns the value of a required key.
fn required<'a>(at: &'a At, table: &str, key: &str) -> Result<&'a At, TomlError> {
    let value = at.table(table)?.get(key);
    value.ok_or_else(|| at.error(format!("[{table}] has no `{key}`")))
}

fn text_of(table: &TomlTable, key: &str) -> Result<Option<String>, TomlError> {
    table.get(key).map(|at| at.text(key).map(str::to_owned)).transpose()
}

fn nodes(table: &TomlTable) -> Result<u32, TomlError> {
    let Some(at) = table.get("nodes") else { return Ok(1) };
    match at.count("nodes")? {
        nodes @ 1..=MAX_NODES => Ok(nodes),
        _ => Err(at.error(format!("`nodes` is from 1 to {MAX_NODES}"))),
    }
}

fn ports(table: &TomlTable) -> Result<Vec<u16>, TomlError> {
    let line = table.get("ports").map_or(1, |at| at.line);
    let sentence = "`ports` is a list of one to three ports; the first one serves clients";
    let wrong = || TomlError::at(line, sentence);
    let list = table.get("ports").ok_or_else(wrong)?.list("ports")?;
    let port = |at: &At| u16::try_from(at.count("ports")?).map_err(|_| wrong());
    let ports = list.iter().map(port).collect::<Result<Vec<u16>, TomlError>>()?;
    match ports.len() {
        1..=3 if !ports.contains(&0) => Ok(ports),
        _ => Err(wrong()),
    }
}

fn kill(table: &TomlTable) -> Result<KillSignal, TomlError> {
    let Some(at) = table.get("kill") else {
        return Ok(KillSignal::Kill);
    };
    match at.text("kill")? {
        "SIGKILL" => Ok(KillSignal::Kill),
        "SIGTERM" => Ok(KillSignal::Terminate),
        other => Err(at.error(format!("`kill` is SIGKILL or SIGTERM, and not {other}"))),
    }
}

fn command(at: &At, known: &[&str]) -> Result<StoreCommand, TomlError> {
    match &at.value {
        TomlValue::Text(_) => template(at, "command", known).map(StoreCommand::Shell),
        TomlValue::List(words) if !words.is_empty() => {
            let words = words.iter().map(|word| template(word, "command", known));
            words.collect::<Result<_, _>>().map(StoreCommand::Words)
        }
        _ => Err(at.error("`command` is a line for the shell, or a list of words")),
    }
}

fn docker_server(at: &At, known: &[&str]) -> Result<(String, Option<StoreCommand>), TomlError> {
    let image = required(at, "docker", "image")?.text("image")?.to_owned();
    let words = at.table("docker")?.get("command").map(|words| command(words, known));
    Ok((image, words.transpose()?))
}

/// Reads a table whose keys are names.
fn texts(table: &TomlTable, key: &str, known: &[&str]) -> Result<Vec<(String, Template)>, TomlError> {
    let Some(at) = table.get(key) else {
        return Ok(Vec::new());
    };
    let entries = at.table(key)?.iter();
    entries
        .map(|(name, text)| Ok((name.clone(), template(text, name, known)?)))
        .collect()
}

fn files(table: &TomlTable, known: &[&str]) -> Result<Vec<(String, Template)>, TomlError> {
    let files = texts(table, "files", known)?;
    let leads_out = |path: &str| path.starts_with('/') || path.split('/').any(|part| part == ".." || part.is_empty());
    match files.iter().find(|(path, _)| leads_out(path)) {
        None => Ok(files),
        Some((path, _)) => {
            let at = &table["files"].table("files")?[path];
            Err(at.error(format!(
                "the file {path:?} is not in the server's folder\nhint: `conf/server.conf` is {{folder}}/conf/server.conf"
            )))
        }
    }
}

fn member_lists(table: &TomlTable) -> Result<Vec<MemberList>, TomlError> {
    let Some(at) = table.get("members") else {
        return Ok(Vec::new());
    };
    let mut lists = Vec::new();
    for (name, at) in at.table("members")? {
        let letters = |letter| is_plain(letter) || letter == '_';
        let mut known = [OF_A_SERVER, OF_ITS_START, OF_A_QUESTION].into_iter().flatten();
        let taken = known.any(|known| known == name);
        if taken || !name.starts_with(|letter: char| letter.is_ascii_lowercase()) || !name.chars().all(letters) {
            let sentence = format!("`{name}` cannot name a list of members: the name is a new word of small letters");
            return Err(at.error(sentence));
        }
        let list = at.table(name)?;
        refuse_unknown(list, ["each", "between", "others"])?;
        lists.push(MemberList {
            name: name.clone(),
            each: template(required(at, name, "each")?, "each", OF_A_SERVER)?,
            between: text_of(list, "between")?.unwrap_or_else(|| ",".to_owned()),
            others: is_on(list, "others")?,
        });
    }
    Ok(lists)
}

fn ready(table: &TomlTable, known: &[&str]) -> Result<ReadyWhen, TomlError> {
    let Some(at) = inner(table, "ready", &["log", "command"])? else {
        return Ok(ReadyWhen::Connects);
    };
    let inner = at.table("ready")?;
    match (inner.get("log"), inner.get("command")) {
        (Some(log), None) => Ok(ReadyWhen::Log(log.text("log")?.to_owned())),
        (None, Some(command)) => template(command, "command", known).map(ReadyWhen::Command),
        _ => Err(at.error("[ready] has either `log` or `command`")),
    }
}

fn role(table: &TomlTable, known: &[&str]) -> Result<Option<RoleQuestion>, TomlError> {
    let Some(at) = inner(table, "role", &["command", "leads"])? else {
        return Ok(None);
    };
    let leads = match at.table("role")?.get("leads") {
        None => vec!["leader".to_owned()],
        Some(leads) => {
            let words = leads.list("leads")?.iter();
            let words = words.map(|word| word.text("leads").map(str::to_owned));
            words.collect::<Result<_, _>>()?
        }
    };
    Ok(Some(RoleQuestion {
        command: template(required(at, "role", "command")?, "command", known)?,
        leads,
    }))
}

fn in_data(table: &TomlTable, key: &str, known: &[&str]) -> Result<Option<Template>, TomlError> {
    let Some(at) = inner(table, "data", &["holds", "remove"])? else {
        return Ok(None);
    };
    at.table("data")?
        .get(key)
        .map(|text| template(text, key, known))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(text: &str) -> Result<StoreDescription, String> {
        describe(text, Path::new("/stores/My-Store.toml")).map_err(|error| error.to_string())
    }

    const LEAST: &str = "ports = [80]\n[local]\ncommand = \"serve\"\n";

    #[test]
    fn the_shortest_file_is_a_store_of_one_server() {
        let store = described(LEAST).unwrap();
        assert_eq!([store.name.as_str(), store.product.as_str()], ["my-store"; 2]);
        assert_eq!((store.nodes, store.keeps_data), (1, false));
        assert_eq!((store.ready, store.kill), (ReadyWhen::Connects, KillSignal::Kill));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line_and_what_was_meant() {
        let refused = |text: &str, named: &str| {
            let sentence = described(text).unwrap_err();
            assert!(sentence.contains(named), "{text}: {sentence}");
        };
        refused("", "`ports`");
        refused("ports = [80]", "[local] command or a [docker] image");
        for (line, named) in [
            ("keeps-data = \"yes\"", "line 1: `keeps-data` must be true or false"),
            (
                "prots = [80]",
                "line 1: there is no key `prots`\nhint: did you mean `ports`?",
            ),
            ("name = \"My Store\"", "small letters"),
            ("nodes = 30", "from 1 to 9"),
            ("kill = \"SIGHUP\"", "SIGKILL or SIGTERM"),
        ] {
            refused(&format!("{line}\n{LEAST}"), named);
        }
        for (lines, named) in [
            ("[local]\ncomand = \"x\"", "line 3: there is no key `comand`"),
            (
                "[local]\ncommand = \"x {prot}\"",
                "line 3: there is no placeholder `{prot}`\nhint: did you mean `{port}`?",
            ),
            ("[docker]\ncommand = \"x\"", "line 2: [docker] has no `image`"),
        ] {
            refused(&format!("ports = [80]\n{lines}"), named);
        }
        refused(&LEAST.replace("[80]", "[80, 0]"), "one to three ports");
        for (lines, named) in [
            ("[ready]\nlog = \"a\"\ncommand = \"b\"", "either `log` or `command`"),
            ("[files]\n\"../x\" = \"\"", "line 5: the file \"../x\""),
            ("[members]\nport = { each = \"{host}\" }", "`port` cannot name a list"),
            ("[observer]\ncommand = \"watch {node}\"", "`{node}`"),
        ] {
            refused(&format!("{LEAST}{lines}"), named);
        }
    }

    #[test]
    fn every_sample_is_a_store() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut names = Vec::new();
        for samples in ["workloads/stores", "workloads/stores/not-run", "tests/stores"] {
            let entries = std::fs::read_dir(folder.join(samples)).unwrap().flatten();
            let paths = entries.map(|entry| entry.path());
            for path in paths.filter(|path| path.extension().is_some_and(|is| is == "toml")) {
                let text = std::fs::read_to_string(&path).unwrap();
                let store = describe(&text, &path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                names.push(store.name);
            }
        }
        names.sort();
        let expected = "consul hazelcast http-lock kube-lease kube-lease mongodb postgres";
        assert_eq!(names.join(" "), expected);
    }
}
