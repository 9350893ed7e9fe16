//! The shipped binaries: `sluice`, and the kubectl plugin.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::assets::workspace;

/// The variable that names a `sluice` that was built already; the plugin is looked for beside it.
const VARIABLE: &str = "SLUICE_BIN";

/// The `sluice` binary: `SLUICE_BIN`, else that of the running profile, which cargo builds first if necessary.
///
/// # Errors
///
/// If `SLUICE_BIN` names a file that does not exist; without it, if cargo cannot be run or fails. All calls in a process return the result of the
/// first.
pub fn binary() -> Result<PathBuf> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = BINARY.get_or_init(|| match given() {
        Some(path) => fs::canonicalize(&path)
            .map_err(|error| format!("looking for {VARIABLE}={}: {error}", path.display())),
        None => build("sluice-cli", "sluice").map_err(|error| format!("{error:#}")),
    });
    found.clone().map_err(|error| anyhow!("{error}"))
}

/// The `kubectl-kueue` binary: beside `SLUICE_BIN`, else that of the running profile.
///
/// # Errors
///
/// If the plugin is not beside `SLUICE_BIN`; without that variable, if cargo cannot be run or fails. All calls in a process return the result of the
/// first.
pub fn plugin() -> Result<PathBuf> {
    static BINARY: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let found = BINARY.get_or_init(|| match given() {
        Some(sluice) => {
            let path = sluice.with_file_name("kubectl-kueue");
            fs::canonicalize(&path).map_err(|error| format!("looking for {}: {error}", path.display()))
        }
        None => build("sluice-ctl", "kubectl-kueue").map_err(|error| format!("{error:#}")),
    });
    found.clone().map_err(|error| anyhow!("{error}"))
}

fn given() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn build(package: &str, name: &str) -> Result<PathBuf> {
    // A test is in target/<profile>/deps, a program in target/<profile>.
    let me = std::env::current_exe().context("asking for the running program")?;
    let folder: &Path =
        me.ancestors().skip(1).find(|folder| !folder.ends_with("deps")).context("looking for the profile")?;
    let target = folder.parent().context("looking for the target folder")?;
    let profile = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let profile = if profile == "debug" { "dev" } else { profile };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(workspace())
        .args(["build", "--quiet", "--package", package, "--bin", name, "--profile", profile])
        .arg("--target-dir")
        .arg(target)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("running cargo build")?;
    if !status.success() {
        bail!("building {name} failed: {status}");
    }
    Ok(folder.join(name))
}
