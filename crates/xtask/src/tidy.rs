//! `cargo xtask tidy`: what compilers and clippy do not see. Sizes of files, words that must not be in the project, which crate may
//! depend on which, files that import each other in a circle, citations of the reference, kinds of jobs that code names, gates that are documented as
//! without effect, retired words and names, features for tests in what is installed, the parts of the core that mutants change, and files that are
//! generated.
//!
//! Prints every finding, and fails when there is one.

mod alone;
mod circles;
mod citations;
mod gates;
mod imports;
mod kinds;
mod mutants;
mod names;
mod retired;
mod shipped;
mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use sluice_testkit::assets;

/// A file with more lines holds two concepts.
const MAX_LINES: usize = 500;

/// Characters of a commit's subject.
const MAX_SUBJECT: usize = 71;

/// So many of the last commits are looked at, apart from merges: most are never the last one of a tree that is checked.
const COMMITS: &str = "-50";

/// Files that may be longer, with the reason. A file that has become short enough must leave this list.
const LONG_FILES: [(&str, &str); 0] = [];

/// Words that must not be in a file of the project, and why.
const FORBIDDEN: [(&str, &str); 7] = [
    (concat!("todo", "!("), "unfinished code"),
    (concat!("unimple", "mented!("), "unfinished code"),
    (concat!("TO", "DO"), "unfinished work belongs in an issue"),
    (concat!("FIX", "ME"), "unfinished work belongs in an issue"),
    (concat!("#[al", "low("), "`#[expect(lint, reason = …)]` goes away with its cause"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("../sha", "red"), "a path outside the repository"),
];

/// Which crates of the workspace a crate may depend on, and which crates of others it must not.
const CRATES: [Crate; 14] = [
    pure("sluice-quantity", &[]),
    pure("sluice-selector", &[]),
    pure("sluice-core", &["sluice-quantity", "sluice-selector"]),
    Crate {
        name: "sluice-api",
        may_use: &["sluice-quantity", "sluice-selector"],
        forbidden: &["tokio", "axum"],
    },
    pure(
        "sluice-engine",
        &["sluice-core", "sluice-api", "sluice-jobs", "sluice-quantity", "sluice-selector"],
    ),
    pure("sluice-jobs", &["sluice-api", "sluice-quantity"]),
    pure(
        "sluice-sim",
        &["sluice-engine", "sluice-jobs", "sluice-api", "sluice-quantity", "sluice-selector", "sluice-core"],
    ),
    Crate { name: "sluice-client", may_use: &["sluice-api", "sluice-jobs"], forbidden: &["axum"] },
    Crate {
        name: "sluice-manager",
        may_use: &[
            "sluice-engine",
            "sluice-jobs",
            "sluice-api",
            "sluice-sim",
            "sluice-client",
            "sluice-quantity",
        ],
        forbidden: &[],
    },
    Crate {
        name: "sluice-ctl",
        may_use: &["sluice-api", "sluice-jobs", "sluice-sim", "sluice-client", "sluice-quantity"],
        forbidden: &["axum"],
    },
    Crate {
        name: "sluice-cli",
        may_use: &["sluice-api", "sluice-client", "sluice-ctl", "sluice-manager"],
        forbidden: &["axum"],
    },
    Crate { name: "sluice-testkit", may_use: &["sluice-api"], forbidden: &[] },
    Crate { name: "sluice-tests", may_use: ANY, forbidden: &[] },
    Crate { name: "sluice-xtask", may_use: ANY, forbidden: &[] },
];

/// The page of the book that shows them.
const CRATES_PAGE: &str = "docs/architecture/crates.md";

/// Stands for "every crate of the workspace".
const ANY: &[&str] = &["*"];

struct Crate {
    name: &'static str,
    may_use: &'static [&'static str],
    forbidden: &'static [&'static str],
}

/// A crate without I/O: no runtime, no client, no server.
const fn pure(name: &'static str, may_use: &'static [&'static str]) -> Crate {
    Crate { name, may_use, forbidden: &["tokio", "kube", "axum", "hyper", "reqwest"] }
}

/// The crates without clock, randomness and I/O: each has a `clippy.toml` that forbids them, all with the same text. clippy reads only the file next
/// to a crate's `Cargo.toml`, or the workspace's.
const WITHOUT_CLOCK: [&str; 4] = ["core", "engine", "jobs", "sim"];

/// Where the golden list of core's dependencies is.
const CORE_DEPENDENCIES: &str = "crates/core/dependencies.txt";

/// Check what the compiler does not: file sizes, words, dependencies between crates, generated files.
#[derive(clap::Args)]
pub struct Args {
    /// Write the golden list of core's dependencies again.
    #[arg(long)]
    bless: bool,
    /// Only print the names of the crates that see other features when they are compiled alone, for a loop that checks each of them so.
    #[arg(long)]
    alone: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let root = assets::workspace();
    let packages = workspace_packages(&root)?;
    if args.alone {
        for name in alone::differing(&root, &packages)? {
            println!("{name}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let files = tracked_files(&root)?;
    let mut findings = Vec::new();
    for (path, text) in &files {
        findings.extend(size(path, text));
        findings.extend(pending_snapshot(path));
        findings.extend(words(path, text));
    }
    findings.extend(forgotten_exceptions(&files));
    findings.extend(clippy_lists(&files));
    findings.extend(circles::check(&files));
    findings.extend(citations::check(&files));
    findings.extend(kinds::check(&files));
    findings.extend(gates::check(&files));
    findings.extend(names::check(&files));
    findings.extend(retired::check(&files));
    findings.extend(dependencies(&packages));
    findings.extend(crates_page(&files));
    findings.extend(core_dependencies(&root, args.bless)?);
    findings.extend(shipped::check(&root)?);
    findings.extend(mutants::check(&files)?);
    findings.extend(subjects(&output(&root, "git", &["log", "--no-merges", COMMITS, "--format=%s"])?));
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    Ok(ExitCode::SUCCESS)
}

/// Path and text of every text file that git tracks or would track.
fn tracked_files(root: &Path) -> Result<BTreeMap<String, String>> {
    let listed = output(root, "git", &["ls-files", "--cached", "--others", "--exclude-standard"])?;
    // Deleted files are still listed until the deletion is committed; binary files are not UTF-8.
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    Ok(listed.lines().filter_map(|path| Some((path.to_owned(), text(path)?))).collect())
}

fn size(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    let excepted = LONG_FILES.iter().any(|(long, _)| *long == path);
    let rust = Path::new(path).extension().is_some_and(|extension| extension == "rs");
    (rust && lines > MAX_LINES && !excepted)
        .then(|| format!("{path}: {lines} lines; more than {MAX_LINES} are two concepts"))
}

/// A snapshot of a failed test that was neither accepted nor refused.
fn pending_snapshot(path: &str) -> Option<String> {
    path.ends_with(concat!(".snap", ".new"))
        .then(|| format!("{path}: is a snapshot that waits to be accepted"))
}

/// The subjects of commits, one a line, are short enough to be read in a list.
fn subjects(subjects: &str) -> impl Iterator<Item = String> {
    let lengths = subjects.lines().map(|subject| (subject, subject.chars().count()));
    lengths.filter(|(_, length)| *length > MAX_SUBJECT).map(|(subject, length)| {
        format!("the subject {subject:?} has {length} characters; {MAX_SUBJECT} at most")
    })
}

fn forgotten_exceptions(files: &BTreeMap<String, String>) -> Vec<String> {
    let needed = |path: &str| files.get(path).is_some_and(|text| text.lines().count() > MAX_LINES);
    LONG_FILES
        .iter()
        .filter(|(path, _)| !needed(path))
        .map(|(path, _)| format!("{path}: is no exception any more; take it off the list in tidy.rs"))
        .collect()
}

/// Checks that clippy's lists exist and are equal.
fn clippy_lists(files: &BTreeMap<String, String>) -> Vec<String> {
    let path = |name: &str| format!("crates/{name}/clippy.toml");
    let Some(first) = files.get(&path(WITHOUT_CLOCK[0])) else {
        return vec![format!("{}: is missing", path(WITHOUT_CLOCK[0]))];
    };
    let differs = |name: &&&str| files.get(&path(name)) != Some(first);
    let finding = |name: &&str| format!("{}: is not the same as {}", path(name), path(WITHOUT_CLOCK[0]));
    WITHOUT_CLOCK.iter().filter(differs).map(finding).collect()
}

fn words(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (word, why) in FORBIDDEN {
            if line.contains(word) {
                findings.push(format!("{path}:{}: {word:?}: {why}", number + 1));
            }
        }
    }
    findings
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    /// "dev", "build", or nothing for a normal dependency.
    kind: Option<String>,
    #[serde(default)]
    features: Vec<String>,
}

fn workspace_packages(root: &Path) -> Result<Vec<Package>> {
    let json = output(root, "cargo", &["metadata", "--format-version=1", "--no-deps", "--locked"])?;
    let metadata: Metadata = serde_json::from_str(&json).context("cargo metadata")?;
    Ok(metadata.packages)
}

/// The arrows of the workspace: a crate depends on what its row says, and a crate without a row is unknown.
fn dependencies(packages: &[Package]) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages {
        let Some(rules) = CRATES.iter().find(|rules| rules.name == package.name) else {
            findings.push(format!("{}: has no row in tidy.rs", package.name));
            continue;
        };
        for dependency in package.dependencies.iter().filter(|dependency| dependency.kind.is_none()) {
            let name = dependency.name.as_str();
            let ours = name.starts_with("sluice-");
            if ours && rules.may_use != ANY && !rules.may_use.contains(&name) {
                findings.push(format!("{}: must not depend on {name}", package.name));
            }
            // `kube` without its client is only types and derives.
            let client = name != "kube" || dependency.features.iter().any(|feature| feature == "client");
            if rules.forbidden.contains(&name) && client {
                findings.push(format!("{}: must not depend on {name}: it does no I/O", package.name));
            }
        }
    }
    findings
}

/// The column "may depend on" of the book's page says what the rows of [`CRATES`] say.
fn crates_page(files: &BTreeMap<String, String>) -> Vec<String> {
    let page = files.get(CRATES_PAGE).map_or("", String::as_str);
    let short = |name: &'static str| name.strip_prefix("sluice-").unwrap_or(name);
    let differs = |rules: &Crate| {
        let folder = match short(rules.name) {
            "tests" => "tests".to_owned(),
            name => format!("crates/{name}"),
        };
        let uses: Vec<&str> = rules.may_use.iter().map(|name| short(name)).collect();
        let cell = match uses.join(", ").as_str() {
            "" => "| |".to_owned(),
            "*" => "| all |".to_owned(),
            uses => format!("| {uses} |"),
        };
        let start = format!("| `{folder}` |");
        let agrees = page.lines().any(|line| line.starts_with(&start) && line.ends_with(&cell));
        (!agrees).then(|| format!("{CRATES_PAGE}: the row of {folder} must end with {cell:?}, as in tidy.rs"))
    };
    CRATES.iter().filter_map(differs).collect()
}

/// Every crate that core is built with, by name: a new one requires a change of the golden list.
fn core_dependencies(root: &Path, bless: bool) -> Result<Vec<String>> {
    let tree = [
        "tree",
        "--package",
        "sluice-core",
        "--edges",
        "normal",
        "--prefix",
        "none",
        "--format",
        "{p}",
        "--locked",
    ];
    let listed = output(root, "cargo", &tree)?;
    let names: BTreeSet<&str> = listed.lines().filter_map(|line| line.split(' ').next()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let text = format!(
        "{}
",
        names.join(
            "
"
        )
    );
    let golden = root.join(CORE_DEPENDENCIES);
    if bless {
        fs::write(&golden, &text).with_context(|| format!("writing {}", golden.display()))?;
    }
    let expected = fs::read_to_string(&golden).unwrap_or_default();
    if expected == text {
        return Ok(Vec::new());
    }
    Ok(vec![format!(
        "{CORE_DEPENDENCIES}: core now depends on {}; `cargo xtask tidy --bless` accepts it",
        names.join(", ")
    )])
}

fn output(root: &Path, program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(root)
        .output()
        .with_context(|| format!("running {program} {}", args.join(" ")))?;
    if !output.status.success() {
        bail!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("{program} printed what is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>, &[&str])]) -> Package {
        let dependencies = dependencies
            .iter()
            .map(|(name, kind, features)| Dependency {
                name: (*name).to_owned(),
                kind: kind.map(str::to_owned),
                features: features.iter().map(|feature| (*feature).to_owned()).collect(),
            })
            .collect();
        Package { name: name.to_owned(), dependencies }
    }

    #[test]
    fn pending_snapshots_and_long_subjects_are_reported() {
        assert_eq!(pending_snapshot("tests/a.snap"), None);
        assert!(pending_snapshot(concat!("tests/a.snap", ".new")).is_some());
        let fits = "ä".repeat(MAX_SUBJECT);
        assert_eq!(subjects(&fits).count(), 0);
        let found: Vec<_> = subjects(&format!("{fits}\n{fits}a\n{fits}\n")).collect();
        assert!(found.len() == 1 && found[0].contains(&format!("{fits}a")), "{found:?}");
    }

    #[test]
    fn a_forbidden_word_is_reported_with_its_line() {
        let word = FORBIDDEN[2].0;
        let findings = words("a.rs", &format!("fine\n// {word} later\n"));
        assert_eq!(findings.len(), 1);
        assert!(findings[0].starts_with("a.rs:2: "), "{findings:?}");
    }

    #[test]
    fn only_long_rust_files_are_too_long() {
        let long = "x\n".repeat(MAX_LINES + 1);
        assert!(size("a.rs", &long).is_some());
        assert!(size("a.yaml", &long).is_none());
        assert!(size("a.rs", &"x\n".repeat(MAX_LINES)).is_none());
    }

    #[test]
    fn a_clippy_list_that_differs_or_is_missing_is_reported() {
        let text = |text: &str| text.to_owned();
        let mut files: BTreeMap<String, String> =
            WITHOUT_CLOCK.iter().map(|name| (format!("crates/{name}/clippy.toml"), text("list"))).collect();
        assert!(clippy_lists(&files).is_empty());
        files.insert(text("crates/sim/clippy.toml"), text("shorter"));
        files.remove("crates/jobs/clippy.toml");
        assert_eq!(
            clippy_lists(&files),
            [
                "crates/jobs/clippy.toml: is not the same as crates/core/clippy.toml",
                "crates/sim/clippy.toml: is not the same as crates/core/clippy.toml"
            ]
        );
    }

    #[test]
    fn an_arrow_against_the_table_is_reported_but_not_for_tests() {
        let against = package("sluice-core", &[("sluice-api", None, &[]), ("tokio", None, &[])]);
        assert_eq!(
            dependencies(&[against]),
            [
                "sluice-core: must not depend on sluice-api",
                "sluice-core: must not depend on tokio: it does no I/O"
            ]
        );
        let in_tests = package("sluice-core", &[("sluice-api", Some("dev"), &[])]);
        assert!(dependencies(&[in_tests]).is_empty());
        assert_eq!(dependencies(&[package("sluice-new", &[])]), ["sluice-new: has no row in tidy.rs"]);
    }

    #[test]
    fn the_books_table_of_crates_has_the_same_arrows() {
        let page = fs::read_to_string(assets::workspace().join(CRATES_PAGE)).unwrap();
        let findings = |page: &str| crates_page(&BTreeMap::from([(CRATES_PAGE.to_owned(), page.to_owned())]));
        assert_eq!(findings(&page), [""; 0]);
        let other = page.replace("| quantity, selector |", "| quantity |");
        assert_eq!(
            findings(&other),
            ["core", "api"].map(|name| format!(
                "{CRATES_PAGE}: the row of crates/{name} must end with \"| quantity, selector |\", as in tidy.rs"
            ))
        );
        assert_eq!(findings("").len(), CRATES.len());
    }

    #[test]
    fn kubes_types_are_allowed_where_its_client_is_not() {
        assert!(dependencies(&[package("sluice-jobs", &[("kube", None, &["derive"])])]).is_empty());
        assert_eq!(dependencies(&[package("sluice-jobs", &[("kube", None, &["client"])])]).len(), 1);
    }
}
