//! What is for tests only is not in the programs that people install.

use std::path::Path;

use anyhow::Result;

use super::output;

/// The crates of those programs, as the Makefile builds them.
const SHIPPED: [&str; 2] = ["sluice-cli", "sluice-ctl"];

/// Features of our crates that are for tests.
const FOR_TESTS: [(&str, &str); 2] = [("sluice-sim", "faults"), ("sluice-core", "fixtures")];

/// Findings for features for tests in the programs.
///
/// # Errors
///
/// When `cargo tree` fails.
pub fn check(root: &Path) -> Result<Vec<String>> {
    let how = ["tree", "--locked", "--edges", "no-dev", "--prefix", "none", "--format", "{p} [{f}]"];
    let chosen = SHIPPED.iter().flat_map(|name| ["--package", name]);
    let tree = output(root, "cargo", &how.into_iter().chain(chosen).collect::<Vec<_>>())?;
    Ok(FOR_TESTS.iter().filter_map(|(name, feature)| finding(&tree, name, feature)).collect())
}

/// What is wrong with a crate of the tree, whose lines are like `sluice-sim v0.1.0 (/a/b) [one,two]`.
fn finding(tree: &str, name: &str, feature: &str) -> Option<String> {
    let mut features = tree.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?.strip_prefix(' ')?;
        Some(rest.rsplit_once('[')?.1.split(']').next()?.split(',').collect::<Vec<_>>())
    });
    let Some(first) = features.next() else {
        return Some(format!("{name}: is in no program; take it off the list in shipped.rs"));
    };
    let is_there = first.contains(&feature) || features.any(|all| all.contains(&feature));
    is_there.then(|| format!("{name}: its feature {feature} is for tests, and is in what people install"))
}

#[cfg(test)]
mod tests {
    use sluice_testkit::assets;

    use super::*;

    #[test]
    fn a_feature_for_tests_in_a_program_is_reported() {
        let tree =
            |features: &str| format!("a v1 [faults]\n\nsim v1 (/x) [{features}]\nsim-b v1 [faults] (*)\n");
        assert_eq!(finding(&tree(""), "sim", "faults"), None);
        assert_eq!(finding(&tree("other"), "sim", "faults"), None);
        for features in ["faults", "other,faults"] {
            assert!(
                finding(&tree(features), "sim", "faults").unwrap().starts_with("sim: its feature faults")
            );
        }
        let twice = tree("") + "sim v1 (/x) [faults] (*)\n";
        assert!(finding(&twice, "sim", "faults").is_some());
        assert!(finding(&tree(""), "engine", "faults").unwrap().starts_with("engine: is in no program"));
    }

    #[test]
    fn the_faults_of_simulations_are_in_no_program() {
        assert_eq!(check(&assets::workspace()).unwrap(), [""; 0]);
    }
}
