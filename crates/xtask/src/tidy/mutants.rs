//! The parts of the core that mutants change: those that `.cargo/mutants.toml` names exist, and the sample of `tests/mutants.toml` is in them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The settings of cargo-mutants.
const SETTINGS: &str = ".cargo/mutants.toml";

/// The changes of `cargo xtask mutants`.
const SAMPLE: &str = "tests/mutants.toml";

#[derive(Deserialize)]
struct Settings {
    examine_globs: Vec<String>,
}

#[derive(Deserialize)]
struct Sample {
    mutant: Vec<Mutant>,
}

#[derive(Deserialize)]
struct Mutant {
    /// Below `crates/core/src`.
    file: String,
}

/// A finding for each glob of the settings without a file, and for each file of the sample without a glob.
///
/// # Errors
///
/// If one of the two files is missing or cannot be read.
pub fn check(files: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let (settings, sample): (Settings, Sample) = (parsed(files, SETTINGS)?, parsed(files, SAMPLE)?);
    let globs = &settings.examine_globs;
    let unmatched = globs.iter().filter(|glob| !files.keys().any(|path| matches(glob, path)));
    let mut findings: Vec<_> = unmatched.map(|glob| format!("{SETTINGS}: there is no {glob}")).collect();
    let sampled = sample.mutant.iter().map(|mutant| format!("crates/core/src/{}", mutant.file));
    let outside = sampled.filter(|path| !globs.iter().any(|glob| matches(glob, path)));
    findings.extend(outside.map(|path| format!("{SAMPLE}: {path} is not in {SETTINGS}")));
    Ok(findings)
}

fn parsed<T: DeserializeOwned>(files: &BTreeMap<String, String>, path: &str) -> Result<T> {
    let text = files.get(path).with_context(|| format!("there is no {path}"))?;
    toml::from_str(text).with_context(|| format!("parse {path}"))
}

/// Whether a path has this form: `*` stands for any part of a name.
fn matches(glob: &str, path: &str) -> bool {
    let Some((before, after)) = glob.split_once('*') else { return glob == path };
    let name = path.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
    name.is_some_and(|name| !name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glob_without_a_file_and_a_change_without_a_glob_are_reported() {
        let findings = |globs: &str| {
            let all = [
                (SETTINGS, format!("examine_globs = [{globs}]\nminimum_test_timeout = 300\n")),
                (SAMPLE, "[[mutant]]\nfile = \"cycle/heads.rs\"\nwhat = \"x\"\n".to_owned()),
                ("crates/core/src/cycle/heads.rs", String::new()),
                ("crates/core/src/cycle/more/deep.rs", String::new()),
            ];
            check(&all.into_iter().map(|(path, text)| (path.to_owned(), text)).collect()).unwrap()
        };
        assert!(findings("\"crates/core/src/cycle/*.rs\"").is_empty());
        assert!(findings("\"crates/core/src/cycle/heads.rs\"").is_empty());
        let found = findings("\"crates/core/src/cycle/more/*.rs\", \"crates/core/src/gone/*.rs\"");
        let expected = [
            ".cargo/mutants.toml: there is no crates/core/src/gone/*.rs",
            "tests/mutants.toml: crates/core/src/cycle/heads.rs is not in .cargo/mutants.toml",
        ];
        assert_eq!(found, expected);
    }
}
