//! Running kubectl as a user would: strict field validation, the administrator's rights.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, bail};

use crate::assets::{self, Tool};
use crate::plane::ControlPlane;
use crate::plane_parts::COLLECTING;
use crate::vital::VITALS;

/// What a kubectl call printed, and whether it succeeded.
#[derive(Debug, Clone)]
pub struct Output {
    /// Exit code 0.
    pub success: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    /// All that was printed, and which program has ended that must not.
    fn explained(&self) -> String {
        let ended = VITALS.ended().map(|why| format!("\n{why}")).unwrap_or_default();
        format!("{}{}{ended}", self.stdout, self.stderr)
    }
}

/// Runs kubectl against the plane; its standard output.
///
/// # Errors
///
/// If kubectl cannot be run (see [`try_kubectl`]) or does not end with 0: then the error has all it printed.
pub async fn kubectl<S: AsRef<OsStr>>(plane: &ControlPlane, args: &[S]) -> Result<String> {
    let output = try_kubectl(&plane.kubeconfig_path(), args, None).await?;
    if !output.success {
        let args: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
        bail!("kubectl {} failed:\n{}", args.join(" "), output.explained());
    }
    Ok(output.stdout)
}

/// Applies manifests given as text, as `kubectl apply -f -` does; its standard output.
///
/// # Errors
///
/// If kubectl cannot be run (see [`try_kubectl`]) or does not apply every manifest: then the error has all it printed.
pub async fn apply(plane: &ControlPlane, manifests: &str) -> Result<String> {
    let output = try_kubectl(&plane.kubeconfig_path(), &["apply", "-f", "-"], Some(manifests)).await?;
    if !output.success {
        bail!("kubectl apply failed:\n{}", output.explained());
    }
    Ok(output.stdout)
}

/// Runs kubectl with any kubeconfig and input, and returns what came of it.
///
/// # Errors
///
/// If kubectl is missing and cannot be built, cannot be started, or ends with 0 before all of the input is written to it. Any other exit code is no
/// error: see [`Output::success`].
pub async fn try_kubectl<S: AsRef<OsStr>>(
    kubeconfig: &Path,
    args: &[S],
    input: Option<&str>,
) -> Result<Output> {
    let program = assets::path(Tool::Kubectl)?;
    // A cache of discovery in the home folder would mix up planes that had the same port.
    let cache = kubeconfig.parent().unwrap_or(Path::new(".")).join("kubectl-cache");
    let mut command = tokio::process::Command::new(program);
    command.arg("--kubeconfig").arg(kubeconfig).arg("--cache-dir").arg(cache).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.env(COLLECTING.0, COLLECTING.1).env_remove("KUBECONFIG");
    let mut child = command.spawn().context("starting kubectl")?;
    let stdin = child.stdin.take();
    let feed = async {
        if let (Some(mut pipe), Some(input)) = (stdin, input) {
            tokio::io::AsyncWriteExt::write_all(&mut pipe, input.as_bytes()).await?;
        }
        Ok::<(), std::io::Error>(())
    };
    let (sent, output) = tokio::join!(feed, child.wait_with_output());
    let output = output.context("waiting for kubectl")?;
    if output.status.success() {
        sent.context("feeding kubectl")?;
    }
    Ok(Output {
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
