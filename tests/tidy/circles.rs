//! Circles of modules: among the modules of one folder, none may need one that needs it, directly or through others.
//!
//! A folder counts as one module with everything under it. An item is needed from the module that defines it: re-exports are
//! followed. References between a module and those above or below it do not count, nor does code for unit tests alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::tokens::{is_word, tokens};
use super::{CRATES, Source, assert_none, walk};

/// Maximum length of a chain of re-exports that is followed.
const MOST_REEXPORTS: usize = 8;

/// The path of a module in its crate, or of an item in a module: `cluster`, `docker`; that of the crate itself is empty.
type ItemPath = Vec<String>;

/// A name that a `use` binds, and the path as written.
struct UsedName {
    name: String,
    path: ItemPath,
}

/// The references of one file to others.
#[derive(Default)]
struct ModuleText {
    file: String,
    used: Vec<UsedName>,
    /// The paths in its code.
    paths: BTreeSet<ItemPath>,
    /// Names of its own items.
    declared: BTreeSet<String>,
}

/// The modules of one crate.
struct ModuleTree {
    folder: String,
    modules: BTreeMap<ItemPath, ModuleText>,
}

/// By module of a folder, the modules there that it needs, each with the references that need it.
type FolderNeeds = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

impl ModuleTree {
    fn of(folder: &str, sources: &[Source]) -> Self {
        let (mut modules, mut of_tests) = (BTreeMap::new(), Vec::new());
        for source in sources {
            let file = source.path.strip_prefix(folder).unwrap();
            let Some(module) = module_of_file(file) else { continue };
            let tokens = tokens(&source.text);
            let (code, test_modules) = without_tests(tokens.iter().map(String::as_str).collect());
            of_tests.extend(
                test_modules
                    .iter()
                    .map(|name| joined(&module, std::slice::from_ref(name))),
            );
            let text = ModuleText {
                file: file.display().to_string(),
                ..ModuleText::read(&code)
            };
            modules.insert(module, text);
        }
        modules.retain(|module, _| !of_tests.iter().any(|test| module.starts_with(test)));
        let folder = folder.to_owned();
        Self { folder, modules }
    }

    /// Returns a path as written in a module, from the crate on; `None` if it leads to another crate.
    fn absolute(&self, module: &[String], path: &[String], depth: usize) -> Option<ItemPath> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => return Some(rest.to_vec()),
            "self" => return Some(joined(module, rest)),
            "super" => {
                let above = module.split_last()?.1;
                return match rest.first().map(String::as_str) {
                    Some("super") => self.absolute(above, rest, depth),
                    _ => Some(joined(above, rest)),
                };
            }
            _ => {}
        }
        let below = joined(module, path);
        if self.modules.contains_key(&below[..=module.len()]) {
            return Some(below);
        }
        // a name that another `use` of the module binds
        let bound = self.modules[module].used.iter().find(|used| used.name == *first)?;
        if depth == MOST_REEXPORTS || bound.path.first() == Some(first) {
            return None;
        }
        let bound = self.absolute(module, &bound.path, depth + 1)?;
        Some(joined(&bound, rest))
    }

    /// Returns the module that defines the item at a path, and the item's name there; the whole module if none is known.
    fn home(&self, path: &[String], depth: usize) -> Option<(ItemPath, String)> {
        let length = (0..=path.len()).rfind(|length| self.modules.contains_key(&path[..*length]))?;
        let (module, rest) = path.split_at(length);
        let text = &self.modules[module];
        let Some((name, rest)) = rest.split_first() else {
            return Some((module.to_vec(), String::new()));
        };
        let own = Some((module.to_vec(), name.clone()));
        if text.declared.contains(name) || depth == MOST_REEXPORTS {
            return own;
        }
        if let Some(used) = text.used.iter().find(|used| used.name == *name) {
            let elsewhere = self.absolute(module, &used.path, 0);
            return elsewhere.map_or(own, |path| self.home(&joined(&path, rest), depth + 1));
        }
        let globs = text.used.iter().filter(|used| used.name == "*");
        let mut globs = globs.filter_map(|used| self.absolute(module, &used.path, 0));
        let declares = |module: &ItemPath| {
            self.modules
                .get(module)
                .is_some_and(|text| text.declared.contains(name))
        };
        globs.find(declares).map(|module| (module, name.clone())).or(own)
    }

    /// Returns the needs between the modules of each folder.
    fn needs(&self) -> BTreeMap<ItemPath, FolderNeeds> {
        let mut needs: BTreeMap<ItemPath, FolderNeeds> = BTreeMap::new();
        for (module, text) in &self.modules {
            for path in text.used.iter().map(|used| &used.path).chain(&text.paths) {
                let absolute = self.absolute(module, path, 0);
                let Some((home, name)) = absolute.and_then(|path| self.home(&path, 0)) else {
                    continue;
                };
                let common = module.iter().zip(&home).take_while(|(one, other)| one == other);
                let common = common.count();
                if common == module.len() || common == home.len() {
                    continue;
                }
                let needed = needs.entry(module[..common].to_vec()).or_default();
                let by = needed.entry(module[common].clone()).or_default();
                let reference = format!("{}: {} {name}", text.file, home.join("::"));
                by.entry(home[common].clone()).or_default().insert(reference);
            }
        }
        needs
    }

    /// Returns the circles, each with the references that close it.
    fn circles(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (folder, needs) in self.needs() {
            for circle in circles_of(&needs) {
                let references = circle.iter().flat_map(|module| {
                    let within = needs[module].iter().filter(|(needed, _)| circle.contains(*needed));
                    within.flat_map(|(_, references)| references.iter().map(|reference| format!("\n    {reference}")))
                });
                let references: String = references.collect();
                let modules: Vec<&str> = circle.iter().map(String::as_str).collect();
                let place = [std::slice::from_ref(&self.folder), &folder].concat().join("/");
                found.push(format!(
                    "{place}: {} need each other; move what they share to where both may see it{references}",
                    modules.join(", ")
                ));
            }
        }
        found
    }
}

/// Returns the groups of modules in which each needs all others, directly or through others.
fn circles_of(needs: &FolderNeeds) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let mut reached = BTreeSet::new();
        let mut next = vec![from];
        while let Some(module) = next.pop() {
            for needed in needs.get(module).into_iter().flat_map(BTreeMap::keys) {
                if reached.insert(needed.clone()) {
                    next.push(needed);
                }
            }
        }
        reached
    };
    let reached: BTreeMap<&String, BTreeSet<String>> = needs.keys().map(|module| (module, reached(module))).collect();
    let circle = |module: &String| -> BTreeSet<String> {
        let others = reached[module].iter();
        let back = others.filter(|other| reached.get(other).is_some_and(|reached| reached.contains(module)));
        back.cloned().collect()
    };
    let circles: BTreeSet<BTreeSet<String>> = needs.keys().map(circle).collect();
    circles.into_iter().filter(|circle| !circle.is_empty()).collect()
}

fn joined(one: &[String], other: &[String]) -> ItemPath {
    [one, other].concat()
}

/// Returns the module of a file: `cluster/leftovers/mod.rs` is `cluster`, `leftovers`. The file of a program is another crate.
fn module_of_file(file: &Path) -> Option<ItemPath> {
    let stem = file.with_extension("");
    let mut parts: ItemPath = stem
        .components()
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    if parts == ["main"] {
        return None;
    }
    if parts == ["lib"] || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    Some(parts)
}

/// Returns the tokens without the items that are compiled for tests alone, and the names of those among them that are module files.
fn without_tests(all: Vec<&str>) -> (Vec<&str>, Vec<String>) {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let (mut code, mut modules) = (Vec::new(), Vec::new());
    let mut rest = &all[..];
    while let Some((first, others)) = rest.split_first() {
        let Some(marked) = rest.strip_prefix(&MARK) else {
            code.push(*first);
            rest = others;
            continue;
        };
        let (item, after) = marked.split_at(item_length(marked));
        if let [.., "mod", name, ";"] = item {
            modules.push((*name).to_owned());
        }
        rest = after;
    }
    (code, modules)
}

/// Returns the number of tokens of an item: up to its semicolon, or to the brace that closes it.
fn item_length(tokens: &[&str]) -> usize {
    let mut depth = 0_usize;
    let ends = |token: &&str| {
        match *token {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0 && [";", "}"].contains(token)
    };
    tokens.iter().position(ends).map_or(tokens.len(), |last| last + 1)
}

const DECLARING: [&str; 9] = [
    "struct", "enum", "trait", "type", "union", "fn", "const", "static", "mod",
];

impl ModuleText {
    fn read(code: &[&str]) -> Self {
        let mut text = Self::default();
        let (mut at, mut depth) = (0, 0_usize);
        while let Some(token) = code.get(at) {
            let before = at.checked_sub(1).map_or("", |before| code[before]);
            match *token {
                "{" => depth += 1,
                "}" => depth = depth.saturating_sub(1),
                // not a `use<'a>` of lifetimes
                "use" if before != "+" => {
                    at += 1;
                    text.read_use(code, &mut at, &[]);
                    continue;
                }
                word if is_word(word) && !["::", "."].contains(&before) => {
                    let path = path_at(&code[at..]);
                    at += 2 * path.len() - 1;
                    if path.len() > 1 {
                        text.paths.insert(path);
                    } else if depth == 0 && DECLARING.contains(&before) {
                        text.declared.extend(path);
                    }
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        text
    }

    /// Reads a tree of a `use` behind `before`, up to the comma, brace or semicolon that ends it.
    fn read_use(&mut self, code: &[&str], at: &mut usize, before: &[String]) {
        let mut path = before.to_vec();
        let mut name = None;
        while let Some(token) = code.get(*at) {
            match *token {
                "{" => {
                    *at += 1;
                    while code.get(*at).is_some_and(|token| *token != "}") {
                        self.read_use(code, at, &path);
                        *at += usize::from(code.get(*at) == Some(&","));
                    }
                    *at += 1;
                    return;
                }
                "," | "}" | ";" => break,
                "*" => name = Some("*"),
                "as" => {
                    *at += 1;
                    name = code.get(*at).copied();
                }
                // the module before the braces
                "self" if !before.is_empty() => {}
                word if is_word(word) => path.push(word.to_owned()),
                _ => {}
            }
            *at += 1;
        }
        if let Some(name) = name.map(str::to_owned).or_else(|| path.last().cloned()) {
            self.used.push(UsedName { name, path });
        }
    }
}

/// Returns the path at the start of the code: words with `::` between.
fn path_at(code: &[&str]) -> ItemPath {
    let mut path = vec![code[0].to_owned()];
    let mut rest = &code[1..];
    while let ["::", next, after @ ..] = rest
        && is_word(next)
    {
        path.push((*next).to_owned());
        rest = after;
    }
    path
}

#[test]
fn the_modules_of_one_folder_form_no_circle() {
    let mut circles = Vec::new();
    for folder in CRATES {
        let mut sources = Vec::new();
        walk(Path::new(folder), &mut sources);
        let tree = ModuleTree::of(folder, &sources);
        assert!(tree.modules.len() > 1, "{folder} is somewhere else");
        circles.extend(tree.circles());
    }
    assert_none(circles);
}

/// Returns the circles of a crate with these files, the first line of each.
fn circles_in(files: &[(&str, &str)]) -> Vec<String> {
    let source = |(path, text): &(&str, &str)| Source {
        path: Path::new("x").join(path),
        text: (*text).to_owned(),
    };
    let sources: Vec<Source> = files.iter().map(source).collect();
    let circles = ModuleTree::of("x", &sources).circles();
    let first = |circle: String| circle.split(" need each other").next().unwrap().to_owned();
    circles.into_iter().map(first).collect()
}

#[test]
fn a_circle_is_found_however_its_items_are_named() {
    let root = (
        "lib.rs",
        "mod a; mod b; mod c; pub use b::B; pub use self::b::other as renamed;",
    );
    for needs_b in [
        "use super::b::B;",
        "use crate::{c::C, b::{self, B as Renamed}};",
        "pub(super) fn f(b: &crate::b::B) {}",
        "use super::b; fn f() { b::f() }",
        // defined in `b`, wherever it is imported from
        "use crate::B;",
        "fn f() { super::renamed() }",
        // through a third
        "use crate::c::C;",
    ] {
        let b = "use crate::a::A; pub struct B; pub fn other() {}";
        let found = circles_in(&[root, ("a.rs", needs_b), ("b.rs", b), ("c.rs", "use super::B;")]);
        let expected = if needs_b.contains("c::C") {
            "x: a, b, c"
        } else {
            "x: a, b"
        };
        assert_eq!(found, [expected], "{needs_b}");
    }
}

#[test]
fn a_folder_is_one_module_and_has_circles_of_its_own() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "mod one; mod two; pub use two::*;"),
        ("a/one.rs", "use crate::b::B;"),
        ("a/two.rs", "pub struct Two;"),
        ("b.rs", "use crate::a::Two; pub struct B;"),
    ];
    assert_eq!(circles_in(&files), ["x: a, b"]);
    let inside = [
        files[0],
        files[1],
        ("a/one.rs", "use super::two::Two;"),
        ("a/two.rs", "use crate::a::one::One; pub struct Two;"),
        ("b.rs", "use crate::a::Two;"),
    ];
    assert_eq!(circles_in(&inside), ["x/a: one, two"]);
}

#[test]
fn what_is_no_need_of_a_module_closes_no_circle() {
    let b = r##"
        // use crate::a::A;
        /* crate::a::A /* and */ crate::a::A */
        const TEXT: &str = "crate::a::A \" crate::a::A";
        const RAW: &str = r#"" crate::a::A "#;
        const LETTER: char = '"'; // crate::a::A '"'
        pub struct B<'a>(&'a str);
        #[cfg(test)]
        use crate::a::A;
        #[cfg(test)]
        mod tests { use crate::a::A; fn f() { crate::a::f() } }
        use super::Shared;
    "##;
    let files = [
        (
            "lib.rs",
            "mod a; mod b; pub struct Shared; use a::A; use b::B; #[cfg(test)] mod testing;",
        ),
        ("main.rs", "mod a; use crate::a::A;"),
        (
            "a/mod.rs",
            "mod below; use crate::b::B; use below::Below; pub struct A;",
        ),
        ("a/below.rs", "use super::A; use a::elsewhere; pub struct Below;"),
        ("b.rs", b),
        ("testing.rs", "use crate::a::A; use crate::b::B;"),
    ];
    assert_eq!(circles_in(&files), [""; 0]);
}
