//! Running one test program after the other, and reading what it prints.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::plan::Program;
use super::report::{ProgramResult, Report};

/// Runs these programs one after the other.
pub fn all(programs: &[Program], filter: &str, report: &Mutex<Report>) -> Result<()> {
    for program in programs {
        let mut outcome = one(program, &[filter])?;
        // For the report alone: whether there is a race.
        let again = if program.is_on_planes() { outcome.for_second_attempt() } else { Vec::new() };
        for test in again {
            if one(program, &["--exact", &test])?.is_good() {
                outcome.passed_alone(test);
            }
        }
        // In one piece: the other lane prints, too.
        let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
        print!("{}", outcome.text());
        report.add(outcome);
    }
    Ok(())
}

/// Runs a program with these further arguments: a filter.
fn one(program: &Program, filter: &[&str]) -> Result<ProgramResult> {
    let began = Instant::now();
    let mut command = if program.is_on_planes() {
        Command::new(&program.path)
    } else {
        // What computes takes the time that the others leave: these have deadlines.
        let mut nice = Command::new("nice");
        nice.arg("-n10").arg(&program.path);
        nice
    };
    command.current_dir(&program.folder).args(["--report-time", "-Zunstable-options"]);
    command.arg(format!("--test-threads={}", program.threads()));
    command.args(filter.iter().filter(|part| !part.is_empty()));
    // Only with these options the built-in runner shows how long each test took; the compiler is the stable one.
    command.env("RUSTC_BOOTSTRAP", "1");
    if std::env::var_os("SLUICE_BIN").is_none() {
        let built = program.path.ancestors().nth(2).map(|profile| profile.join("sluice"));
        command.env("SLUICE_BIN", built.unwrap_or_default());
    }
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", program.path.display()))?;
    let stderr = child.stderr.take().context("no standard error")?;
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        // What cannot be read is not shown; the exit code says what happened.
        let _ = BufReader::new(stderr).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut outcome = ProgramResult::of(program);
    for line in BufReader::new(child.stdout.take().context("no standard output")?).split(b'\n') {
        let line = line.context("reading what a test printed")?;
        outcome.read(&String::from_utf8_lossy(&line));
    }
    let status = child.wait().context("waiting for a test program")?;
    outcome.end(status.success(), began.elapsed(), &errors.join().unwrap_or_default());
    Ok(outcome)
}

/// The name of a test, whether it was right, and how long it took, from a line like `test a::b ... ok <1.234s>`.
pub fn test(line: &str) -> Option<(&str, bool, Duration)> {
    let (name, rest) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let (word, time) = rest.split_once(" <")?;
    let seconds: f64 = time.trim_end().strip_suffix("s>")?.parse().ok()?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    Some((name, word == "ok", Duration::try_from_secs_f64(seconds).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_built_in_runner_is_read() {
        let of = |line| test(line).map(|(name, good, took)| (name, good, took.as_millis()));
        assert_eq!(of("test a::b ... ok <1.250s>"), Some(("a::b", true, 1_250)));
        assert_eq!(of("test a::b - should panic ... FAILED <0.001s>"), Some(("a::b", false, 1)));
        assert_eq!(of("test a::b ... ignored"), None);
        assert_eq!(of("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out"), None);
    }
}
