//! `cargo xtask mutants`: does a test notice when the core decides wrongly? Makes the changes of `tests/mutants.toml` in a copy of the core, one at a
//! time, and runs the tests `rules` and `agreement` and the unit tests on each. A mutant that no test notices fails the command. This is the small
//! sample for CI; `make mutants` makes every change that cargo-mutants knows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::bench::workspace_root;

/// Change the core on purpose, and see whether a test notices.
#[derive(clap::Args)]
pub struct Args {
    /// Only the changes whose file or description contains this.
    #[arg(long, default_value = "")]
    only: String,
}

/// `tests/mutants.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sample {
    mutant: Vec<Mutant>,
}

/// One change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mutant {
    /// Below `crates/core/src`.
    file: PathBuf,
    /// The error that it causes in the core.
    what: String,
    /// Occurs once in the file.
    from: String,
    /// The replacement.
    to: String,
}

/// The packages that the copy consists of.
const PACKAGES: [&str; 3] = ["crates/quantity", "crates/selector", "crates/core"];

/// The tests that have to notice, and what of them needs files that the copy does not have.
const TESTS: [(&str, Option<&str>); 3] =
    [("rules", Some("index::")), (UNIT, None), ("agreement", Some("cases::"))];

/// The unit tests, by the name of the library.
const UNIT: &str = "sluice_core";

/// How much of them is run: some seconds for each mutant.
const EFFORT: [(&str, &str); 2] = [("SLUICE_WORLDS", "300"), ("SLUICE_EXHAUSTIVE", "20000")];

/// A mutant that makes a test run longer than this hangs, and counts as noticed if the unchanged core needs at most a quarter of it.
const PATIENCE: Duration = Duration::from_mins(2);

/// Runs the command; a mutant that no test notices gives exit code 1.
pub fn run(args: &Args) -> Result<ExitCode> {
    let root = workspace_root();
    let sample = sample(&root)?;
    let chosen = sample.mutant.iter().filter(|mutant| {
        mutant.what.contains(&args.only) || mutant.file.to_string_lossy().contains(&args.only)
    });
    let start = Instant::now();
    let copy = Copy::new(&root)?;
    ensure!(copy.noticed_by()?.is_none(), "the tests do not pass in time on the core as it is");
    let (mut count, mut survivors) = (0, 0);
    for mutant in chosen {
        count += 1;
        let path = copy.root.join("crates/core/src").join(&mutant.file);
        let original = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        fs::write(&path, mutant.apply(&original)?)?;
        let noticed = copy.noticed_by().with_context(|| mutant.to_string())?;
        fs::write(&path, original)?;
        if let Some((test, end)) = noticed {
            if end == End::TimedOut {
                let again = copy.play(test, PATIENCE / 4)?;
                ensure!(
                    again == End::Passed,
                    "{mutant}: {test} takes too long, and on the core as it is, too"
                );
            }
            println!("noticed by {test}: {mutant}");
        } else {
            survivors += 1;
            println!("SURVIVED: {mutant}");
        }
    }
    ensure!(count > 0, "no mutant is called {:?}", args.only);
    println!(
        "{count} mutants, {} noticed, {survivors} survived, in {} s",
        count - survivors,
        start.elapsed().as_secs()
    );
    Ok(if survivors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn sample(root: &Path) -> Result<Sample> {
    let path = root.join("tests/mutants.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("parse {}", path.display()))
}

impl Mutant {
    /// The source with the change.
    fn apply(&self, source: &str) -> Result<String> {
        let count = source.matches(&self.from).count();
        ensure!(count == 1, "{self}: its place occurs {count} times, and must once");
        Ok(source.replacen(&self.from, &self.to, 1))
    }
}

impl std::fmt::Display for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

/// A workspace of the core alone. It stays where it is, below the target folder, so that the next run builds little.
struct Copy {
    root: PathBuf,
}

impl Copy {
    fn new(workspace: &Path) -> Result<Self> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        let root = target.join("mutants");
        for package in PACKAGES {
            mirror(&workspace.join(package), &root.join(package))?;
        }
        let manifest = fs::read_to_string(workspace.join("Cargo.toml"))?;
        write_if_changed(&root.join("Cargo.toml"), small_manifest(&manifest)?.as_bytes())?;
        if !root.join("Cargo.lock").exists() {
            fs::copy(workspace.join("Cargo.lock"), root.join("Cargo.lock"))?;
        }
        Ok(Self { root })
    }

    /// Builds a test; its program.
    fn build(&self, test: &str) -> Result<PathBuf> {
        let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["test", "--offline", "--no-run", "--quiet", "--message-format=json"])
            .args(["--package", "sluice-core"])
            .args(if test == UNIT { vec!["--lib"] } else { vec!["--test", test] })
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", self.root.join("target"))
            .env("CARGO_INCREMENTAL", "1")
            .output()
            .context("run cargo")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str::<Built>(line).ok())
            .find(|built| built.target.name == test)
            .map(|built| built.executable)
            .with_context(|| format!("cargo built no test {test}"))
    }

    /// The first test that fails, and how it ends. Tests after it are not built.
    fn noticed_by(&self) -> Result<Option<(&'static str, End)>> {
        for (test, _) in TESTS {
            let end = self.play(test, PATIENCE)?;
            if end != End::Passed {
                return Ok(Some((test, end)));
            }
        }
        Ok(None)
    }

    /// Builds a test and runs it for at most this long.
    fn play(&self, test: &str, patience: Duration) -> Result<End> {
        let program = self.build(test)?;
        let skip = TESTS.iter().filter(|(name, _)| *name == test).filter_map(|(_, skip)| *skip);
        let child = Command::new(program)
            .args(skip.flat_map(|skip| ["--skip", skip]))
            .current_dir(self.root.join("crates/core"))
            .envs(EFFORT)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("run the test {test}"))?;
        end(child, patience)
    }
}

/// Cargo's report of a built program.
#[derive(Deserialize)]
struct Built {
    target: Target,
    executable: PathBuf,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// How a test ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Passed,
    Failed,
    /// The test was killed when its time was over.
    TimedOut,
}

/// Waits for the end of a test, at most this long.
fn end(mut child: Child, patience: Duration) -> Result<End> {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(if status.success() { End::Passed } else { End::Failed });
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok(End::TimedOut);
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

/// The workspace's manifest with the packages of the copy as its only members, and less optimisation: most mutants are
/// noticed at once, so that building takes longer than testing.
fn small_manifest(manifest: &str) -> Result<String> {
    let members = format!("members = {PACKAGES:?}");
    let (Some(start), Some(end)) = (manifest.find("members = ["), manifest.find("default-members")) else {
        bail!("the workspace's manifest lists no members");
    };
    let rest = manifest[end..].split_once('\n').map_or("", |(_, rest)| rest);
    Ok(format!("{}{members}\n{rest}", &manifest[..start]).replace("opt-level = 2", "opt-level = 1"))
}

/// Makes a folder equal to another one. Equal files are not touched, since cargo compares modification times.
fn mirror(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            mirror(&entry.path(), &target)?;
        } else {
            write_if_changed(&target, &fs::read(entry.path())?)?;
        }
        names.insert(entry.file_name());
    }
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if names.contains(&entry.file_name()) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn write_if_changed(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    fs::write(path, content).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A change whose place is gone would otherwise be noticed by the next CI run only.
    #[test]
    fn every_mutant_of_the_sample_applies_to_the_core_as_it_is() {
        let root = workspace_root();
        let sample = sample(&root).unwrap();
        assert!(sample.mutant.len() >= 15, "{} mutants", sample.mutant.len());
        for mutant in &sample.mutant {
            let source = fs::read_to_string(root.join("crates/core/src").join(&mutant.file)).unwrap();
            assert_ne!(mutant.apply(&source).unwrap(), source, "{mutant}");
        }
    }

    #[test]
    fn the_copy_has_the_core_and_what_it_needs_as_its_only_members() {
        let manifest = "[workspace]\nresolver = \"3\"\nmembers = [\n    \"crates/a\",\n]\ndefault-members = [\"crates/a\"]\n\n[x]\nopt-level = 2\n";
        assert_eq!(
            small_manifest(manifest).unwrap(),
            "[workspace]\nresolver = \"3\"\nmembers = [\"crates/quantity\", \"crates/selector\", \"crates/core\"]\n\n[x]\nopt-level = 1\n"
        );
        assert!(small_manifest("[package]\n").is_err());
    }

    #[test]
    fn a_mirror_has_what_the_original_has_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("inner")).unwrap();
        fs::create_dir_all(to.join("old")).unwrap();
        fs::write(from.join("inner/file"), "new").unwrap();
        fs::write(to.join("gone"), "").unwrap();
        mirror(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("inner/file")).unwrap(), "new");
        assert!(!to.join("old").exists() && !to.join("gone").exists());
    }

    #[test]
    fn a_test_that_passes_one_that_fails_and_one_that_hangs_are_distinguished() {
        let shell = |script: &str| Command::new("sh").args(["-c", script]).spawn().unwrap();
        assert_eq!(end(shell("exit 0"), PATIENCE).unwrap(), End::Passed);
        assert_eq!(end(shell("exit 101"), PATIENCE).unwrap(), End::Failed);
        assert_eq!(end(shell("exec sleep 100"), Duration::ZERO).unwrap(), End::TimedOut);
    }
}
