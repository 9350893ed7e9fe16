//! What a case builds, in the order in which it builds it (the bench format's "Object generation").

use super::format::{Case, Class};

/// 2026-01-01T00:00:00Z: the creation of the first workload, in seconds since the Unix epoch.
pub const CREATION_EPOCH: i64 = 1_767_225_600;
/// 2026-06-01T00:00:00Z: the virtual clock before the first cycle, in seconds since the Unix epoch.
pub const CLOCK_EPOCH: i64 = 1_780_272_000;

/// A cohort and its parent.
#[derive(Debug, PartialEq, Eq)]
pub struct PlannedCohort {
    /// `co000`, `co000-001`, …
    pub name: String,
    /// The parent's name; none for a root.
    pub parent: Option<String>,
}

/// A ClusterQueue, its cohort and its place inside it.
#[derive(Debug, PartialEq, Eq)]
pub struct PlannedQueue {
    /// `cq00000`, …
    pub name: String,
    /// The leaf cohort; none without a tree.
    pub cohort: Option<String>,
    /// The index inside the cohort, for `cqFilter`.
    pub index_in_cohort: usize,
}

/// A workload: which class, which queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedWorkload {
    /// Index of the class in the file.
    pub class: usize,
    /// Global index of the ClusterQueue.
    pub queue: usize,
    /// The number inside class and queue.
    pub number: usize,
}

/// Cohorts in depth-first creation order, and the leaves among them.
pub fn cohorts(case: &Case) -> (Vec<PlannedCohort>, Vec<String>) {
    fn grow(tree: &[usize], parent: Option<&str>, out: &mut Vec<PlannedCohort>, leaves: &mut Vec<String>) {
        let Some((fan_out, below)) = tree.split_first() else {
            leaves.extend(parent.map(str::to_owned));
            return;
        };
        for index in 0..*fan_out {
            let name =
                parent.map_or_else(|| format!("co{index:03}"), |parent| format!("{parent}-{index:03}"));
            out.push(PlannedCohort { name: name.clone(), parent: parent.map(str::to_owned) });
            grow(below, Some(&name), out, leaves);
        }
    }
    let (mut out, mut leaves) = (Vec::new(), Vec::new());
    grow(&case.cohorts.tree, None, &mut out, &mut leaves);
    (out, leaves)
}

/// ClusterQueues in global order.
pub fn queues(case: &Case, leaves: &[String]) -> Vec<PlannedQueue> {
    let cohorts: Vec<Option<&String>> =
        if leaves.is_empty() { vec![None] } else { leaves.iter().map(Some).collect() };
    let mut out = Vec::with_capacity(cohorts.len() * case.cluster_queues.per_cohort);
    for cohort in cohorts {
        for index_in_cohort in 0..case.cluster_queues.per_cohort {
            out.push(PlannedQueue {
                name: format!("cq{:05}", out.len()),
                cohort: cohort.cloned(),
                index_in_cohort,
            });
        }
    }
    out
}

/// Workloads in emission order: the index is the sequence number.
pub fn workloads(case: &Case, queues: &[PlannedQueue]) -> Vec<PlannedWorkload> {
    let most = case.workloads.iter().map(|class| class.count_per_cq).max().unwrap_or(0);
    let emits = |class: &Class, number: usize, queue: &PlannedQueue| {
        number < class.count_per_cq
            && class.cq_filter.as_ref().is_none_or(|filter| {
                filter.modulus > 0 && queue.index_in_cohort % filter.modulus == filter.eq
            })
    };
    let mut out = Vec::new();
    for number in 0..most {
        for (queue_index, queue) in queues.iter().enumerate() {
            for (class_index, class) in case.workloads.iter().enumerate() {
                if emits(class, number, queue) {
                    out.push(PlannedWorkload { class: class_index, queue: queue_index, number });
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(tree: &str, per_cohort: usize) -> Case {
        Case::parse(&format!(
            "schema: kueue-core-bench/v1\nname: t\ncohorts: {{tree: {tree}}}\nclusterQueues: {{perCohort: {per_cohort}, quota: {{cpu: {{nominal: 1}}}}}}\n\
             workloads:\n- {{class: a, countPerCQ: 2, pods: 1, request: {{cpu: '1'}}}}\n\
             - {{class: b, countPerCQ: 1, pods: 1, request: {{cpu: '1'}}, cqFilter: {{mod: 2, eq: 1}}}}\nmaxCycles: 1\n"
        ))
        .unwrap()
    }

    #[test]
    fn cohorts_are_created_depth_first_with_the_parent_before_its_children() {
        let (all, leaves) = cohorts(&case("[2, 2]", 1));
        let names: Vec<&str> = all.iter().map(|cohort| cohort.name.as_str()).collect();
        assert_eq!(names, ["co000", "co000-000", "co000-001", "co001", "co001-000", "co001-001"]);
        assert_eq!(leaves, ["co000-000", "co000-001", "co001-000", "co001-001"]);
    }

    #[test]
    fn an_empty_tree_gives_queues_without_a_cohort() {
        let (_, leaves) = cohorts(&case("[]", 3));
        let all = queues(&case("[]", 3), &leaves);
        assert_eq!(all.len(), 3);
        assert!(all.iter().all(|queue| queue.cohort.is_none()));
    }

    #[test]
    fn workloads_are_emitted_by_number_then_queue_then_class() {
        let case = case("[1]", 2);
        let (_, leaves) = cohorts(&case);
        let queues = queues(&case, &leaves);
        let order: Vec<(usize, usize, usize)> =
            workloads(&case, &queues).into_iter().map(|w| (w.number, w.queue, w.class)).collect();
        assert_eq!(order, [(0, 0, 0), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 1, 0)]);
    }
}
