//! How much CPU time a test program takes, with all that it starts.
//!
//! A plane that the tests of a program share outlives it by a moment: the watchdog stops it, and no process is left that counts what it took. So each
//! program runs below a process of its own that inherits what it leaves behind, waits for it too, and prints the sum as its last line.

use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait};

/// What the last line begins with; milliseconds follow.
const LINE: &str = "cpu time in ms: ";
/// How long what a program leaves behind may take to end. What takes longer is not counted.
const PATIENCE: Duration = Duration::from_secs(30);

/// A program to be run.
#[derive(clap::Args)]
pub struct Args {
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

/// Runs the program and ends as it did, when all that it started has ended too.
pub fn run(args: &Args) -> Result<ExitCode> {
    set_child_subreaper(Some(getpid())).context("inheriting what the program leaves behind")?;
    let program = args.command.first().context("no program")?;
    // Of those that it had before it became this program, as the last of a shell's commands does.
    let before = so_far()?;
    let child = Command::new(program)
        .args(&args.command[1..])
        .spawn()
        .with_context(|| format!("starting {}", program.display()))?;
    let child = Pid::from_child(&child);
    let (ended, ends) = mpsc::channel();
    // An error says that none is left to wait for.
    std::thread::spawn(move || {
        while let Ok(Some(end)) = wait(WaitOptions::empty()) {
            if ended.send(end).is_err() {
                break;
            }
        }
    });
    let status = loop {
        let (id, status) = ends.recv().context("waiting for the program")?;
        if id == child {
            break status;
        }
    };
    let began = Instant::now();
    while ends.recv_timeout(PATIENCE.saturating_sub(began.elapsed())).is_ok() {}
    println!("{LINE}{}", so_far()?.saturating_sub(before).as_millis());
    Ok(ExitCode::from(code(status)))
}

/// What the children of this process took that were waited for.
fn so_far() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("reading /proc")?;
    of_children(&stat).context("no times in /proc/self/stat")
}

/// The exit code, or as a shell says by which signal it ended.
fn code(status: WaitStatus) -> u8 {
    let code = status.exit_status().or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}

/// Fields 16 and 17 of /proc/self/stat, which count the children that were waited for, theirs, and so on: in ticks of 10 ms (Linux' USER_HZ is 100 on
/// every platform).
fn of_children(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(13);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

/// The CPU time that a line says, if it is [`run`]'s last.
pub fn read(line: &str) -> Option<Duration> {
    line.strip_prefix(LINE)?.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_children_are_separate_from_its_own() {
        let stat = "1 (a b) c) S 0 1 1 0 -1 4194560 1 2 3 4 150 50 700 80 20 0 8 0 9 10 11";
        assert_eq!(of_children(stat), Some(Duration::from_millis(7_800)));
        assert_eq!(of_children(""), None);
        assert_eq!(read(&format!("{LINE}7800")), Some(Duration::from_millis(7_800)));
        assert_eq!(read("test a ... ok <1.250s>"), None);
    }
}
