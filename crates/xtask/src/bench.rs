//! `cargo xtask bench`: a table of the engine's cases, with counts checked against the budgets.
//!
//! Every run is a process of its own, so that peak memory is that of one case. Timings are reported and never fail; counts (cycles, evaluations,
//! allocations, instructions) are the same on every machine, and fail if they exceed their budget.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::case::{CaseResult, Figures};
use crate::engine_bench::InstructionBudget;

/// Measure the engine on its cases and check the counts against tests/performance/budgets.toml.
#[derive(clap::Args)]
pub struct Args {
    /// Runs per case; the table has the median and the spread.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Only the cases whose name contains this.
    #[arg(long, default_value = "")]
    only: String,
    /// Check the counts alone, of all but the worlds that take an unoptimised engine minutes: one run of each, without instructions. They are
    /// the same in every build.
    #[arg(long)]
    counts: bool,
    /// Leave out the table of four world sizes.
    #[arg(long)]
    no_scale: bool,
}

/// What callgrind counts: each call of `Scheduler::cycle`, from its beginning to its end.
const TOGGLE: [&str; 1] = ["--toggle-collect=sluice_core::*Scheduler*::cycle"];
/// The same for the whole engine: inputs, cycles, and pages.
const ENGINE_TOGGLE: [&str; 3] = [
    "--toggle-collect=sluice_engine::*Engine*::apply",
    "--toggle-collect=sluice_engine::*Engine*::cycle",
    "--toggle-collect=sluice_engine::*Engine*::scrape",
];

/// `tests/performance/budgets.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budgets {
    /// By the case's name, in the order of the table.
    pub case: BTreeMap<String, CaseBudget>,
    /// Instructions inside the cycles of small cases, by the case's name.
    instructions: BTreeMap<String, InstructionBudget>,
    /// The whole engine on large worlds, by name.
    #[serde(default)]
    engine: BTreeMap<String, crate::engine_bench::Budget>,
    /// The search for room when node pools fail, by name.
    #[serde(default)]
    hotswap: BTreeMap<String, crate::hotswap_bench::Budget>,
    /// The search for nodes that the cohort has lent out, by the name of the world.
    lent: BTreeMap<String, crate::lent_bench::Budget>,
    /// Placements that were refused, while their nodes are as they were.
    pub untouched: crate::hotswap_bench::UntouchedBudget,
    /// Single events of nodes and pods, by the name of the world.
    pub events: BTreeMap<String, crate::events_bench::Budget>,
    /// Jobs that are made of many pods, by name.
    #[serde(default)]
    pods: BTreeMap<String, crate::pods_bench::Budget>,
    /// The budgets of `cargo xtask race`, which reads them itself.
    #[serde(default, rename = "race")]
    _race: Option<serde::de::IgnoredAny>,
}

/// The budget of one case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaseBudget {
    /// The results of Kueue's own core for the same case, for comparison.
    kueue: Option<Kueue>,
    /// Sluice's goals.
    #[serde(default)]
    goal: Goal,
    /// Exact number of cycles.
    pub cycles: u64,
    /// The most flavor assignments.
    pub evaluations: u64,
    /// The most searches for victims.
    pub preemption_searches: u64,
    /// The most domains that placements compare, where that counts.
    pub compared_domains: Option<u64>,
    /// The most allocations in cycles, per admission.
    allocations_per_admission: f64,
}

/// Figures of Kueue's own core: CPU time of its process in cycles, garbage collection included.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Kueue {
    cpu_us_per_admission: Option<f64>,
    admissions_per_second: Option<f64>,
    cycle_p99_ms: Option<f64>,
    snapshot_us: Option<f64>,
    peak_rss_mib: f64,
}

/// Goals: reported, never a failure.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Goal {
    admissions_per_second: Option<f64>,
    /// 99th percentile of the cycles.
    cycle_p99_us: Option<f64>,
    /// Median.
    snapshot_us: Option<f64>,
    peak_rss_mib: Option<f64>,
}

/// `tests/performance/budgets.toml` and the folder of the cases.
pub fn budgets() -> anyhow::Result<(Budgets, PathBuf)> {
    let root = workspace_root();
    let path = root.join("tests/performance/budgets.toml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let budgets = toml::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
    Ok((budgets, root.join("tests/data/bench")))
}

/// Runs the command `events`: the worlds of the budgets; one that is over its budget gives exit code 1.
pub fn run_events() -> anyhow::Result<ExitCode> {
    let (budgets, _) = budgets()?;
    let mut failures = Vec::new();
    crate::hotswap_bench::untouched_table(&budgets.untouched, &mut failures);
    crate::events_bench::table(&budgets.events, &mut failures);
    for failure in &failures {
        println!("over budget: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the command; a count over its budget, or a case that does not match, gives exit code 1.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.runs > 0, "--runs must be at least 1");
    let (mut budgets, cases) = budgets()?;
    if args.counts {
        budgets.hotswap.retain(|_, budget| budget.is_small());
        budgets.lent.retain(|_, budget| budget.is_small());
        budgets.pods.retain(|_, budget| budget.is_small());
    }
    let mut failures = Vec::new();
    let runs = if args.counts { 1 } else { args.runs };
    println!("Median of {runs} runs, each in a process of its own; one thread, CPU time in cycles.");
    println!();
    println!(
        "{:<22} | {:>9} {:>9} {:>9} {:>9} | {:>9} | {:>9} {:>9} {:>17} {:>10} {:>10} {:>10} | {:>6}",
        "case",
        "Kueue/adm",
        "adm/s",
        "cycle p99",
        "RSS",
        "goal",
        "Sluice/adm",
        "adm/s",
        "(min - max)",
        "cycle p99",
        "snapshot",
        "RSS",
        "factor"
    );
    let mut counts = Vec::new();
    for (name, budget) in budgets.case.iter().filter(|(name, _)| name.contains(&args.only)) {
        let file = cases.join(format!("{name}.yaml"));
        let runs = (0..runs).map(|_| crate::case::run_apart(&file)).collect::<anyhow::Result<Vec<_>>>()?;
        print_row(name, budget, &runs);
        counts.push(check_counts(name, budget, &runs[0], &mut failures));
    }
    println!("* a goal missed on this machine: timings are reported, they never fail");
    println!();
    println!(
        "{:<22} | {:>8} | {:>24} | {:>24} | {:>24}",
        "count (budget)", "cycles", "evaluations", "searches for victims", "allocations/admission"
    );
    for line in counts {
        println!("{line}");
    }
    println!();
    if !args.counts {
        check_instructions(&cases, &budgets, &args.only, &mut failures)?;
    }
    if args.only.is_empty() {
        println!();
        crate::engine_bench::table(&budgets.engine, &mut failures)?;
        println!();
        crate::hotswap_bench::untouched_table(&budgets.untouched, &mut failures);
        if !args.counts {
            println!();
            crate::events_bench::table(&budgets.events, &mut failures);
        }
        println!();
        crate::hotswap_bench::table(&budgets.hotswap, &mut failures)?;
        println!();
        crate::lent_bench::table(&budgets.lent, &mut failures)?;
        println!();
        crate::pods_bench::table(&budgets.pods, &mut failures)?;
    }
    if !args.no_scale && !args.counts && args.only.is_empty() {
        println!();
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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn print_row(name: &str, budget: &CaseBudget, runs: &[CaseResult]) {
    let all = |pick: fn(&Figures) -> f64| runs.iter().map(|run| pick(&run.figures)).collect::<Vec<f64>>();
    let rates = all(|figures| figures.admissions_per_second);
    let (rate, per_admission) =
        (median(rates.clone()), median(all(|figures| figures.cycle_us_per_admission)));
    let min = rates.iter().copied().fold(f64::INFINITY, f64::min);
    let max = rates.iter().copied().fold(0.0, f64::max);
    let (rss, p99) =
        (median(all(|figures| figures.peak_rss_mib)), median(all(|figures| figures.cycle_p99_us)));
    let snapshot = median(all(|figures| figures.snapshot_p50_us));
    let mark = |missed: bool| if missed { '*' } else { ' ' };
    let above = |value: f64, goal: Option<f64>| mark(goal.is_some_and(|goal| value > goal));
    let slow = mark(budget.goal.admissions_per_second.is_some_and(|goal| rate < goal));
    let text = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}{unit}"))
    };
    let theirs =
        |pick: fn(&Kueue) -> Option<f64>, unit: &str| text(budget.kueue.as_ref().and_then(pick), unit);
    if runs[0].end == "snapshotOnly" {
        println!(
            "{name:<22} | no cycles; {} workloads hold quota; a snapshot: Kueue {}, {}; Sluice {snapshot:.1} µs{}, {rss:.0} MiB{}",
            runs[0].counts["holdingAtEnd"],
            theirs(|kueue| kueue.snapshot_us, " µs"),
            theirs(|kueue| Some(kueue.peak_rss_mib), " MiB"),
            above(snapshot, budget.goal.snapshot_us),
            above(rss, budget.goal.peak_rss_mib),
        );
        return;
    }
    let factor = budget.kueue.as_ref().and_then(|kueue| Some(kueue.cpu_us_per_admission? / per_admission));
    println!(
        "{name:<22} | {:>9} {:>9} {:>9} {:>9} | {:>9} | {:>7.2} µs {rate:>8.0}{slow} {:>17} {p99:>7.0} µs{} {snapshot:>6.1} µs{} {rss:>5.0} MiB{} | {:>6}",
        theirs(|kueue| kueue.cpu_us_per_admission, " µs"),
        theirs(|kueue| kueue.admissions_per_second, ""),
        theirs(|kueue| kueue.cycle_p99_ms, " ms"),
        theirs(|kueue| Some(kueue.peak_rss_mib), " MiB"),
        text(budget.goal.admissions_per_second, ""),
        per_admission,
        format!("({min:.0} - {max:.0})"),
        above(p99, budget.goal.cycle_p99_us),
        above(snapshot, budget.goal.snapshot_us),
        above(rss, budget.goal.peak_rss_mib),
        text(factor, "x"),
    );
}

/// Compares the counts with their budgets; the line of the table of counts.
fn check_counts(name: &str, budget: &CaseBudget, result: &CaseResult, failures: &mut Vec<String>) -> String {
    if !result.matches {
        failures.push(format!("{name}: the decisions differ from the expected ones (cargo xtask case)"));
    }
    let count = |count: &str| result.counts.get(count).copied().unwrap_or(0);
    let cycles = count("cycles");
    if cycles != budget.cycles {
        failures.push(format!("{name}: {cycles} cycles, expected exactly {}", budget.cycles));
    }
    let limits = [("evaluations", budget.evaluations), ("preemptionSearches", budget.preemption_searches)];
    for (what, most) in
        limits.into_iter().chain(budget.compared_domains.map(|most| ("comparedDomains", most)))
    {
        if count(what) > most {
            failures.push(format!("{name}: {} {what}, at most {most}", count(what)));
        }
    }
    let (allocations, most) = (result.figures.allocations_per_admission, budget.allocations_per_admission);
    if allocations > most {
        failures.push(format!("{name}: {allocations:.2} allocations per admission, at most {most}"));
    }
    let of = |(what, most): (&str, u64)| format!("{} ({most})", count(what));
    format!(
        "{name:<22} | {cycles:>8} | {:>24} | {:>24} | {:>24}",
        of(limits[0]),
        of(limits[1]),
        format!("{allocations:.2} ({most})")
    )
}

/// The instructions that callgrind counts while this program does something.
fn collected(toggles: &[&str], arguments: &[&OsStr]) -> anyhow::Result<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(toggles)
        .arg(std::env::current_exe()?)
        .args(arguments)
        .output()
        .context("run valgrind")?;
    let report = String::from_utf8_lossy(&output.stderr);
    let collected = report.lines().find_map(|line| line.split("Collected :").nth(1));
    collected
        .and_then(|count| count.trim().parse().ok())
        .filter(|&count| count > 0)
        .with_context(|| format!("no instruction count in valgrind's report on {arguments:?}: {report}"))
}

/// Instructions inside cycles, by callgrind: the reading of files, the building of objects and the table do not count.
fn check_instructions(
    cases: &Path,
    budgets: &Budgets,
    only: &str,
    failures: &mut Vec<String>,
) -> anyhow::Result<()> {
    let valgrind = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if valgrind(Command::new("valgrind").arg("--version")).is_err() {
        failures.push(
            "instructions are not counted: valgrind is not installed (`--counts` leaves them out)".to_owned(),
        );
        return Ok(());
    }
    let mut counts = Vec::new();
    for (name, budget) in budgets.instructions.iter().filter(|(name, _)| name.contains(only)) {
        let case = cases.join(format!("{name}.yaml"));
        counts.push((name.clone(), budget, collected(&TOGGLE, &[OsStr::new("case"), case.as_os_str()])?));
    }
    for (name, budget) in budgets.engine.iter().filter(|_| only.is_empty()) {
        let Some((queues, budget)) = budget.instructions() else { continue };
        let queues = queues.to_string();
        let counted = collected(&ENGINE_TOGGLE, &[OsStr::new("engine"), OsStr::new(&queues)])?;
        counts.push((format!("engine, {name}"), budget, counted));
    }
    if only.is_empty() {
        crate::pods_bench::check_growth(&budgets.pods, failures, |arguments| {
            let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
            collected(&ENGINE_TOGGLE, &arguments)
        })?;
    }
    for (name, budget, counted) in counts {
        let most = budget.instructions + budget.instructions * budget.tolerance_percent / 100;
        println!(
            "{name:<22} {counted:>12} instructions (calibrated {}, at most {most})",
            budget.instructions
        );
        if counted > most {
            failures.push(format!("{name}: {counted} instructions, at most {most}"));
        }
    }
    Ok(())
}
