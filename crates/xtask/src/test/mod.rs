//! `cargo xtask test`: builds the test programs once, runs them, and says at the end what failed, what CPU time each
//! took with all that it started, and which ten tests took longest.
//!
//! Programs that start control planes mostly wait, and the others compute, so both sorts run side by side: three tests per core of the first, and one
//! program at a time of the others. The programs of [`ALONE`] run last and by themselves, because they measure.
//!
//! If one or two tests of a program on control planes fail, they run a second time, alone. They remain failures; if they pass then, the report calls
//! them `UNSTABLE`: there is a race, in the test or in the tested code.

mod cpu;
mod plan;
mod report;
mod run;

use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use sluice_testkit::assets;

pub use cpu::{Args as ProgramArgs, run as run_program};
use plan::Program;
use report::Report;

/// The package whose programs start control planes.
const ON_PLANES: &str = "sluice-tests";
/// Programs that measure need the machine exclusively.
const ALONE: [&str; 1] = ["load"];
/// The programs that `--quick` leaves out besides those on control planes, because each takes minutes.
const SLOW: [(&str, &str); 3] =
    [("sluice-core", "agreement"), ("sluice-sim", "faults"), ("sluice-xtask", "budgets")];

/// Build and run the tests.
#[derive(clap::Args)]
pub struct Args {
    /// Only what needs no control plane and takes seconds.
    #[arg(long)]
    quick: bool,
    /// Only the tests whose name contains this.
    #[arg(default_value = "")]
    filter: String,
}

/// Runs the command; a failed test gives exit code 1.
pub fn run(args: &Args) -> Result<ExitCode> {
    let root = assets::workspace();
    let began = Instant::now();
    let programs = plan::build(&root, args.quick)?;
    let built = began.elapsed();
    let report = Mutex::new(Report::default());
    let began = Instant::now();
    let (alone, beside): (Vec<_>, Vec<_>) = programs.into_iter().partition(Program::is_alone);
    let (on_planes, computing): (Vec<_>, Vec<_>) = beside.into_iter().partition(Program::is_on_planes);
    let cores = plan::cores();
    let results = &report;
    std::thread::scope(|scope| {
        let lanes = [(&on_planes, 3 * cores), (&computing, cores)];
        let lanes =
            lanes.map(|(lane, places)| scope.spawn(move || run::all(lane, places, &args.filter, results)));
        lanes.into_iter().try_for_each(joined)
    })?;
    run::all(&alone, 1, &args.filter, &report)?;
    let mut report = report.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if plan::has_doc_tests(&root)? {
        report.doc_tests(doc_tests(&root)?);
    }
    let goal = plan::goal(&root, if args.quick { "check" } else { "test" })?;
    print!("{}", report.text(built, began.elapsed(), goal));
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The result of a thread.
fn joined(thread: std::thread::ScopedJoinHandle<'_, Result<()>>) -> Result<()> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Runs the examples in comments, which cargo alone can; whether they are right.
fn doc_tests(root: &std::path::Path) -> Result<bool> {
    let mut command = cargo(root);
    let status =
        command.args(["test", "--doc", "--workspace", "--locked"]).status().context("running cargo test")?;
    Ok(status.success())
}

fn cargo(root: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs cargo; its standard output. What it says of its progress goes where ours goes.
fn cargo_output(root: &std::path::Path, args: &[String]) -> Result<String> {
    let output = cargo(root)
        .args(args)
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("running cargo {}", args.join(" ")))?;
    ensure!(output.status.success(), "cargo {} failed", args.join(" "));
    String::from_utf8(output.stdout).context("reading what cargo printed")
}
