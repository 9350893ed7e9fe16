//! `cargo xtask case`: runs engine cases and compares every expected count and digest.

mod digest;
pub mod format;
pub mod plan;
pub mod run;
pub mod stopwatch;
mod topology;
pub mod world;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use format::Case;
use run::RunResult;

/// Run engine cases and compare every expected count and digest.
#[derive(clap::Args)]
pub struct Args {
    /// Case files (`kueue-core-bench/v1`), from any folder.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,
}

/// One difference between the expectation and the outcome.
#[derive(Debug, Deserialize, Serialize)]
pub struct Mismatch {
    /// The name of the count or digest.
    what: String,
    /// The expected value.
    expected: String,
    /// The actual value.
    got: String,
    /// The first differing line, when a golden file is beside the case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first_difference: Option<String>,
}

/// The result of one case.
#[derive(Debug, Deserialize, Serialize)]
pub struct CaseResult {
    /// The case's name.
    pub name: String,
    /// Whether everything that the case expects came out.
    pub matches: bool,
    /// The differences.
    pub mismatches: Vec<Mismatch>,
    /// The counts.
    pub counts: BTreeMap<String, u64>,
    /// How the run ended.
    pub end: String,
    /// The digests.
    pub digests: BTreeMap<String, String>,
    /// The figures.
    pub figures: Figures,
}

/// The measurements of a run. Times in microseconds; those of cycles and events are CPU time.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Figures {
    /// Admissions per second of cycle time.
    pub admissions_per_second: f64,
    /// Time in cycles per admission.
    pub cycle_us_per_admission: f64,
    /// Median of a cycle.
    pub cycle_p50_us: f64,
    /// 99th percentile of a cycle.
    pub cycle_p99_us: f64,
    /// The longest cycle.
    pub cycle_max_us: f64,
    /// Heap allocations inside cycles, per admission.
    pub allocations_per_admission: f64,
    /// Time in events between cycles, per event.
    pub event_us: f64,
    /// Median of one snapshot; 0 without snapshots.
    pub snapshot_p50_us: f64,
    /// Peak resident memory of the process in MiB.
    pub peak_rss_mib: f64,
}

/// Runs the command; a mismatch or a case that cannot be run gives exit code 1.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut results = Vec::new();
    for file in &args.files {
        // Each case has a process of its own, so that peak memory and the state of the allocator are those of one case.
        let result = if args.files.len() == 1 { run_file(file) } else { run_apart(file) };
        let result = result.with_context(|| format!("case {}", file.display()))?;
        if !args.json {
            print_result(&result);
        }
        results.push(result);
    }
    let failed = results.iter().filter(|result| !result.matches).count();
    if args.json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    } else {
        println!("{} passed, {failed} failed", results.len() - failed);
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one case file in a process of its own.
pub fn run_apart(file: &Path) -> anyhow::Result<CaseResult> {
    let output = Command::new(std::env::current_exe()?)
        .args(["case", "--json"])
        .arg(file)
        .stderr(Stdio::inherit())
        .output()
        .context("start a process for the case")?;
    let mut results: Vec<CaseResult> =
        serde_json::from_slice(&output.stdout).context("the process gave no report")?;
    results.pop().context("the process reported no case")
}

/// Runs one case file and compares.
pub fn run_file(file: &Path) -> anyhow::Result<CaseResult> {
    let text = std::fs::read_to_string(file)?;
    run_case(Case::parse(&text)?, file)
}

/// Runs a case, of this file, and compares.
fn run_case(case: Case, file: &Path) -> anyhow::Result<CaseResult> {
    let (outcome, keys) = run::run(&case)?;
    let digests = digest::digests(&outcome, &keys);
    let mut mismatches = Vec::new();
    if let Some(expected) = &case.expected {
        let counts = [
            ("cycles", expected.cycles),
            ("idleCycles", expected.idle_cycles),
            ("admissions", expected.admissions),
            ("distinctAdmitted", expected.distinct_admitted),
            ("evictions", expected.evictions),
            ("finished", expected.finished),
            ("holdingAtEnd", expected.holding_at_end),
            ("pendingActive", expected.pending_active),
            ("pendingInadmissible", expected.pending_inadmissible),
        ];
        for (name, value) in counts {
            compare(&mut mismatches, name, &value.to_string(), &outcome.counts[name].to_string());
        }
        compare(&mut mismatches, "end", &expected.end, outcome.end);
        for (name, value) in &expected.digest {
            if expected.unstable.contains(name) {
                continue;
            }
            let got = digests.get(name.as_str()).map_or("not computed", String::as_str);
            compare(&mut mismatches, name, value, got);
            if value != got
                && let Some(last) = mismatches.last_mut()
            {
                last.first_difference = golden_difference(file, &case.name, name, &outcome, &keys);
            }
        }
    }
    Ok(CaseResult {
        name: case.name,
        matches: mismatches.is_empty(),
        mismatches,
        figures: figures(&outcome),
        counts: outcome.counts.iter().map(|(&name, &count)| (name.to_owned(), count)).collect(),
        end: outcome.end.to_owned(),
        digests: digests.into_iter().map(|(name, digest)| (name.to_owned(), digest)).collect(),
    })
}

fn compare(mismatches: &mut Vec<Mismatch>, what: &str, expected: &str, got: &str) {
    if expected != got {
        mismatches.push(Mismatch {
            what: what.to_owned(),
            expected: expected.to_owned(),
            got: got.to_owned(),
            first_difference: None,
        });
    }
}

/// The first event in which the outcome differs from the golden sequence, earliest cycle first.
fn golden_difference(
    file: &Path,
    name: &str,
    digest: &str,
    outcome: &RunResult,
    keys: &[String],
) -> Option<String> {
    let golden = file.parent()?.join("golden").join(format!("{name}.seq.gz"));
    let unpacked = Command::new("gzip").arg("-dc").arg(golden).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(unpacked.stdout).ok()?;
    let (admissions, evictions) = text.split_once("--evictions--").unwrap_or((&text, ""));
    let plain = |events: &[(u64, usize)]| -> Vec<String> {
        events.iter().map(|(cycle, seq)| format!("{cycle} {}", keys[*seq])).collect()
    };
    // Where there is a topology, an admission's line continues with its nodes.
    let words = if digest == "topology" { 3 } else { 2 };
    let (golden, events) = match digest {
        "sequence" => (admissions, plain(&outcome.admissions)),
        "topology" => (admissions, digest::topology_lines(outcome, keys).collect()),
        "evictions" => (evictions, plain(&outcome.evictions)),
        _ => return None,
    };
    let by_cycle = |line: &str| -> (u64, String) {
        let cycle = line.split(' ').next().and_then(|cycle| cycle.parse().ok()).unwrap_or(0);
        (cycle, line.split(' ').take(words).collect::<Vec<_>>().join(" "))
    };
    let mut golden: Vec<(u64, String)> =
        golden.lines().filter(|line| !line.trim().is_empty()).map(by_cycle).collect();
    let mut got: Vec<(u64, String)> = events.iter().map(|line| by_cycle(line)).collect();
    golden.sort();
    got.sort();
    let lines = |events: Vec<(u64, String)>| events.into_iter().map(|(_, line)| line).collect::<Vec<_>>();
    let (expected, got) = digest::first_difference(&lines(golden), &lines(got))?;
    let or_end = |line: Option<String>| line.unwrap_or_else(|| "nothing more".to_owned());
    Some(format!("expected {:?}, got {:?}", or_end(expected), or_end(got)))
}

fn figures(outcome: &RunResult) -> Figures {
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6;
    let percentile = |times: &[Duration], percent: usize| -> f64 {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        let index = (sorted.len().saturating_sub(1) * percent).div_ceil(100);
        sorted.get(index).copied().map_or(0.0, micros)
    };
    let total: Duration = outcome.cycle_times.iter().sum();
    let admissions = u32::try_from(outcome.admissions.len()).map_or(f64::INFINITY, f64::from);
    let events = u32::try_from(outcome.events).map_or(f64::INFINITY, f64::from);
    let allocations = u32::try_from(outcome.allocations).map_or(f64::INFINITY, f64::from);
    Figures {
        allocations_per_admission: if admissions > 0.0 { allocations / admissions } else { 0.0 },
        admissions_per_second: if total.is_zero() { 0.0 } else { admissions / total.as_secs_f64() },
        cycle_us_per_admission: if admissions > 0.0 { micros(total) / admissions } else { 0.0 },
        cycle_p50_us: percentile(&outcome.cycle_times, 50),
        cycle_p99_us: percentile(&outcome.cycle_times, 99),
        cycle_max_us: percentile(&outcome.cycle_times, 100),
        event_us: if events > 0.0 { micros(outcome.event_time) / events } else { 0.0 },
        snapshot_p50_us: percentile(&outcome.snapshot_times, 50),
        peak_rss_mib: peak_rss_mib().unwrap_or(0.0),
    }
}

/// `VmHWM` of this process.
pub fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kib: u32 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(f64::from(kib) / 1024.0)
}

fn print_result(result: &CaseResult) {
    let figures = &result.figures;
    println!(
        "{} {:<24} {:>7} admissions {:>6} evictions {:>6} cycles | {:>9.0} adm/s, {:>7.2} µs/adm, cycle p50 {:>7.0} µs p99 {:>7.0} µs, event {:>5.2} µs, snapshot {:>6.1} µs, peak {:>5.0} MiB",
        if result.matches { "ok  " } else { "FAIL" },
        result.name,
        result.counts["admissions"],
        result.counts["evictions"],
        result.counts["cycles"],
        figures.admissions_per_second,
        figures.cycle_us_per_admission,
        figures.cycle_p50_us,
        figures.cycle_p99_us,
        figures.event_us,
        figures.snapshot_p50_us,
        figures.peak_rss_mib,
    );
    for mismatch in &result.mismatches {
        println!("     {}: expected {}, got {}", mismatch.what, mismatch.expected, mismatch.got);
        if let Some(difference) = &mismatch.first_difference {
            println!("     first difference: {difference}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Detects a changed decision, or more work for the same ones, without a release build.
    fn check(name: &str) {
        let (budgets, folder) = crate::bench::budgets().unwrap();
        let result = run_file(&folder.join(format!("{name}.yaml"))).unwrap();
        assert!(result.matches, "{:#?}", result.mismatches);
        let budget = &budgets.case[name];
        assert_eq!(result.counts["cycles"], budget.cycles, "cycles");
        let [evaluations, searches] = ["evaluations", "preemptionSearches"].map(|count| result.counts[count]);
        assert!(
            evaluations <= budget.evaluations,
            "{evaluations} evaluations, at most {}",
            budget.evaluations
        );
        let most = budget.preemption_searches;
        assert!(searches <= most, "{searches} searches for victims, at most {most}");
        let (compared, most) =
            (result.counts["comparedDomains"], budget.compared_domains.unwrap_or(u64::MAX));
        assert!(compared <= most, "{compared} domains are compared, at most {most}");
    }

    macro_rules! cases {
        ($($test:ident: $case:literal,)*) => {
            $(#[test]
            fn $test() {
                check($case);
            })*
        };
    }

    cases! {
        borrow_threshold: "borrow-threshold",
        churn_borrow: "churn-borrow",
        fair_churn_baseline: "fair-churn-baseline",
        fair_flavors: "fair-flavors",
        fair_preempt: "fair-preempt",
        fair_tree_limits: "fair-tree-limits",
        fair_weights_borrow: "fair-weights-borrow",
        fit_one_queue: "fit-1cq-10k",
        partial_admission: "partial-admission",
        preempt_cascade: "preempt-cascade",
        preempt_reclaim: "preempt-reclaim",
        preempt_within_queue: "preempt-within-cq",
        resource_groups: "resource-groups",
        snapshot_30_queues: "snapshot-30cq-15k",
        strict_fifo: "strict-fifo",
        tree_limits: "tree-limits",
        topology_5000_gpus: "tas-5000-gpu-fit",
        topology_640_gpus: "tas-640-gpu-fit",
        topology_jobs_of_many_nodes: "tas-100000-gpu-wide",
        two_resources: "two-resources",
    }

    /// Sluice's gate against preemption loops: none of Kueue's cases has such a loop, so it changes none of them.
    #[test]
    fn the_loop_guard_leaves_the_cases_as_they_are() {
        let (_, folder) = crate::bench::budgets().unwrap();
        for name in ["preempt-cascade", "preempt-reclaim", "preempt-within-cq", "fair-preempt", "tree-limits"]
        {
            let file = folder.join(format!("{name}.yaml"));
            let mut case = Case::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
            assert!(case.expected.as_ref().unwrap().evictions > 0, "{name} preempts");
            case.feature_gates.insert("PreemptionLoopGuard".to_owned(), true);
            let result = run_case(case, &file).unwrap();
            assert!(result.matches, "{name}: {:#?}", result.mismatches);
        }
    }

    #[test]
    fn every_case_has_a_budget_and_every_budget_a_case() {
        let (budgets, folder) = crate::bench::budgets().unwrap();
        let mut cases: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        cases.sort();
        assert_eq!(cases, budgets.case.into_keys().collect::<Vec<_>>());
    }
}
