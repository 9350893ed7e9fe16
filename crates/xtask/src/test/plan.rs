//! The test programs, and how each is run.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{ALONE, ON_PLANES, SLOW, cargo_output};

/// The programs on control planes that run in parts, the longest first: the target, what the names of the part's tests begin with, or none for the rest,
/// and how many of these run at a time. Tests that take turns are parts of their own, as they would hold places in which others could run.
const PARTS: [(&str, Option<&str>, usize); 9] = [
    ("operator", None, 4),
    ("faults", Some("restart_matrix::"), 1),
    ("faults", Some("hostile::"), 1),
    ("faults", Some("soak::"), 1),
    ("operator", Some("hotswap::"), 2),
    ("views", None, 2),
    ("operator", Some("examples::"), 1),
    ("faults", Some("bad_days::"), 2),
    ("faults", None, 2),
];

/// A built test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The package, such as `sluice-core`.
    pub package: String,
    /// The name of the target, such as `rules`; for a library's unit tests the library's name.
    pub target: String,
    /// Where it was built.
    pub path: PathBuf,
    /// The folder of the package, in which cargo would run the program.
    pub folder: PathBuf,
}

impl Program {
    /// Whether it starts control planes.
    pub fn is_on_planes(&self) -> bool {
        self.package == ON_PLANES && self.target != ON_PLANES.replace('-', "_")
    }

    /// Whether the program must run alone.
    pub fn is_alone(&self) -> bool {
        self.is_on_planes() && ALONE.contains(&self.target.as_str())
    }

    /// How many of its tests run at a time where all of them may.
    fn threads(&self) -> usize {
        match (self.is_alone(), self.is_on_planes()) {
            (true, _) => 1,
            // They wait most of the time.
            (_, true) => 2 * cores(),
            _ => cores(),
        }
    }

    /// All of it.
    pub fn whole(&self) -> Part<'_> {
        Part { program: self, group: None, without: Vec::new(), threads: self.threads() }
    }

    /// Its parts, or all of it if only tests of a certain name are wanted: the runner takes a test that fits any filter.
    pub fn parts(&self, is_filtered: bool) -> Vec<Part<'_>> {
        let groups = PARTS.iter().filter(|(target, ..)| self.is_on_planes() && self.target == *target);
        let groups: Vec<_> = groups.map(|&(_, group, threads)| (group, threads)).collect();
        if is_filtered || groups.is_empty() {
            return vec![self.whole()];
        }
        let named = groups.iter().filter_map(|(group, _)| *group);
        let part = |&(group, threads): &(Option<&'static str>, usize)| Part {
            program: self,
            group,
            without: if group.is_none() { named.clone().collect() } else { Vec::new() },
            threads: threads.min(2 * cores()),
        };
        groups.iter().map(part).collect()
    }

    fn is_quick(&self) -> bool {
        let slow = SLOW.iter().any(|(package, target)| self.package == *package && self.target == *target);
        !slow && !self.is_on_planes()
    }
}

/// The tests of a program that run as one part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<'a> {
    /// The program.
    pub program: &'a Program,
    /// The prefix of its tests; without it, all tests.
    pub group: Option<&'static str>,
    /// Prefixes that are excluded.
    pub without: Vec<&'static str>,
    /// How many of its tests run at a time.
    pub threads: usize,
}

impl Part<'_> {
    /// The later, the higher: the longest begin first, so that none is left over at the end.
    pub fn rank(&self) -> usize {
        let place = PARTS.iter().position(|(target, group, _)| {
            self.program.is_on_planes() && self.program.target == *target && self.group == *group
        });
        place.unwrap_or(PARTS.len())
    }
}

/// How many programs compute at a time.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Builds every test program of the workspace, or those that `--quick` runs.
pub fn build(root: &Path, quick: bool) -> Result<Vec<Program>> {
    let mut args =
        ["test", "--workspace", "--locked", "--no-run", "--message-format=json-render-diagnostics"]
            .map(str::to_owned)
            .to_vec();
    if quick {
        // By target, not by package: another choice of packages has other features, and builds everything again.
        args.extend(["--lib".to_owned(), "--bins".to_owned()]);
        args.extend(quick_targets(root)?.into_iter().map(|name| format!("--test={name}")));
    }
    let messages = cargo_output(root, &args)?;
    let programs = messages.lines().filter_map(program).filter(|program| !quick || program.is_quick());
    Ok(programs.collect())
}

/// The integration tests that `--quick` runs. A name that also names a slow one is left out.
fn quick_targets(root: &Path) -> Result<BTreeSet<String>> {
    let metadata =
        cargo_output(root, &["metadata", "--no-deps", "--locked", "--format-version=1"].map(str::to_owned))?;
    let metadata: Value = serde_json::from_str(&metadata).context("reading what cargo metadata printed")?;
    let (mut quick, mut slow) = (BTreeSet::new(), BTreeSet::new());
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let targets = package["targets"].as_array().into_iter().flatten();
        for target in targets.filter(|target| target["kind"][0] == "test") {
            let name = target["name"].as_str().unwrap_or_default();
            let is_slow = package["name"] == ON_PLANES
                || SLOW.iter().any(|(owner, slow)| package["name"] == *owner && *slow == name);
            let targets = if is_slow { &mut slow } else { &mut quick };
            targets.insert(name.to_owned());
        }
    }
    Ok(&quick - &slow)
}

/// The test program that a line of cargo's JSON is about.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let path = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let target = message["target"]["name"].as_str()?.to_owned();
    Some(Program { package: package(message["package_id"].as_str()?)?, target, path, folder })
}

/// The name in `path+file:///…/crates/core#sluice-core@0.1.0`; without a name, that of the folder.
fn package(id: &str) -> Option<String> {
    let (location, rest) = id.rsplit_once('#')?;
    let name = rest.split_once('@').map_or_else(|| location.rsplit('/').next(), |(name, _)| Some(name));
    name.map(str::to_owned)
}

/// Whether a comment of a library has an example.
pub fn has_doc_tests(root: &Path) -> Result<bool> {
    let mut folders = vec![root.join("crates"), root.join("tests/src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && has_example(&fs::read_to_string(&path)?)
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn has_example(text: &str) -> bool {
    let comments = text.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
    comments.filter_map(|line| line.strip_prefix(['/', '!'])).any(|line| line.trim_start().starts_with("```"))
}

/// `tests/performance/durations.toml`, in seconds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Durations {
    check: u64,
    test: u64,
    // Read by .ci/run.
    #[serde(rename = "ci")]
    _ci: u64,
}

/// How long a tier should take at most.
pub fn goal(root: &Path, tier: &str) -> Result<Duration> {
    let path = root.join("tests/performance/durations.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let all: Durations = toml::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
    Ok(Duration::from_secs(if tier == "check" { all.check } else { all.test }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(package: &str, target: &str, test: bool) -> String {
        serde_json::json!({
            "reason": "compiler-artifact", "package_id": format!("path+file:///src/{package}@0.1.0"),
            "manifest_path": "/src/crates/core/Cargo.toml", "target": {"name": target},
            "profile": {"test": test}, "executable": "/target/debug/deps/x",
        })
        .to_string()
    }

    #[test]
    fn test_programs_are_distinguished_from_what_else_cargo_builds() {
        let rules = program(&message("crates/core#sluice-core", "rules", true)).unwrap();
        assert_eq!((rules.package.as_str(), rules.target.as_str()), ("sluice-core", "rules"));
        assert_eq!(rules.folder, Path::new("/src/crates/core"));
        assert_eq!(program(&message("crates/core#sluice-core", "sluice", false)), None);
        assert_eq!(program("no json"), None);
    }

    #[test]
    fn programs_on_planes_are_not_quick_and_what_measures_runs_alone() {
        let of = |package: &str, target: &str| program(&message(package, target, true)).unwrap();
        assert!(!of("tests#sluice-tests", "api").is_quick());
        assert!(of("tests#sluice-tests", "sluice_tests").is_quick());
        assert!(!of("crates/core#sluice-core", "agreement").is_quick());
        assert!(of("tests#sluice-tests", "load").is_alone() && !of("tests#sluice-tests", "api").is_alone());
    }

    #[test]
    fn a_program_runs_in_parts_that_together_are_all_of_it() {
        let operator = program(&message("tests#sluice-tests", "operator", true)).unwrap();
        let mut parts = operator.parts(false);
        parts.sort_by_key(Part::rank);
        let groups: Vec<_> = parts.iter().map(|part| (part.group, part.without.clone())).collect();
        assert_eq!(
            groups,
            [
                (None, vec!["hotswap::", "examples::"]),
                (Some("hotswap::"), Vec::new()),
                (Some("examples::"), Vec::new()),
            ]
        );
        assert_eq!(operator.parts(true).len(), 1, "a filter chooses among all");
        let api = program(&message("tests#sluice-tests", "api", true)).unwrap();
        let [whole] = &api.parts(false)[..] else { panic!("has no parts") };
        assert!(whole.group.is_none() && whole.rank() > parts.last().unwrap().rank());
        assert_eq!(program(&message("crates/sim#sluice-sim", "faults", true)).unwrap().parts(false).len(), 1);
    }

    #[test]
    fn examples_in_comments_are_found() {
        let fence = "`".repeat(3);
        assert!(has_example(&format!("/// Adds.\n///\n    /// {fence}\n")));
        assert!(!has_example(&format!("// {fence}\nlet text = \"{fence}\";\n")));
    }
}
