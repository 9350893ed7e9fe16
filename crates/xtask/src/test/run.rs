//! Runs test programs, and parses their output.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::joined;
use super::plan::{Part, Program};
use super::report::{ProgramResult, Report};

/// Runs these programs, in their parts, with this many tests at a time in total. The first parts begin first.
pub fn all(programs: &[Program], places: usize, filter: &str, report: &Mutex<Report>) -> Result<()> {
    let mut parts: Vec<_> = programs.iter().flat_map(|program| program.parts(!filter.is_empty())).collect();
    parts.sort_by_key(Part::rank);
    let (free, freed) = (&Mutex::new(places), &Condvar::new());
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for part in &parts {
            let wanted = part.threads.min(places);
            let taken = free.lock().unwrap_or_else(PoisonError::into_inner);
            let mut taken =
                freed.wait_while(taken, |free| *free < wanted).unwrap_or_else(PoisonError::into_inner);
            *taken -= wanted;
            drop(taken);
            running.push(scope.spawn(move || {
                let result = with_second_attempt(part, filter, report);
                *free.lock().unwrap_or_else(PoisonError::into_inner) += wanted;
                freed.notify_one();
                result
            }));
        }
        running.into_iter().try_for_each(joined)
    })
}

fn with_second_attempt(part: &Part<'_>, filter: &str, report: &Mutex<Report>) -> Result<()> {
    let mut outcome = one(part, &[filter])?;
    // For the report alone: whether there is a race.
    let again = if part.program.is_on_planes() { outcome.for_second_attempt() } else { Vec::new() };
    for test in again {
        if one(&part.program.whole(), &["--exact", &test])?.is_good() {
            outcome.passed_alone(test);
        }
    }
    // Printed in one piece, since other threads print, too.
    let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
    print!("{}", outcome.text());
    report.add(outcome);
    Ok(())
}

/// Runs a part with these further arguments: a filter.
fn one(part: &Part<'_>, filter: &[&str]) -> Result<ProgramResult> {
    let program = part.program;
    let began = Instant::now();
    // By this link, as the build may have replaced the file.
    let ourselves = "/proc/self/exe";
    let mut command = Command::new(ourselves);
    command.arg("test-program");
    if !program.is_on_planes() {
        // What computes takes the time that the others leave: these have deadlines.
        command.args(["nice", "-n10"]);
    }
    command.arg(&program.path).current_dir(&program.folder).args(["--report-time", "-Zunstable-options"]);
    command.arg(format!("--test-threads={}", part.threads));
    command.args(part.group).args(part.without.iter().flat_map(|group| ["--skip", group]));
    command.args(filter.iter().filter(|part| !part.is_empty()));
    // Only with these options the built-in runner shows the duration of each test; the compiler is the stable one.
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
        // Unreadable output is not shown; the exit code has the result.
        let _ = BufReader::new(stderr).read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    let mut outcome = ProgramResult::of(part);
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
