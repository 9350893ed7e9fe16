//! `cargo xtask bench`: the engine's cases as a table of figures, with counts checked against the budgets.
//!
//! Every run is a process of its own, so that peak memory is that of one case. Timings are reported and never fail;
//! counts (cycles, evaluations, allocations, instructions) are the same on every machine and do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// Measure the engine on its cases and check the counts against tests/performance/budgets.toml.
#[derive(clap::Args)]
pub struct Args {
    /// Runs per case; the table has the median and the spread.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Only the cases whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Leave out the table of four world sizes.
    #[arg(long)]
    no_scale: bool,
}

/// `tests/performance/budgets.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Budgets {
    /// By the case's name, in the order of the table.
    case: BTreeMap<String, CaseBudget>,
    /// Instructions of whole small runs, by the case's name.
    instructions: BTreeMap<String, InstructionBudget>,
}

/// What one case is measured against.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseBudget {
    /// Admissions per second of Kueue's own core on the same case, for comparison.
    kueue_admissions_per_second: Option<f64>,
    /// What Sluice wants to reach.
    goal_admissions_per_second: Option<f64>,
    /// Peak memory that Sluice wants to stay under, MiB.
    goal_peak_rss_mib: Option<f64>,
    /// The longest median snapshot that Sluice wants, µs.
    goal_snapshot_us: Option<f64>,
    /// Exact number of cycles.
    cycles: u64,
    /// At most so many flavor assignments.
    evaluations: u64,
    /// At most so many allocations inside cycles, per admission.
    allocations_per_admission: f64,
}

/// Instructions that callgrind may count for one run of a small case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InstructionBudget {
    /// Calibrated count.
    instructions: u64,
    /// How far above it a run may be, in percent.
    tolerance_percent: u64,
}

/// The part of `xtask case --json` that the table needs.
#[derive(Clone, Deserialize)]
struct CaseReport {
    matches: bool,
    counts: BTreeMap<String, u64>,
    figures: Figures,
}

#[derive(Clone, Copy, Deserialize)]
struct Figures {
    admissions_per_second: f64,
    cycle_p99_us: f64,
    snapshot_p50_us: f64,
    peak_rss_mib: f64,
    allocations_per_admission: f64,
}

/// Runs the command; a count over its budget, or a case that does not match, gives exit code 1.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.runs > 0, "--runs must be at least 1");
    let root = workspace_root();
    let path = root.join("tests/performance/budgets.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let budgets: Budgets = toml::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
    let mut failures = Vec::new();
    println!(
        "{:<22} {:>10} {:>10} {:>12} {:>21} {:>7} {:>10} {:>10} {:>9}",
        "case", "Kueue/s", "goal/s", "Sluice/s", "(min – max)", "×Kueue", "p99 cycle", "snapshot", "peak RSS"
    );
    for (name, budget) in budgets.case.iter().filter(|(name, _)| name.contains(&args.only)) {
        let file = root.join(format!("tests/data/bench/{name}.yaml"));
        let reports = (0..args.runs).map(|_| measure(&file)).collect::<anyhow::Result<Vec<_>>>()?;
        print_row(name, budget, &reports);
        check_counts(name, budget, &reports[0], &mut failures);
    }
    println!("goals marked * were missed on this machine; timings are reported, they never fail");
    check_instructions(&root, &budgets, &args.only, &mut failures)?;
    if !args.no_scale && args.only.is_empty() {
        crate::scale::table()?;
    }
    for failure in &failures {
        println!("over budget: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The root of the repository.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/xtask is two below the root")
        .to_owned()
}

fn measure(file: &Path) -> anyhow::Result<CaseReport> {
    let output = Command::new(std::env::current_exe()?)
        .args(["case", "--json"])
        .arg(file)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run case {}", file.display()))?;
    let mut reports: Vec<CaseReport> = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("the report of {}", file.display()))?;
    reports.pop().context("the case gave no report")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print_row(name: &str, budget: &CaseBudget, reports: &[CaseReport]) {
    let all = |pick: fn(&Figures) -> f64| reports.iter().map(|r| pick(&r.figures)).collect::<Vec<f64>>();
    let rates = all(|f| f.admissions_per_second);
    let rate = median(rates.clone());
    let (min, max) =
        rates.iter().fold((f64::INFINITY, 0.0_f64), |(min, max), &rate| (min.min(rate), max.max(rate)));
    let (rss, snapshot) = (median(all(|f| f.peak_rss_mib)), median(all(|f| f.snapshot_p50_us)));
    let mark = |missed: bool| if missed { "*" } else { " " };
    let slow = budget.goal_admissions_per_second.is_some_and(|goal| rate < goal);
    let large = budget.goal_peak_rss_mib.is_some_and(|goal| rss > goal);
    let late = budget.goal_snapshot_us.is_some_and(|goal| snapshot > goal);
    let or_dash = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.0}"));
    let ratio = budget.kueue_admissions_per_second.map(|kueue| rate / kueue);
    println!(
        "{name:<22} {:>10} {:>10} {rate:>11.0}{} {:>21} {:>7} {:>7.0} µs {snapshot:>6.1} µs{} {rss:>4.0} MiB{}",
        or_dash(budget.kueue_admissions_per_second),
        or_dash(budget.goal_admissions_per_second),
        mark(slow),
        format!("({min:.0} – {max:.0})"),
        ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.0}×")),
        median(all(|f| f.cycle_p99_us)),
        mark(late),
        mark(large),
    );
}

fn check_counts(name: &str, budget: &CaseBudget, report: &CaseReport, failures: &mut Vec<String>) {
    if !report.matches {
        failures.push(format!("{name}: the decisions differ from the expected ones (cargo xtask case)"));
    }
    let cycles = report.counts.get("cycles").copied().unwrap_or(0);
    if cycles != budget.cycles {
        failures.push(format!("{name}: {cycles} cycles, expected exactly {}", budget.cycles));
    }
    let evaluations = report.counts.get("evaluations").copied().unwrap_or(0);
    if evaluations > budget.evaluations {
        failures.push(format!("{name}: {evaluations} evaluations, at most {}", budget.evaluations));
    }
    let allocations = report.figures.allocations_per_admission;
    if allocations > budget.allocations_per_admission {
        failures.push(format!(
            "{name}: {allocations:.2} allocations per admission, at most {}",
            budget.allocations_per_admission
        ));
    }
}

fn check_instructions(
    root: &Path,
    budgets: &Budgets,
    only: &str,
    failures: &mut Vec<String>,
) -> anyhow::Result<()> {
    if Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err()
    {
        println!("SKIPPED: instruction counts (valgrind is not installed)");
        return Ok(());
    }
    for (name, budget) in budgets.instructions.iter().filter(|(name, _)| name.contains(only)) {
        let file = root.join(format!("tests/data/bench/{name}.yaml"));
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(std::env::current_exe()?)
            .arg("case")
            .arg(&file)
            .output()
            .context("run valgrind")?;
        let report = String::from_utf8_lossy(&output.stderr);
        let counted: u64 = report
            .lines()
            .find_map(|line| line.split("Collected :").nth(1))
            .and_then(|count| count.trim().parse().ok())
            .with_context(|| format!("no instruction count in valgrind's report on {name}: {report}"))?;
        let most = budget.instructions + budget.instructions * budget.tolerance_percent / 100;
        println!("{name:<22} {counted} instructions (calibrated {}, at most {most})", budget.instructions);
        if counted > most {
            failures.push(format!("{name}: {counted} instructions, at most {most}"));
        }
    }
    Ok(())
}
