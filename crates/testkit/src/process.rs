//! Child processes that never outlive their test: each is stopped by its own id on drop, and a watchdog does it when the
//! test process itself is killed or ends without dropping (a `static` is never dropped).

use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::vital::{VITALS, tail};

/// The watchdog's script: it keeps the ids of living programs. When its input ends because the process that feeds it has died, it kills them and
/// removes the folder. It ignores the terminal's signals, so that Ctrl-C does not kill it before the programs.
const WATCHDOG: &str = r#"
trap '' INT TERM HUP
pids=
keep=
while read -r sign pid; do
  case $sign in
    +) pids="$pids $pid" ;;
    -) rest=; for p in $pids; do [ "$p" = "$pid" ] || rest="$rest $p"; done; pids=$rest ;;
    keep) keep=yes ;;
  esac
done
[ -z "$keep" ] || exit 0
[ -z "$pids" ] || kill -9 $pids 2>/dev/null
for try in 1 2 3 4 5; do
  rm -rf -- "$1" 2>/dev/null && break
  sleep 0.2
done
"#;

/// Kills the programs it knows and removes their folder once the process that made it is gone.
#[derive(Debug)]
pub struct Watchdog {
    input: Mutex<Option<ChildStdin>>,
    child: Mutex<Child>,
}

impl Watchdog {
    /// Starts a watchdog that removes `folder` at the end.
    ///
    /// # Errors
    ///
    /// If `sh` cannot be started.
    pub fn start(folder: &Path) -> Result<Arc<Self>> {
        let mut child = Command::new("sh")
            .args(["-c", WATCHDOG, "watchdog"])
            .arg(folder)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting the watchdog (sh)")?;
        let input = child.stdin.take();
        Ok(Arc::new(Self { input: Mutex::new(input), child: Mutex::new(child) }))
    }

    fn note(&self, line: &str) {
        let mut input = self.input.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pipe) = input.as_mut() {
            // A dead watchdog matters only if this process is killed, too.
            let _ = writeln!(pipe, "{line}").and_then(|()| pipe.flush());
        }
    }

    /// Registers a program that is not, or no longer, our child to be killed with this process.
    pub fn adopt(&self, id: u32) {
        self.note(&format!("+ {id}"));
    }

    /// Lets everything live on when this process ends.
    pub fn disarm(&self) {
        self.note("keep");
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.input.lock().unwrap_or_else(PoisonError::into_inner).take());
        // The watchdog ends by itself now; waiting ensures that everything is gone when this returns.
        let _ = self.child.lock().unwrap_or_else(PoisonError::into_inner).wait();
    }
}

/// The variable with the test that started a program: `ps e` shows for which test a program runs.
const STARTED_BY: &str = "SLUICE_TEST";

/// A running program with its log file.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    log: PathBuf,
    watchdog: Arc<Watchdog>,
    /// Left running on drop.
    detached: bool,
}

impl Program {
    /// Starts `command` in a process group of its own; both its outputs are appended to `log`.
    ///
    /// # Errors
    ///
    /// If the log file cannot be opened, or the program does not exist or cannot be run.
    pub fn start(name: &str, mut command: Command, log: &Path, watchdog: &Arc<Watchdog>) -> Result<Self> {
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("opening {}", log.display()))?;
        let err = out.try_clone().with_context(|| format!("opening {}", log.display()))?;
        if let Some(test) = std::thread::current().name() {
            command.env(STARTED_BY, test);
        }
        let child = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .with_context(|| format!("starting {name} ({})", command.get_program().display()))?;
        watchdog.adopt(child.id());
        let watchdog = Arc::clone(watchdog);
        Ok(Self { name: name.to_owned(), child, log: log.to_path_buf(), watchdog, detached: false })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The log file.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// How it ended, or `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Looks whether the program runs.
    ///
    /// # Errors
    ///
    /// If the program has ended. The error has the end of its log.
    pub fn check(&mut self) -> Result<()> {
        match self.ended() {
            None => Ok(()),
            Some(status) => {
                bail!("{} ended early ({status}); its log ends:\n{}", self.name, self.log_tail(20))
            }
        }
    }

    /// The last lines of the log.
    pub fn log_tail(&self, lines: usize) -> String {
        tail(&self.log, lines)
    }

    /// Sends a signal, unless the program has ended already.
    ///
    /// # Errors
    ///
    /// If the operating system does not let the signal be sent.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        if self.ended().is_some() {
            return Ok(());
        }
        // The process is not reaped yet, so its id cannot belong to another one.
        kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("signalling {}", self.name))
    }

    /// SIGTERM, then waits at most `patience`; returns how long it took and how it ended.
    ///
    /// # Errors
    ///
    /// If it has not ended after `patience`: then it is killed, and the error has the end of its log. Also if SIGTERM cannot be sent.
    pub async fn terminate(&mut self, patience: Duration) -> Result<(Duration, ExitStatus)> {
        let started = Instant::now();
        VITALS.remove(self.child.id());
        self.signal(Signal::TERM)?;
        loop {
            if let Some(status) = self.ended() {
                self.watchdog.note(&format!("- {}", self.child.id()));
                return Ok((started.elapsed(), status));
            }
            if started.elapsed() > patience {
                self.kill();
                bail!(
                    "{} did not end within {patience:?} of SIGTERM; its log ends:\n{}",
                    self.name,
                    self.log_tail(20)
                );
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        VITALS.remove(self.child.id());
        // Errors only say that it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.watchdog.note(&format!("- {}", self.child.id()));
    }

    /// Leaves the program running when this value is dropped.
    pub(crate) fn detach(&mut self) {
        self.detached = true;
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if !self.detached {
            self.kill();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn alive(id: u32) -> bool {
        // A zombie still has a folder in /proc; its state shows that it has ended.
        fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    fn sleeper(folder: &Path, watchdog: &Arc<Watchdog>) -> Program {
        let mut command = Command::new("sleep");
        command.arg("600");
        Program::start("sleeper", command, &folder.join("log"), watchdog).unwrap()
    }

    #[tokio::test]
    async fn terminate_ends_the_program_and_says_how_long_it_took() {
        let folder = tempfile::tempdir().unwrap();
        let watchdog = Watchdog::start(folder.path()).unwrap();
        let mut program = sleeper(folder.path(), &watchdog);
        assert!(program.ended().is_none());
        let (took, status) = program.terminate(Duration::from_mins(1)).await.unwrap();
        assert!(took < Duration::from_mins(1) && !status.success());
        assert!(program.check().unwrap_err().to_string().contains("ended early"));
    }

    #[test]
    fn dropping_stops_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let watchdog = Watchdog::start(folder.path()).unwrap();
        let program = sleeper(folder.path(), &watchdog);
        let id = program.id();
        assert!(alive(id));
        drop(program);
        assert!(!alive(id));
    }

    #[test]
    fn the_watchdog_kills_what_its_maker_left_behind_and_removes_the_folder() {
        let folder = tempfile::tempdir().unwrap().keep();
        let watchdog = Watchdog::start(&folder).unwrap();
        let mut program = sleeper(&folder, &watchdog);
        program.detach();
        let id = program.id();
        // As when this process ends without dropping anything: the pipe closes.
        let mut reaped = program;
        drop(watchdog.input.lock().unwrap().take());
        watchdog.child.lock().unwrap().wait().unwrap();
        assert!(reaped.child.wait().is_ok_and(|status| !status.success()));
        assert!(!alive(id) && !folder.exists());
    }
}
