//! Which crates have to be checked alone.
//!
//! In a build of the workspace each crate gets the features that any crate wants, so a crate that forgot a feature compiles. Checked alone, it is
//! compiled with the features of its own manifest. If that makes no difference to the crate and its direct dependencies, the workspace build has
//! proven the same, and the check would only compile everything below it again.

use std::path::Path;

use anyhow::Result;

use super::{Package, output};

/// The names of the crates that see other features when they are compiled alone.
///
/// # Errors
///
/// When `cargo tree` fails.
pub fn differing(root: &Path, packages: &[Package]) -> Result<Vec<String>> {
    let together = tree(root, &["--workspace"])?;
    let mut names = Vec::new();
    for Package { name, .. } in packages {
        if !is_part(&tree(root, &["--package", name])?, &together) {
            names.push(name.clone());
        }
    }
    Ok(names)
}

/// The chosen crates, each with its direct dependencies and the features of them all, as `cargo build` would compile them.
fn tree(root: &Path, chosen: &[&str]) -> Result<String> {
    let how = ["tree", "--locked", "--edges", "no-dev", "--depth", "1", "--no-dedupe", "--prefix", "depth"];
    let args: Vec<_> = how.iter().chain(&["--format", "{p} [{f}]"]).chain(chosen).copied().collect();
    output(root, "cargo", &args)
}

/// Whether a crate's tree is one of the trees, which empty lines separate.
fn is_part(alone: &str, together: &str) -> bool {
    together.split("\n\n").any(|tree| tree.trim() == alone.trim())
}

#[cfg(test)]
mod tests {
    use sluice_testkit::assets;

    use super::super::workspace_packages;
    use super::*;

    #[test]
    fn a_crate_with_the_same_features_alone_is_distinguished_from_one_with_others() {
        let together =
            "0a v1 []\n1kube v5 [client,derive]\n\n0b v1 []\n1kube v5 [client,derive]\n1tokio v1 []\n";
        assert!(is_part("0b v1 []\n1kube v5 [client,derive]\n1tokio v1 []\n", together));
        assert!(!is_part("0a v1 []\n1kube v5 [derive]\n", together), "another feature");
        assert!(!is_part("0b v1 []\n1kube v5 [client,derive]\n", together), "less than all of it");
        assert!(!is_part("0c v1 []\n", together), "unknown");
    }

    #[test]
    fn the_api_asks_for_less_of_kube_than_the_workspace_and_the_selectors_for_the_same() {
        let root = assets::workspace();
        let names = differing(&root, &workspace_packages(&root).unwrap()).unwrap();
        assert!(names.contains(&"sluice-api".to_owned()), "{names:?}");
        assert!(!names.contains(&"sluice-selector".to_owned()), "{names:?}");
    }
}
