//! The files around the code: the image, the Makefile, the README, the examples' files.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sluice_testkit::assets;
use sluice_tests::story;

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(assets::workspace().join(path)).unwrap()
}

fn targets() -> BTreeSet<String> {
    let makefile = read("Makefile");
    let rules = makefile.lines().filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()));
    rules.filter_map(|line| line.split_once(':')).map(|(target, _)| target.to_owned()).collect()
}

#[test]
fn the_image_is_built_by_the_command_of_make_build() {
    let makefile = read("Makefile");
    let command = makefile.lines().find_map(|line| line.strip_prefix("BUILD := ")).unwrap();
    assert!(makefile.contains("\nbuild: ## ") && makefile.contains("\n\t$(STAMP) $(BUILD)\n"));
    let dockerfile = read("Dockerfile");
    let runs: Vec<&str> = dockerfile.lines().filter_map(|line| line.strip_prefix("RUN ")).collect();
    assert_eq!(runs, [command]);
    // What that command makes is what the image runs.
    assert!(dockerfile.contains("COPY --from=build /src/target/release/sluice /sluice\n"));
    assert!(dockerfile.contains("ENTRYPOINT [\"/sluice\"]"));
}

/// The commands that make would run for a target.
fn planned(folder: &Path, target: &str) -> String {
    let mut make = Command::new("make");
    make.arg("--file").arg(assets::workspace().join("Makefile")).arg("--directory").arg(folder);
    let output = make.env_remove("MAKEFLAGS").args(["--dry-run", "ENGINE=engine", target]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The value of a variable in planned commands.
fn value<'a>(commands: &'a str, variable: &str) -> &'a str {
    let (_, rest) = commands.split_once(&format!("{variable}=")).unwrap();
    rest.split_whitespace().next().unwrap()
}

#[test]
fn what_ships_knows_its_commit_and_a_tarball_builds_without() {
    let folder = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.arg("-C").arg(folder.path()).args(["-c", "user.name=x", "-c", "user.email=x@example.com"]);
        let output = git.args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let (reads, dockerfile) = (read("crates/client/src/version.rs"), read("Dockerfile"));
    let variables = ["SLUICE_GIT_COMMIT", "SLUICE_BUILD_DATE"];
    for variable in variables {
        assert!(reads.contains(&format!("option_env!(\"{variable}\")")));
        assert!(dockerfile.contains(&format!("\nARG {variable}=unknown\n")));
        assert!(dockerfile.contains(&format!(" {variable}=${{{variable}}} \\\n")));
        for target in ["build", "image"] {
            assert_eq!(value(&planned(folder.path(), target), variable), "unknown", "{target}");
        }
    }
    git(&["init", "--quiet"]);
    fs::write(folder.path().join("file"), "one").unwrap();
    git(&["add", "file"]);
    git(&["commit", "--quiet", "--message", "one"]);
    git(&["tag", "v1"]);
    let known = [git(&["rev-parse", "HEAD"]), git(&["log", "-1", "--format=%cI"])];
    for target in ["build", "image"] {
        let commands = planned(folder.path(), target);
        assert_eq!(variables.map(|variable| value(&commands, variable)), [&known[0], &known[1]], "{target}");
    }
    fs::write(folder.path().join("file"), "two").unwrap();
    let changed = planned(folder.path(), "build");
    assert_eq!(value(&changed, variables[0]), format!("{}-dirty", known[0]), "it is not what was committed");
}

#[test]
fn the_image_is_built_with_the_pinned_toolchain_and_does_not_run_as_root() {
    let toolchain = read("rust-toolchain.toml");
    let channel =
        toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap().trim_matches('"');
    let dockerfile = read("Dockerfile");
    assert!(dockerfile.contains(&format!("library/rust:{channel}-")));
    assert!(dockerfile.contains(&format!("RUSTUP_TOOLCHAIN={channel}\n")));
    let user = dockerfile.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    assert_ne!(user.split(':').next().unwrap().parse::<u32>().unwrap(), 0);
}

#[test]
fn no_file_that_the_build_needs_is_kept_out_of_the_image_s_context() {
    let ignored = read(".dockerignore");
    for needed in ["Cargo.toml", "Cargo.lock", "crates", "tests", ".cargo"] {
        assert!(!ignored.lines().any(|line| line.trim_end_matches('/') == needed), "{needed}");
    }
}

#[test]
fn the_makefile_has_the_promised_targets_and_help_is_the_default() {
    let promised = [
        "help",
        "build",
        "check",
        "test",
        "soak",
        "day",
        "lint",
        "try",
        "demo",
        "docs",
        "bench",
        "crds",
        "image",
        "clean",
        "mutants",
        "exhaustive",
    ];
    let targets = targets();
    for target in promised {
        assert!(targets.contains(target), "{target}");
    }
    assert!(read("Makefile").contains(".DEFAULT_GOAL := help"));
}

/// What Sluice is, a picture, which kinds it queues, two commands, how to install it, and three links into the book.
#[test]
fn the_readme_is_a_landing_page() {
    let text = read("README.md");
    assert!(text.lines().count() <= 70, "{}", text.lines().count());
    let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(headings, ["## Two commands", "## Install", "## Read on"]);
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let pages: Vec<&str> = links.filter(|link| link.starts_with("docs/")).collect();
    assert_eq!(pages, ["docs/SUMMARY.md", "docs/tasks/from-kueue.md", "docs/manual/support.md"]);
}

#[test]
fn the_chart_has_the_version_of_the_workspace() {
    let manifest = read("Cargo.toml");
    let version =
        manifest.lines().find_map(|line| line.strip_prefix("version = ")).unwrap().trim_matches('"');
    let chart: Value = serde_saphyr::from_str(&read("charts/sluice/Chart.yaml")).unwrap();
    assert_eq!(chart["version"], version);
    assert_eq!(chart["appVersion"], version);
    assert!(read("CHANGELOG.md").contains("## [Unreleased]"));
}

/// The folders with a story; `simulate` holds the same stories for the simulator.
fn examples() -> Vec<PathBuf> {
    let entries = fs::read_dir(assets::workspace().join("examples")).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.is_dir() && !["simulate", "integrations"].iter().any(|other| path.ends_with(other))
        })
        .collect()
}

/// Every YAML file of an example but `expected.yaml`, relative to its folder.
fn manifests(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                found.insert(path.strip_prefix(folder).unwrap().display().to_string());
            }
        }
    }
    found.remove("expected.yaml");
    found
}

#[test]
fn every_example_has_a_readme_and_scenarios_that_use_all_its_files() {
    let folders = examples();
    assert!(folders.len() >= 5, "{folders:?}");
    let list = read("examples/README.md");
    for folder in folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(list.contains(&format!("[{name}]({name})")), "examples/README.md does not list {name}");
        assert!(folder.join("README.md").is_file(), "{}", folder.display());
        assert!(!story::scenarios(&folder).unwrap().is_empty());
        let expected: Value =
            serde_saphyr::from_str(&fs::read_to_string(folder.join("expected.yaml")).unwrap()).unwrap();
        let used: BTreeSet<String> = expected["scenarios"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|scenario| scenario["steps"].as_array().unwrap())
            .flat_map(|step| step["apply"].as_array().cloned().unwrap_or_default())
            .map(|file| file.as_str().unwrap().to_owned())
            .collect();
        assert_eq!(used, manifests(&folder), "{}", folder.display());
    }
}

/// The objects of a file, each without the comments and white space around it.
fn objects(path: &str) -> BTreeSet<String> {
    read(path).split("---\n").map(|text| text.trim().to_owned()).collect()
}

#[test]
fn the_tutorials_order_applies_the_objects_of_its_one_file() {
    let parts = ["1-three-slices.yaml", "2-one-and-two-slices.yaml"];
    let split = parts.iter().flat_map(|name| objects(&format!("examples/tpu-multislice/page-order/{name}")));
    assert_eq!(split.collect::<BTreeSet<_>>(), objects("examples/tpu-multislice/jobs.yaml"));
}
