//! A real Prometheus: Debian's package, from the `PATH`, else from the cache, else downloaded by apt-get (which needs no rights for that).

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::Request;
use kube::{Client, Config};
use serde_json::{Value, json};

use crate::assets::workspace;
use crate::plane::ControlPlane;
use crate::ports::free_ports;
use crate::process::Program;
use crate::wait::{Progress, eventually};

const DEADLINE: Duration = Duration::from_mins(3);

/// The path of `prometheus` or `promtool`; the package is fetched first where it is missing. Blocks.
///
/// # Errors
/// There is no Debian package to be had: then Prometheus must be installed.
pub fn path(program: &str) -> Result<PathBuf> {
    if let Some(found) = installed(std::env::var_os("PATH").as_deref(), program) {
        return Ok(found);
    }
    let folder = workspace().join(".cache/prometheus");
    let found = folder.join("usr/bin").join(program);
    if found.is_file() {
        return Ok(found);
    }
    let parent = workspace().join(".cache");
    fs::create_dir_all(&parent).with_context(|| format!("making {}", parent.display()))?;
    // One download at a time on the machine: a second process waits here and then finds it.
    let lock = File::create(parent.join(".prometheus.lock")).context("opening the lock of Prometheus")?;
    lock.lock().context("locking")?;
    if !found.is_file() {
        fetch(&folder)?;
    }
    ensure!(found.is_file(), "the package prometheus has no {program}");
    Ok(found)
}

fn installed(path: Option<&OsStr>, program: &str) -> Option<PathBuf> {
    std::env::split_paths(path?).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Fetches the package and unpacks it; nothing is installed.
fn fetch(folder: &Path) -> Result<()> {
    let work = tempfile::tempdir().context("making a folder for the package")?;
    let download = || run(Command::new("apt-get").args(["download", "prometheus"]).current_dir(work.path()));
    if download().is_err() {
        // A fresh machine has no package lists yet.
        run(Command::new("apt-get").arg("update"))?;
        download().context("fetching Prometheus: install it, or use a machine with Debian's packages")?;
    }
    let files = fs::read_dir(work.path()).context("looking for the package")?;
    let packages: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    let package = packages.iter().find(|path| path.extension().is_some_and(|end| end == "deb"));
    let package = package.context("apt-get fetched no package")?;
    // A half-unpacked program must never be found: unpack aside, then rename.
    let partial = folder.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).context("removing what was left half-unpacked")?;
    }
    run(Command::new("dpkg-deb").arg("-x").arg(package).arg(&partial))?;
    fs::rename(&partial, folder).with_context(|| format!("moving Prometheus to {}", folder.display()))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {said}");
    Ok(())
}

/// Has promtool check a file of alert rules; what it says.
///
/// # Errors
/// It finds fault with them.
pub fn check_rules(file: &Path) -> Result<String> {
    promtool(["check", "rules"], file)
}

/// Has promtool play made-up series to alert rules, as a file of unit tests says; what it says.
///
/// # Errors
/// Not all comes out as the file expects.
pub fn test_rules(file: &Path) -> Result<String> {
    promtool(["test", "rules"], file)
}

fn promtool(task: [&str; 2], file: &Path) -> Result<String> {
    let mut command = Command::new(path("promtool")?);
    command.args(task).arg(file).stdin(Stdio::null());
    let output = command.output().context("running promtool")?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    ensure!(
        output.status.success(),
        "promtool finds fault with the rules:\n{}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    Ok(text(&output.stdout))
}

/// A running Prometheus. It is killed when this is dropped.
pub struct Prometheus {
    _program: Program,
    client: Client,
}

impl Prometheus {
    /// Starts it with a configuration (`prometheus.yml`), beside the plane and with its data in the plane's folder.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start(plane: &ControlPlane, configuration: &Value) -> Result<Self> {
        let program =
            tokio::task::spawn_blocking(|| path("prometheus")).await.context("fetching Prometheus")??;
        let port = free_ports(1)?[0];
        let folder = plane.folder().join(format!("prometheus-{port}"));
        fs::create_dir_all(&folder).context("making Prometheus' folder")?;
        let file = folder.join("prometheus.yml");
        fs::write(&file, format!("{configuration:#}")).context("writing Prometheus' configuration")?;
        let mut command = Command::new(program);
        command.current_dir(&folder).args([
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ]);
        let mut program = plane.spawn(&format!("prometheus-{port}"), command)?;
        let mut config = Config::new(format!("http://127.0.0.1:{port}").parse().context("an address")?);
        config.default_retry = false;
        let client = Client::try_from(config).context("making a client of Prometheus")?;
        let mutex = std::sync::Mutex::new(&mut program);
        eventually("Prometheus to be ready", DEADLINE, || async {
            if let Ok(mut program) = mutex.lock()
                && let Err(error) = program.check()
            {
                return Ok(Progress::Never(format!("{error:#}")));
            }
            client.request_text(Request::get("/-/ready").body(Vec::new())?).await?;
            Ok(Progress::Done(()))
        })
        .await?;
        Ok(Self { _program: program, client })
    }

    /// The `data` of an answer of its API, as of `/api/v1/targets`.
    ///
    /// # Errors
    /// It answers with an error: what it says.
    pub async fn api(&self, path: &str) -> Result<Value> {
        let request = Request::get(path).body(Vec::new()).context("making a request")?;
        let answer: Value = self.client.request(request).await.with_context(|| format!("asking {path}"))?;
        if answer["status"] != "success" {
            bail!("{path}: {answer}");
        }
        Ok(answer["data"].clone())
    }

    /// The samples that a query gives now.
    ///
    /// # Errors
    /// The query is wrong.
    pub async fn query(&self, query: &str) -> Result<Vec<Value>> {
        let mut path = "/api/v1/query?query=".to_owned();
        for byte in query.bytes() {
            write!(path, "%{byte:02X}").context("encoding a query")?;
        }
        let data = self.api(&path).await?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }
}

/// A job of `prometheus.yml` that scrapes one address over TLS with a token.
pub fn scrape_job(name: &str, address: &str, token: &Path) -> Value {
    json!({
        "job_name": name,
        "scheme": "https",
        "metrics_path": "/metrics",
        "authorization": {"credentials_file": token},
        "tls_config": {"insecure_skip_verify": true},
        "static_configs": [{"targets": [address]}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_installed_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("promtool"), "").unwrap();
        let path = Some(folder.path().as_os_str());
        assert_eq!(installed(path, "promtool"), Some(folder.path().join("promtool")));
        assert_eq!(installed(path, "prometheus"), None);
        assert_eq!(installed(None, "prometheus"), None);
    }
}
