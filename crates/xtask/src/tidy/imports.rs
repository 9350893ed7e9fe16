//! Which file of a crate imports which other one.
//!
//! File A imports file B if a path in A, in a `use` or in the code, names an item that B defines. Names that a module only re-exports (`pub use`)
//! count for the file that defines them. Declaring a file as a module is not an import. Tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use super::kinds;
use super::tokens::{Token, tokens};

/// The macro that declares the folders of the table of kinds as modules.
const MODULES_OF_KINDS: &str = "job_modules";

/// Which files each file imports.
pub type Imports<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The path of a module from the root of its crate.
type Path<'a> = Vec<&'a str>;

/// One file.
struct Module<'a> {
    file: &'a str,
    /// The names that it declares.
    names: BTreeSet<&'a str>,
    /// Modules that are files of their own.
    children: BTreeSet<&'a str>,
    imports: Vec<Use<'a>>,
    /// The paths in the code.
    paths: Vec<Path<'a>>,
    /// The words in the code.
    words: BTreeSet<&'a str>,
}

/// One name of a `use`.
struct Use<'a> {
    path: Path<'a>,
    /// Its name here; `*` for all names.
    name: &'a str,
    /// Whether it is re-exported.
    public: bool,
}

/// The files below a root (`…/src/lib.rs` or `…/src/main.rs`) with what they import of each other.
pub fn imports<'a>(files: &'a BTreeMap<String, String>, root: &'a str) -> Imports<'a> {
    let mut modules: BTreeMap<Path<'a>, Module<'a>> = BTreeMap::new();
    let mut open: Vec<(Path<'a>, &'a str)> = vec![(Vec::new(), root)];
    while let Some((path, file)) = open.pop() {
        let Some(text) = files.get(file) else { continue };
        let mut module = Module::new(file, text);
        if module.words.contains(MODULES_OF_KINDS) {
            let table = files.get(kinds::TABLE).map_or("", String::as_str);
            module.children.extend(kinds::folders(table));
        }
        let is_file = |name: &&'a str| Some((*name, child(files, file, name, path.is_empty())?));
        let children: Vec<(&str, &str)> = module.children.iter().filter_map(is_file).collect();
        module.children = children.iter().map(|(name, _)| *name).collect();
        open.extend(children.into_iter().map(|(name, file)| (joined(&path, &[name]), file)));
        modules.insert(path, module);
    }
    let crate_of = Crate(modules);
    crate_of.0.iter().map(|(path, module)| (module.file, crate_of.imported_by(path, module))).collect()
}

/// The file of a module that `parent` declares.
fn child<'a>(
    files: &'a BTreeMap<String, String>,
    parent: &str,
    name: &str,
    parent_is_root: bool,
) -> Option<&'a str> {
    let folder = match parent.strip_suffix("/mod.rs") {
        Some(folder) => folder,
        None if parent_is_root => parent.rsplit_once('/')?.0,
        None => parent.strip_suffix(".rs")?,
    };
    let candidates = [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")];
    candidates.iter().find_map(|path| files.get_key_value(path)).map(|(path, _)| path.as_str())
}

fn joined<'a>(path: &[&'a str], rest: &[&'a str]) -> Path<'a> {
    [path, rest].concat()
}

impl<'a> Module<'a> {
    fn new(file: &'a str, text: &'a str) -> Self {
        let mut module = Self {
            file,
            names: BTreeSet::new(),
            children: BTreeSet::new(),
            imports: Vec::new(),
            paths: Vec::new(),
            words: BTreeSet::new(),
        };
        module.read(&tokens(text));
        module
    }

    fn read(&mut self, tokens: &[Token<'a>]) {
        let mut at = 0;
        let mut public = false;
        // The braces of inline modules, in which `super` is one level less.
        let (mut depth, mut inline) = (0_usize, Vec::new());
        while let Some(&token) = tokens.get(at) {
            let next = tokens.get(at + 1).copied();
            match token {
                // The precise capture `use<'a>` of a type is not an import.
                Token::Word("use") if next != Some(Token::Sign('<')) => {
                    let mut found = Vec::new();
                    at += 1 + tree(&tokens[at + 1..], &[], &mut found);
                    let own = |(path, name)| Use { path: without_inline(path, inline.len()), name, public };
                    self.imports.extend(found.into_iter().map(own));
                    public = false;
                    continue;
                }
                Token::Word("mod") => {
                    if let (Some(Token::Word(name)), Some(after)) = (next, tokens.get(at + 2)) {
                        if *after == Token::Sign('{') {
                            inline.push(depth);
                            self.names.insert(name);
                        } else {
                            self.children.insert(name);
                        }
                    }
                }
                Token::Word("struct" | "enum" | "union" | "trait" | "fn" | "type" | "const" | "static") => {
                    self.names.extend(next.and_then(word));
                }
                Token::Word("macro_rules") => self.names.extend(tokens.get(at + 2).copied().and_then(word)),
                Token::Word("pub") => {
                    public = true;
                    at += 1 + visibility(&tokens[at + 1..]);
                    continue;
                }
                Token::Sign('{') => depth += 1,
                Token::Sign('}') => {
                    depth = depth.saturating_sub(1);
                    inline.pop_if(|outer| *outer == depth);
                }
                _ => {}
            }
            public = false;
            if let Token::Word(first) = token {
                let mut path = vec![first];
                while let [Token::Separator, Token::Word(segment), ..] = tokens[at + 1..] {
                    path.push(segment);
                    at += 2;
                }
                self.words.extend(&path);
                if path.len() > 1 {
                    self.paths.push(without_inline(path, inline.len()));
                }
            }
            at += 1;
        }
    }
}

fn word(token: Token<'_>) -> Option<&str> {
    if let Token::Word(word) = token { Some(word) } else { None }
}

/// The length of `(crate)` or `(in crate::module)` after `pub`.
fn visibility(tokens: &[Token<'_>]) -> usize {
    let [Token::Sign('('), Token::Word("crate" | "super" | "self" | "in"), ..] = tokens else { return 0 };
    tokens.iter().position(|token| *token == Token::Sign(')')).map_or(0, |end| end + 1)
}

/// Reads the tree of a `use`, up to the sign that ends it; returns its length, with a semicolon.
fn tree<'a>(tokens: &[Token<'a>], prefix: &[&'a str], found: &mut Vec<(Path<'a>, &'a str)>) -> usize {
    let mut path = prefix.to_vec();
    let mut name = None;
    let mut in_braces = false;
    let mut at = 0;
    while let Some(&token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Word("as") => {
                name = tokens.get(at).copied().and_then(word);
                at += 1;
            }
            Token::Word("self") if path.len() > prefix.len() || !prefix.is_empty() => {}
            Token::Word(segment) => path.push(segment),
            Token::Sign('*') => name = Some("*"),
            Token::Sign('{') => {
                in_braces = true;
                while tokens.get(at).is_some_and(|token| *token != Token::Sign('}')) {
                    at += tree(&tokens[at..], &path, found);
                    at += usize::from(tokens.get(at) == Some(&Token::Sign(',')));
                }
                at += 1;
            }
            Token::Sign(',' | '}') => {
                at -= 1;
                break;
            }
            Token::Sign(';') => break,
            _ => {}
        }
    }
    if let Some(&last) = path.last().filter(|_| !in_braces) {
        found.push((path, name.unwrap_or(last)));
    }
    at
}

/// A path in a module inside a file, as the file itself would write it.
fn without_inline(mut path: Path<'_>, levels: usize) -> Path<'_> {
    for _ in 0..levels {
        if path.first() == Some(&"super") {
            path.remove(0);
            if path.first() != Some(&"super") {
                path.insert(0, "self");
            }
        }
    }
    path
}

/// All modules of a crate.
struct Crate<'a>(BTreeMap<Path<'a>, Module<'a>>);

/// The target of a path.
enum Target<'a> {
    /// Something that this file defines.
    Item(&'a str),
    /// A module.
    Module(Path<'a>),
}

impl<'a> Crate<'a> {
    fn imported_by(&self, at: &Path<'a>, module: &Module<'a>) -> BTreeSet<&'a str> {
        let mut found = BTreeSet::new();
        // `use crate::module;`: what is taken from there is named in the code.
        let mut modules: BTreeMap<&str, Path<'a>> = BTreeMap::new();
        for import in &module.imports {
            let Some(path) = self.absolute(at, &import.path) else { continue };
            match self.resolve(&path, 0) {
                Some(Target::Module(path)) if import.name != "*" => {
                    modules.insert(import.name, path);
                }
                Some(target) if !import.public || module.words.contains(import.name) => {
                    found.insert(self.file(&target));
                }
                _ => {}
            }
        }
        for path in &module.paths {
            let absolute = match modules.get(path[0]) {
                Some(module) => Some(joined(module, &path[1..])),
                None => self.absolute(at, path),
            };
            let target = absolute.and_then(|path| self.resolve(&path, 0));
            found.extend(target.map(|target| self.file(&target)));
        }
        found.remove(module.file);
        found
    }

    fn file(&self, target: &Target<'a>) -> &'a str {
        match target {
            Target::Item(file) => file,
            Target::Module(path) => self.0[path].file,
        }
    }

    /// A path from the root of the crate; `None` if it leads out of it.
    fn absolute(&self, at: &Path<'a>, path: &[&'a str]) -> Option<Path<'a>> {
        let first = *path.first()?;
        if first == "crate" {
            return Some(path[1..].to_vec());
        }
        if first == "self" {
            return Some(joined(at, &path[1..]));
        }
        let ups = path.iter().take_while(|segment| **segment == "super").count();
        if ups > 0 {
            return Some(joined(&at[..at.len().checked_sub(ups)?], &path[ups..]));
        }
        self.0[at].children.contains(first).then(|| joined(at, path))
    }

    /// The target of a path from the root, through at most a few re-exporting modules.
    fn resolve(&self, path: &[&'a str], hops: usize) -> Option<Target<'a>> {
        let inside = (0..=path.len()).rev().find(|&length| self.0.contains_key(&path[..length]))?;
        let (at, rest) = path.split_at(inside);
        let module = &self.0[at];
        let Some(name) = rest.first() else { return Some(Target::Module(at.to_vec())) };
        if module.names.contains(name) || hops > 8 {
            return Some(Target::Item(module.file));
        }
        let at = at.to_vec();
        if let Some(import) = module.imports.iter().find(|import| import.name == *name) {
            // A re-export from another crate is not a file of this one.
            let target = self.absolute(&at, &import.path)?;
            return self.resolve(&joined(&target, &rest[1..]), hops + 1);
        }
        for import in module.imports.iter().filter(|import| import.name == "*") {
            let Some(target) = self.absolute(&at, &import.path) else { continue };
            let all = self.0.get(&target).filter(|all| all.file != module.file);
            if all.is_some_and(|all| all.names.contains(name)) {
                return self.resolve(&joined(&target, rest), hops + 1);
            }
        }
        Some(Target::Item(module.file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The imports of `src/a.rs`, beside files that each define a type of their name.
    fn of_a(text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| (format!("src/{path}"), text.to_owned());
        let files = BTreeMap::from([
            file("lib.rs", "mod a; mod b; mod c; mod d; pub use b::B; pub type Name = u8;"),
            file("a.rs", text),
            file("a/x.rs", "pub struct X;"),
            file("b.rs", "pub struct B;"),
            file(
                "c/mod.rs",
                "mod inner; pub(crate) use inner::Inner; pub(crate) use crate::b::*; pub fn c() {}",
            ),
            file("c/inner.rs", "pub struct Inner;"),
            file("d.rs", "use crate::b::B; pub struct D(B);"),
        ]);
        let imported = &imports(&files, "src/lib.rs")["src/a.rs"];
        imported.iter().map(|file| file.trim_start_matches("src/").to_owned()).collect()
    }

    #[test]
    fn a_path_counts_in_a_use_and_in_the_code() {
        assert_eq!(of_a("use crate::{b::B, d::{self, D as Other}};"), ["b.rs", "d.rs"]);
        assert_eq!(of_a("use super::b::B;"), ["b.rs"]);
        assert_eq!(of_a("fn f() -> crate::d::D { crate::c::c() }"), ["c/mod.rs", "d.rs"]);
        assert_eq!(of_a("use std::b::B; use other::d;"), Vec::<String>::new());
    }

    #[test]
    fn the_folders_of_kinds_are_modules() {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        let files = BTreeMap::from([
            file(kinds::TABLE, "kinds! {\n    JOB by job::Job;\n    POD by pub pods::Pod;\n}"),
            file("src/lib.rs", "sluice_api::job_modules!();"),
            file("src/job/mod.rs", "use crate::pods::Pod; struct Job(Pod);"),
            file("src/pods/mod.rs", "pub struct Pod;"),
        ]);
        let imported = &imports(&files, "src/lib.rs")["src/job/mod.rs"];
        assert_eq!(imported.iter().collect::<Vec<_>>(), [&"src/pods/mod.rs"]);
    }

    #[test]
    fn what_is_handed_on_counts_where_it_is_defined() {
        assert_eq!(of_a("use crate::c::Inner;"), ["c/inner.rs"]);
        assert_eq!(of_a("use crate::c; fn f() -> c::Inner {}"), ["c/inner.rs"]);
        assert_eq!(of_a("use crate::{B, Name};"), ["b.rs", "lib.rs"]);
        assert_eq!(of_a("use crate::c::B;"), ["b.rs"]);
    }

    #[test]
    fn a_module_is_imported_when_something_of_it_is_named() {
        assert_eq!(of_a("mod x;"), Vec::<String>::new());
        assert_eq!(of_a("mod x; pub use x::X;"), Vec::<String>::new());
        assert_eq!(of_a("mod x; pub use x::X; fn f() -> X {}"), ["a/x.rs"]);
        assert_eq!(of_a("mod x; fn f() { x::g() }"), ["a/x.rs"]);
    }

    #[test]
    fn comments_and_tests_do_not_count() {
        assert_eq!(
            of_a("//! See [`crate::b::B`].\n#[cfg(test)] mod tests { use crate::d::D; }"),
            Vec::<String>::new()
        );
        assert_eq!(of_a("fn f<'a>() -> impl Sized + use<'a> { crate::b::B }"), ["b.rs"]);
        assert_eq!(of_a("pub(in crate::d) struct A(pub(crate) crate::b::B);"), ["b.rs"]);
        assert_eq!(of_a("mod inline { use super::super::b::B; use super::Own; }"), ["b.rs"]);
    }
}
