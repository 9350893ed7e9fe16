//! The budgets of races, in `tests/performance/budgets.toml`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;
use sluice_testkit::race::Figures;

/// The budget of one size.
#[derive(Clone, Debug, Deserialize)]
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
    /// What the manager's memory is to stay below, in MiB.
    memory_goal: Option<f64>,
    /// What its CPU is to stay below, in ms per Workload.
    cpu_goal: Option<f64>,
    /// What the time from an end to the next start that is sent is to stay below, in ms: its median, and 99 of 100.
    delay_goals: Option<[f64; 2]>,
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

    /// What the manager took beside what it is to stay below. Memory and times are of the machine: they are no failures.
    pub fn goals(&self, figures: &Figures) -> Vec<String> {
        let workloads = f64::from(u32::try_from(figures.workloads.max(1)).unwrap_or(u32::MAX));
        let manager = figures.used.iter().find(|used| used.name == "manager");
        let mib = manager.map(|used| f64::from(u32::try_from(used.peak_mib).unwrap_or(u32::MAX)));
        let cpu = manager.map(|used| used.cpu.as_secs_f64() * 1e3 / workloads);
        let [median, most] =
            [1, 2].map(|at| figures.sent.map(|times: [Duration; 3]| times[at].as_secs_f64() * 1e3));
        let [median_goal, most_goal] = [0, 1].map(|at| self.delay_goals.map(|goals| goals[at]));
        [
            ("MiB of memory", mib, self.memory_goal),
            ("ms of CPU per Workload", cpu, self.cpu_goal),
            ("ms from an end to the next start, as a median", median, median_goal),
            ("ms from an end to the next start, in 99 of 100", most, most_goal),
        ]
        .into_iter()
        .filter_map(|(what, took, goal)| Some((what, took?, goal?)))
        .map(|(what, took, goal)| {
            let met = if took <= goal { "met" } else { "missed" };
            format!("goal {met}: the manager took {took:.2} {what}, at most {goal} are wanted")
        })
        .collect()
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

#[cfg(test)]
mod tests {
    use sluice_testkit::race::{Requests, Usage};

    use super::*;

    fn budget() -> Budget {
        Budget {
            status_writes: 1.5,
            queue_writes_per_second: 20.0,
            events: 2.0,
            conflicts: 0.5,
            object_writes: 3.0,
            own_writes: None,
            all_writes: None,
            memory_goal: None,
            cpu_goal: None,
            delay_goals: None,
        }
    }

    /// A hundred Workloads in nine seconds and a last one, at the budget, with ten evictions.
    fn figures() -> Figures {
        Figures {
            workloads: 100,
            queues: 1,
            status_writes: 150 + 20,
            queue_writes: 200,
            events: 200 + 50,
            conflicts: 50,
            evictions: 10,
            wall: Duration::from_secs(9),
            bound: Duration::ZERO,
            bare: Duration::ZERO,
            waited: Vec::new(),
            next: [Duration::ZERO; 3],
            sent: None,
            object_writes: 300 + 30,
            used: Vec::new(),
            requests: Requests::default(),
        }
    }

    /// Makes one figure larger, and the word by which its failure is known.
    type More = (fn(&mut Figures), &'static str);

    #[test]
    fn figures_at_the_budget_are_no_failure_and_one_more_of_each_is_one() {
        assert_eq!(budget().exceeded(&figures()), Vec::<String>::new());
        let more: [More; 5] = [
            (|figures| figures.status_writes += 1, "1.51 status writes per Workload, at most 1.5"),
            (|figures| figures.queue_writes += 1, "20.10 status writes of queues per second, at most 20"),
            (|figures| figures.events += 1, "2.01 events per Workload, at most 2"),
            (|figures| figures.conflicts += 1, "0.51 conflicts per Workload, at most 0.5"),
            (
                |figures| figures.object_writes += 1,
                "3.01 writes on Workloads and Jobs per Workload, at most 3",
            ),
        ];
        for (add, expected) in more {
            let mut figures = figures();
            add(&mut figures);
            assert_eq!(budget().exceeded(&figures), [expected]);
        }
    }

    #[test]
    fn what_an_eviction_takes_is_deducted() {
        let mut figures = figures();
        figures.evictions += 1;
        figures.status_writes += 2;
        figures.events += 5;
        figures.object_writes += 3;
        assert_eq!(budget().exceeded(&figures), Vec::<String>::new());
        figures.evictions -= 1;
        assert_eq!(budget().exceeded(&figures).len(), 3);
        figures.evictions = u64::MAX / 8;
        assert_eq!(budget().exceeded(&figures), Vec::<String>::new(), "more of them than writes");
    }

    #[test]
    fn all_writes_together_have_budgets_where_they_are_given_evictions_included() {
        let all = Budget { own_writes: Some(7.0), all_writes: Some(9.5), ..budget() };
        assert_eq!(all.exceeded(&figures()), Vec::<String>::new());
        let less = Budget { own_writes: Some(6.99), ..all.clone() };
        assert_eq!(less.exceeded(&figures()), ["7.00 writes per Workload, at most 6.99"]);
        let less = Budget { all_writes: Some(9.49), ..all };
        assert_eq!(less.exceeded(&figures()), ["9.50 writes and events per Workload, at most 9.49"]);
    }

    #[test]
    fn goals_are_said_and_no_failures() {
        let delay_goals = Some([20.0, 100.0]);
        let wanted = Budget { memory_goal: Some(80.0), cpu_goal: Some(0.8), delay_goals, ..budget() };
        let used = |name: &str, ms, peak_mib| Usage {
            name: name.to_owned(),
            cpu: Duration::from_millis(ms),
            peak_mib,
        };
        let used = vec![used("etcd", 9_000, 900), used("manager", 80, 81)];
        let sent = Some([10, 20, 101].map(Duration::from_millis));
        let figures = Figures { used, sent, ..figures() };
        assert_eq!(
            wanted.goals(&figures),
            [
                "goal missed: the manager took 81.00 MiB of memory, at most 80 are wanted",
                "goal met: the manager took 0.80 ms of CPU per Workload, at most 0.8 are wanted",
                "goal met: the manager took 20.00 ms from an end to the next start, as a median, at most 20 are wanted",
                "goal missed: the manager took 101.00 ms from an end to the next start, in 99 of 100, at most 100 are wanted",
            ]
        );
        assert_eq!(wanted.exceeded(&figures), Vec::<String>::new());
        assert_eq!(budget().goals(&figures), Vec::<String>::new());
    }
}
