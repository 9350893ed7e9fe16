//! Running the built `sluice` binary as a process of the plane.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::binary::binary;
use crate::cgroup::MemoryCgroup;
use crate::plane::ControlPlane;
use crate::process::Program;
use crate::setup::{Limits, Setup};
use crate::vital::VITALS;
use crate::wait::{Progress, eventually};

/// How long a manager may take until it is ready.
const READY_DEADLINE: Duration = Duration::from_mins(3);
/// How long an answer on the health port may take: an explanation is tried out first.
const ANSWER: Duration = Duration::from_mins(3);
/// Stopping longer than this after SIGTERM is a failure: 10 s are promised.
const STOP_DEADLINE: Duration = Duration::from_secs(15);

/// The file that lists what limited the managers of a run: nothing else shows what a test that passed had printed.
const LIMITS: &str = "SLUICE_LIMITS";

/// Adds a line to a file, if there is one.
///
/// # Panics
///
/// If it cannot be written.
fn note(file: Option<&OsStr>, line: &str) {
    let Some(file) = file.filter(|file| !file.is_empty()) else { return };
    let opened = fs::OpenOptions::new().create(true).append(true).open(file);
    // In one write: several tests may have something to add.
    let written = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    assert!(written.is_ok(), "{}: {written:?}", file.display());
}

/// A manager process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Manager {
    program: Program,
    setup: Setup,
    config: PathBuf,
    /// Removed after the program has ended.
    cgroup: Option<MemoryCgroup>,
}

impl Manager {
    /// Starts a manager and waits until it is ready.
    ///
    /// # Errors
    ///
    /// If it cannot be launched (see [`Manager::launch`]), or is not ready in time (see [`Manager::wait_until_ready`]).
    pub async fn start(plane: &ControlPlane, setup: Setup) -> Result<Self> {
        let mut manager = Self::launch(plane, setup).await?;
        manager.wait_until_ready().await?;
        Ok(manager)
    }

    /// Starts a manager without waiting, for tests of a start that must wait or fail.
    ///
    /// # Errors
    ///
    /// If there is no binary (see [`binary`]), its configuration or its log file cannot be written, or the process cannot be started.
    pub async fn launch(plane: &ControlPlane, setup: Setup) -> Result<Self> {
        let binary = tokio::task::spawn_blocking(binary).await.context("building sluice")??;
        let name = format!("sluice-{}", setup.health);
        let config = plane.folder().join(format!("{name}.yaml"));
        fs::write(&config, format!("{:#}", setup.configuration))
            .context("writing the manager's configuration")?;
        let cgroup = setup.limits.and_then(|limits| MemoryCgroup::new(&name, limits.memory));
        let mut command = match setup.limits {
            None => Command::new(binary),
            Some(Limits { memory, files }) => {
                let processes =
                    cgroup.as_ref().map_or_else(|| PathBuf::from("/dev/null"), MemoryCgroup::processes);
                // The shell becomes the manager: its process id, signals and end are the manager's.
                let enter = format!("echo $$ > {}", processes.display());
                let limit = format!("ulimit -d {} && ulimit -n {files}", memory >> 10);
                let mut shell = Command::new("sh");
                shell.args(["-c", &format!("{enter} && {limit} && exec \"$0\" \"$@\"")]).arg(binary);
                shell
            }
        };
        command
            .arg("manager")
            .arg("--config")
            .arg(&config)
            .arg("--kubeconfig")
            .arg(&setup.kubeconfig)
            .args(&setup.args);
        command.env_remove("KUBECONFIG").env("RUST_BACKTRACE", "1").envs(setup.environment.clone());
        let program = plane.spawn(&name, command)?;
        Ok(Self { program, setup, config, cgroup })
    }

    /// Waits until /readyz says so.
    ///
    /// # Errors
    ///
    /// If it is not ready within three minutes, and at once if the process ends. The error has the end of the log.
    pub async fn wait_until_ready(&mut self) -> Result<()> {
        let port = self.setup.health;
        let program = std::sync::Mutex::new(&mut self.program);
        let looked = eventually("the manager's /readyz", READY_DEADLINE, || async {
            if let Ok(mut program) = program.lock()
                && let Err(error) = program.check()
            {
                return Ok(Progress::Never(format!("{error:#}")));
            }
            let (status, body) = health(port, "/readyz").await?;
            Ok(if status == 200 { Progress::Done(()) } else { Progress::NotYet(format!("{status} {body}")) })
        });
        if let Err(error) = looked.await {
            bail!("{error:#}\nthe manager's log ends:\n{}", self.log_tail(20));
        }
        Ok(())
    }

    /// From now on every wait of this process fails at once, with the end of the log, if the manager has ended. For a manager that several tests
    /// share and none stops.
    pub fn must_not_end(&self) {
        VITALS.add(self.program.id(), self.program.name(), self.program.log());
    }

    /// Says what holds its memory down: a cgroup as a container's, or `ulimit` alone.
    ///
    /// # Panics
    ///
    /// If nothing does, or on a machine that lets cgroups be made if it is none.
    pub fn must_be_limited(&self) {
        let by = match (&self.cgroup, self.setup.limits) {
            (Some(_), _) => "a cgroup",
            (None, limits) => {
                assert!(limits.is_some() && !MemoryCgroup::can_be_made(), "the manager has no cgroup");
                "ulimit alone: no cgroup can be made here"
            }
        };
        let line = format!("a manager's memory was limited by {by}");
        println!("{line}");
        note(std::env::var_os(LIMITS).as_deref(), &line);
    }

    /// The status and body of a path on the health port, for example `/healthz`.
    ///
    /// # Errors
    ///
    /// As [`health()`].
    pub async fn health(&self, path: &str) -> Result<(u16, String)> {
        health(self.setup.health, path).await
    }

    /// SIGTERM; how long it took to end, and how it ended.
    ///
    /// # Errors
    ///
    /// If it has not ended after 15 s: then it is killed, and the error has the end of its log. Also if the signal cannot be sent.
    pub async fn stop(mut self) -> Result<(Duration, ExitStatus)> {
        self.program.terminate(STOP_DEADLINE).await
    }

    /// SIGKILL.
    pub fn kill(mut self) -> Setup {
        self.program.kill();
        self.setup.clone()
    }

    /// SIGKILL, and a new start with the same setup.
    ///
    /// # Errors
    ///
    /// As [`Manager::start`].
    pub async fn restart(self, plane: &ControlPlane) -> Result<Self> {
        let setup = self.kill();
        Self::start(plane, setup).await
    }

    /// Makes it stand still (SIGSTOP), until [`Manager::resume`].
    ///
    /// # Errors
    ///
    /// If the signal cannot be sent. A process that has ended is no error.
    pub fn pause(&mut self) -> Result<()> {
        self.program.signal(Signal::STOP)
    }

    /// Lets it continue (SIGCONT).
    ///
    /// # Errors
    ///
    /// If the signal cannot be sent. A process that has ended is no error.
    pub fn resume(&mut self) -> Result<()> {
        self.program.signal(Signal::CONT)
    }

    /// How it ended, or `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.program.ended()
    }

    /// The setup with which it was started.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The configuration file.
    pub fn config_path(&self) -> &Path {
        &self.config
    }

    /// The whole log so far.
    ///
    /// # Errors
    ///
    /// If the log file cannot be read, or is not UTF-8.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(self.program.log()).context("reading the manager's log")
    }

    /// The last lines of the log.
    pub fn log_tail(&self, lines: usize) -> String {
        self.program.log_tail(lines)
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.program.id()
    }

    /// Resident memory, in bytes.
    ///
    /// # Errors
    ///
    /// If the process has ended: then /proc does not say how much it uses.
    pub fn resident_memory(&self) -> Result<u64> {
        self.memory("VmRSS:")
    }

    /// Resident memory without what is mapped from files, in bytes: the program's own code comes in page by page.
    ///
    /// # Errors
    ///
    /// If the process has ended: then /proc does not say how much it uses.
    pub fn anonymous_memory(&self) -> Result<u64> {
        self.memory("RssAnon:")
    }

    fn memory(&self, kind: &str) -> Result<u64> {
        let status =
            fs::read_to_string(format!("/proc/{}/status", self.program.id())).context("reading /proc")?;
        let line = status.lines().find_map(|line| line.strip_prefix(kind));
        let line = line.with_context(|| format!("no {kind} in /proc"))?;
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").trim().parse().context("reading memory")?;
        Ok(kibibytes * 1024)
    }

    /// Leaves it running when this process ends (see [`ControlPlane::hand_over`]); its process id.
    pub fn hand_over(mut self) -> u32 {
        self.program.detach();
        self.program.id()
    }
}

/// A plain HTTP GET on a health port of 127.0.0.1: status and body.
///
/// # Errors
///
/// If nothing listens on the port, the answer is not complete after three minutes, or it has no HTTP status.
pub async fn health(port: u16, path: &str) -> Result<(u16, String)> {
    let started = Instant::now();
    let mut stream =
        TcpStream::connect(("127.0.0.1", port)).await.context("connecting to the health port")?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.context("asking the health port")?;
    let mut answer = Vec::new();
    tokio::time::timeout(ANSWER, stream.read_to_end(&mut answer))
        .await
        .with_context(|| format!("no answer from {path} after {:?}", started.elapsed()))?
        .context("reading from the health port")?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    Ok((status.context("no HTTP status in the answer")?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_limited_managers_is_listed_where_that_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("limits");
        for line in ["a cgroup", "ulimit"] {
            note(Some(file.as_os_str()), line);
        }
        note(None, "nowhere");
        note(Some(OsStr::new("")), "nowhere");
        assert_eq!(fs::read_to_string(&file).unwrap(), "a cgroup\nulimit\n");
    }
}
