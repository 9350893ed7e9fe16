//! `cargo xtask crds`: the CustomResourceDefinitions in `config/crd`, written from the Rust types.
//!
//! One file per kind and a kustomization. `--check` writes nothing and fails if a file differs from the types.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use sluice_api::GROUP;
use sluice_api::crds::{crds, document};

/// Where the files are, from the workspace's root.
const FOLDER: &str = "config/crd";
/// First line of every file.
const HEADER: &str =
    "# Generated from the types in crates/api by `cargo xtask crds`; edit those, not this file.\n";

/// Write the CustomResourceDefinitions of config/crd.
#[derive(clap::Args)]
pub struct Args {
    /// Compare with what is there, and fail on a difference; write nothing.
    #[arg(long)]
    check: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(FOLDER);
    let files = files()?;
    let differences = differences(&folder, &files)?;
    if args.check {
        if !differences.is_empty() {
            let list = differences.join("\n  ");
            bail!("not what the types say; run `cargo xtask crds`:\n  {list}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    write(&folder, &files)?;
    for difference in differences {
        println!("{difference}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The files by name.
fn files() -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for crd in crds() {
        let name = format!("{GROUP}_{}.yaml", crd.spec.names.plural);
        files.insert(name, yaml(&document(&crd))?);
    }
    let resources: Vec<&String> = files.keys().collect();
    let kustomization = yaml(&serde_json::json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": resources,
    }))?;
    files.insert("kustomization.yaml".to_owned(), kustomization);
    Ok(files)
}

fn yaml(document: &serde_json::Value) -> Result<String> {
    // Folded scalars would break patterns and rules over lines at every space.
    let options = serde_saphyr::ser_options! { prefer_block_scalars: false };
    let body =
        serde_saphyr::to_string_with_options(document, options).context("writing a definition as YAML")?;
    Ok(format!("{HEADER}{body}"))
}

/// Which files are missing, differ, or should not be there.
fn differences(folder: &Path, files: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let mut differences = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
        match fs::read_to_string(&path) {
            Ok(found) if found == *text => {}
            Ok(_) => differences.push(format!("{FOLDER}/{name} differs")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                differences.push(format!("{FOLDER}/{name} is missing"));
            }
            Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }
    for path in existing(folder)? {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if !files.contains_key(name) {
            differences.push(format!("{FOLDER}/{name} belongs to no kind"));
        }
    }
    Ok(differences)
}

fn write(folder: &Path, files: &BTreeMap<String, String>) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    for path in existing(folder)? {
        fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    }
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn existing(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("listing {}", folder.display())),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("listing {}", folder.display()))?.path();
        if path.extension().is_some_and(|e| e == "yaml") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
