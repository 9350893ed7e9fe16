//! The budgets of races, in `tests/performance/budgets.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;
use sluice_testkit::race::Figures;

/// The budget of one size.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Status writes per Workload, without those of evictions and requeueing.
    status_writes: f64,
    /// Status writes of all queues, per second.
    queue_writes_per_second: f64,
    /// Events per Workload, without those.
    events: f64,
    /// Writes that were refused as conflicts, per Workload.
    conflicts: f64,
    /// Writes on Workloads themselves and on Jobs, per Workload, without those of evictions and requeueing.
    object_writes: f64,
    /// All writes but events, per Workload.
    own_writes: Option<f64>,
    /// The same with events.
    all_writes: Option<f64>,
}

/// The races' part of the file.
#[derive(Deserialize)]
struct Budgets {
    race: BTreeMap<String, Budget>,
}

impl Budget {
    /// The budget of a size.
    pub fn of(size: &str) -> anyhow::Result<Self> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/performance/budgets.toml");
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let mut budgets: Budgets =
            toml::from_str(&text).with_context(|| format!("parse {}", path.display()))?;
        budgets.race.remove(size).with_context(|| format!("a budget of the race {size}"))
    }

    /// The counts that are above it.
    pub fn exceeded(&self, figures: &Figures) -> Vec<String> {
        // An eviction is a write and three events (Preempted, Evicted, PreemptedWorkload), and the way back another admission.
        let status = figures.status_writes.saturating_sub(2 * figures.evictions);
        let events = figures.events.saturating_sub(5 * figures.evictions);
        // A Job is stopped, in two steps at most, and started again.
        let objects = figures.object_writes.saturating_sub(3 * figures.evictions);
        let per_second = figures.per_workload(figures.queue_writes)
            * f64::from(u32::try_from(figures.workloads).unwrap_or(u32::MAX))
            / (figures.wall.as_secs_f64() + 1.0);
        let own = figures.own_writes();
        let totals = [
            ("writes per Workload", figures.per_workload(own), self.own_writes),
            ("writes and events per Workload", figures.per_workload(own + figures.events), self.all_writes),
        ];
        [
            ("status writes per Workload", figures.per_workload(status), self.status_writes),
            ("status writes of queues per second", per_second, self.queue_writes_per_second),
            ("events per Workload", figures.per_workload(events), self.events),
            ("conflicts per Workload", figures.per_workload(figures.conflicts), self.conflicts),
            ("writes on Workloads and Jobs per Workload", figures.per_workload(objects), self.object_writes),
        ]
        .into_iter()
        .chain(totals.into_iter().filter_map(|(what, count, most)| Some((what, count, most?))))
        .filter(|(_, count, most)| count > most)
        .map(|(what, count, most)| format!("{count:.2} {what}, at most {most}"))
        .collect()
    }
}
