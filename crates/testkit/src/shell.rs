//! Shell commands as a reader of the book types them, with our programs, kubectl and helm on the path.

use std::path::Path;

use anyhow::{Context as _, Result};
use tokio::process::Command;

use crate::assets::{self, Tool};
use crate::{ControlPlane, binary, plugin};

/// What a script came to.
#[derive(Clone, Debug)]
pub struct Pasted {
    /// Its exit code; nothing if a signal ended it.
    pub code: Option<i32>,
    /// What it printed to standard output, then what it printed to standard error.
    pub printed: String,
}

/// Runs a script with bash in a folder, as a cluster's administrator. It ends at the first command that fails.
///
/// # Errors
///
/// If a program that it may call is not there, or if bash cannot be run.
pub async fn paste(plane: &ControlPlane, folder: &Path, script: &str) -> Result<Pasted> {
    let ours = tokio::task::spawn_blocking(|| Ok::<_, anyhow::Error>([binary()?, plugin()?])).await??;
    let tools = [assets::path(Tool::Kubectl)?, assets::path(Tool::Helm)?];
    let folders = ours.iter().chain(&tools).filter_map(|program| program.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(folders.chain(std::env::split_paths(&path))).context("joining PATH")?;
    let mut command = Command::new("bash");
    command.args(["-ec", script]).current_dir(folder).env("PATH", path);
    command.env("KUBECONFIG", plane.kubeconfig_path());
    // Caches of another plane, which had the same port, would mislead the programs.
    let home = plane.folder().join("shell");
    for (variable, name) in [
        ("HELM_CACHE_HOME", "cache"),
        ("HELM_CONFIG_HOME", "config"),
        ("HELM_DATA_HOME", "data"),
        ("KUBECACHEDIR", "discovery"),
    ] {
        command.env(variable, home.join(name));
    }
    let output = command.kill_on_drop(true).output().await.context("running bash")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(Pasted { code: output.status.code(), printed: text(&output.stdout) + &text(&output.stderr) })
}
