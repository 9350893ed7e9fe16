//! Plays an example's `expected.yaml` on a control plane (the format is described in `examples/README.md`).

mod events;
mod format;
mod pools;
mod state;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use sluice_testkit::ControlPlane;
use sluice_testkit::kubectl::{kubectl, try_kubectl};
use sluice_testkit::wait::{Progress, eventually};

pub use events::{Happened, Recorder};
pub use format::{Expected, Scenario};

use format::Step;

/// How long one step may take: three generations of 5-second pods, with room for a slow machine.
const STEP_DEADLINE: Duration = Duration::from_mins(3);

/// Reads the scenarios of an example's folder.
///
/// # Errors
/// A missing or malformed `expected.yaml`.
pub fn scenarios(folder: &Path) -> Result<Vec<Scenario>> {
    let path = folder.join("expected.yaml");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let expected: Expected =
        serde_saphyr::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
    Ok(expected.scenarios)
}

/// Plays one scenario and checks its states, orders and counts; afterwards removes all that it applied.
///
/// # Errors
/// The first thing that was not as the scenario says, with what was seen instead.
pub async fn play(plane: &ControlPlane, client: &Client, folder: &Path, scenario: &Scenario) -> Result<()> {
    let mut applied: Vec<PathBuf> = Vec::new();
    let outcome = perform(plane, client, folder, scenario, &mut applied).await;
    let cleaned = clean(plane, client, &applied).await;
    outcome.and(cleaned)
}

/// Plays one scenario and checks its states, orders and counts. What it applied stays, and is added to `applied`.
///
/// # Errors
/// The first thing that was not as the scenario says, with what was seen instead.
pub async fn perform(
    plane: &ControlPlane,
    client: &Client,
    folder: &Path,
    scenario: &Scenario,
    applied: &mut Vec<PathBuf>,
) -> Result<()> {
    let recorder = Recorder::start(client.clone()).await?;
    for (number, step) in scenario.steps.iter().enumerate() {
        run_step(plane, client, folder, step, applied)
            .await
            .with_context(|| format!("scenario {}, step {}", scenario.name, number + 1))
            .with_context(|| format!("what happened: {:?}", recorder.so_far()))?;
    }
    check_events(&recorder, scenario).await
}

async fn run_step(
    plane: &ControlPlane,
    client: &Client,
    folder: &Path,
    step: &Step,
    applied: &mut Vec<PathBuf>,
) -> Result<()> {
    next_second().await;
    for file in &step.apply {
        let path = folder.join(file);
        applied.push(path.clone());
        kubectl(plane, &["apply", "--validate=strict", "-f", &path.to_string_lossy()]).await?;
    }
    if let Some(patch) = &step.patch {
        let merge = serde_json::to_string(&patch.merge)?;
        let mut args = vec!["patch", &patch.kind, &patch.name, "--type=merge", "-p", &merge];
        if let Some(namespace) = &patch.namespace {
            args.extend(["-n", namespace]);
        }
        kubectl(plane, &args).await?;
    }
    if let Some(job) = &step.departs {
        pools::depart(plane, job).await?;
    }
    if step.returns {
        pools::come_back(plane).await?;
    }
    eventually("the step's states", STEP_DEADLINE, || async {
        let mut missing = Vec::new();
        let workloads = events::workloads(client).await?;
        for wanted in &step.until {
            if let Some(seen) = state::differs(client, wanted, &workloads).await? {
                missing.push(format!("{} should be {:?}: {seen}", wanted.job, wanted.is));
            }
        }
        Ok(if missing.is_empty() { Progress::Done(()) } else { Progress::NotYet(missing.join("; ")) })
    })
    .await
}

/// Creation times order queues and count whole seconds: each step begins in a new one.
async fn next_second() {
    let now = jiff::Timestamp::now();
    let nanos = u64::try_from(now.subsec_nanosecond()).unwrap_or(0);
    tokio::time::sleep(Duration::from_nanos(1_010_000_000_u64.saturating_sub(nanos))).await;
}

async fn check_events(recorder: &Recorder, scenario: &Scenario) -> Result<()> {
    // The watch may be a moment behind the states that were just read.
    eventually("the scenario's events", STEP_DEADLINE, || async {
        let happened = recorder.so_far();
        Ok(match wrong(&happened, scenario) {
            None => Progress::Done(()),
            Some(why) => Progress::NotYet(format!("{why}; what happened: {happened:?}")),
        })
    })
    .await
    .with_context(|| format!("scenario {}", scenario.name))
}

/// What is wrong with the events, if anything.
fn wrong(happened: &[Happened], scenario: &Scenario) -> Option<String> {
    for order in scenario.order.iter().chain(&scenario.orders) {
        let mut from = 0;
        for entry in order {
            match happened[from..].iter().position(|event| event.to_string() == *entry) {
                Some(at) => from += at + 1,
                None => return Some(format!("{entry:?} is missing in its place of {order:?}")),
            }
        }
    }
    for (what, count) in &scenario.counts {
        let seen = happened.iter().filter(|event| event.what == what.as_str()).count();
        if seen != *count {
            return Some(format!("{what} happened {seen} times, expected {count}"));
        }
    }
    None
}

/// Removes what the scenario applied, the last first: jobs go before the queues that they use.
async fn clean(plane: &ControlPlane, client: &Client, applied: &[PathBuf]) -> Result<()> {
    let mut seen = Vec::new();
    for path in applied.iter().rev() {
        if seen.contains(&path) {
            continue;
        }
        seen.push(path);
        let args = ["delete", "--ignore-not-found", "--timeout=180s", "-f", &path.to_string_lossy()];
        let output = try_kubectl(&plane.kubeconfig_path(), &args, None).await?;
        ensure!(output.success, "cleaning up {}: {}{}", path.display(), output.stdout, output.stderr);
    }
    eventually("no Workload is left", STEP_DEADLINE, || async {
        let left = events::workloads(client).await?;
        Ok(if left.is_empty() {
            Progress::Done(())
        } else {
            Progress::NotYet(format!("{} Workloads", left.len()))
        })
    })
    .await
}

/// Plays every scenario of an example.
///
/// # Errors
/// Every scenario that failed, with its reason.
pub async fn play_all(plane: &ControlPlane, folder: &Path) -> Result<()> {
    let client = sluice_testkit::patient_client_of(&plane.kubeconfig_path()).await?;
    let mut failures = Vec::new();
    for scenario in scenarios(folder)? {
        if let Err(error) = play(plane, &client, folder, &scenario).await {
            failures.push(format!("{}: {error:#}", scenario.name));
        }
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(lines: &[&str]) -> Vec<Happened> {
        lines
            .iter()
            .map(|line| {
                let (what, job) = line.split_once(' ').unwrap();
                Happened { what: what.to_owned(), job: job.to_owned() }
            })
            .collect()
    }

    fn scenario(yaml: &str) -> Scenario {
        serde_saphyr::from_str(&format!("name: t\nabout: t\nsteps: []\n{yaml}")).unwrap()
    }

    #[test]
    fn other_events_may_lie_between_the_entries_of_an_order() {
        let happened = events(&["admitted a/b", "admitted a/c", "finished a/b"]);
        assert_eq!(wrong(&happened, &scenario("order: [admitted a/b, finished a/b]")), None);
    }

    #[test]
    fn an_order_that_is_turned_round_is_wrong() {
        let happened = events(&["finished a/b", "admitted a/b"]);
        assert!(wrong(&happened, &scenario("order: [admitted a/b, finished a/b]")).is_some());
    }

    #[test]
    fn a_count_that_differs_is_wrong() {
        let happened = events(&["preempted a/b"]);
        assert!(wrong(&happened, &scenario("counts: {preempted: 0}")).is_some());
        assert_eq!(wrong(&happened, &scenario("counts: {preempted: 1}")), None);
    }

    #[test]
    fn every_example_has_scenarios_that_can_be_read() {
        let examples = sluice_testkit::assets::workspace().join("examples");
        let mut read = 0;
        for entry in std::fs::read_dir(examples).unwrap() {
            let path = entry.unwrap().path();
            // `simulate` holds the same stories for the simulator, `integrations` declarations of kinds.
            if path.is_dir() && !path.ends_with("simulate") && !path.ends_with("integrations") {
                assert!(!scenarios(&path).unwrap().is_empty(), "{}", path.display());
                read += 1;
            }
        }
        assert_eq!(read, 7);
    }
}
