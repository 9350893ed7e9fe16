//! Which ClusterQueues and Cohorts a viewer may know by name (docs/tasks/dashboard.md, "Who sees what").

use std::collections::BTreeSet;

use super::snapshot::Snapshot;
use super::viewer::Viewer;

/// ClusterQueues and Cohorts that may be named to a viewer.
#[derive(Debug, Default)]
pub struct SeenQueues<'a> {
    /// All of them.
    all: bool,
    queues: BTreeSet<&'a str>,
    cohorts: BTreeSet<&'a str>,
}

impl<'a> SeenQueues<'a> {
    /// All, for a viewer who may list ClusterQueues; else those that the LocalQueues of the viewer's namespaces use, and the Cohorts above these.
    pub fn of(snapshot: Option<&'a Snapshot>, viewer: &Viewer) -> Self {
        let mut seen = Self { all: viewer.queues, ..Self::default() };
        let Some(snapshot) = snapshot.filter(|_| !viewer.queues) else { return seen };
        let own = snapshot.local_queues.iter().filter(|((namespace, _), _)| viewer.sees(namespace));
        seen.queues = own.map(|(_, target)| &**target).collect();
        for queue in &seen.queues {
            let mut above = snapshot.cluster_queues.get(*queue).and_then(|row| row.cohort.as_deref());
            while let Some(cohort) = above
                && seen.cohorts.insert(cohort)
            {
                above = snapshot.cohorts.get(cohort).and_then(|row| row.parent.as_deref());
            }
        }
        seen
    }

    /// Whether this ClusterQueue may be named, if it exists.
    pub fn queue(&self, name: &str) -> bool {
        self.all || self.queues.contains(name)
    }

    /// Whether this Cohort may be named.
    pub fn cohort(&self, name: &str) -> bool {
        self.all || self.cohorts.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_engine::input::{Input, Object};

    use super::*;
    use crate::dashboard::store::tests::{cluster_queue, local_queue, world};

    #[test]
    fn the_local_queues_of_a_namespace_lead_to_its_queues_and_to_the_cohorts_above() {
        let store = world();
        let cohort = |name: &str, parent: &str| {
            let cohort = json!({"metadata": {"name": name}, "spec": {"parentName": parent}});
            store.note(&Input::Applied(Object::Cohort(serde_json::from_value(cohort).unwrap())));
        };
        // A circle ends.
        for (name, parent) in [("all", "top"), ("top", "all"), ("secret-cohort", "secret-top")] {
            cohort(name, parent);
        }
        store.note(&Input::Applied(cluster_queue("idle")));
        store.note(&Input::Applied(local_queue("a", "lost", "gone")));
        let snapshot = store.fresh();
        let alice = Viewer { namespaces: ["a".into()].into(), ..Viewer::default() };
        let names = |viewer: &Viewer| {
            let seen = SeenQueues::of(Some(&snapshot), viewer);
            let queues: Vec<_> =
                ["cq", "secret-team", "idle", "gone"].into_iter().filter(|name| seen.queue(name)).collect();
            let cohorts: Vec<_> = ["all", "top", "secret-cohort", "secret-top"]
                .into_iter()
                .filter(|name| seen.cohort(name))
                .collect();
            (queues, cohorts)
        };
        assert_eq!(names(&alice), (vec!["cq", "gone"], vec!["all", "top"]));
        let everywhere = Viewer { all: true, ..alice.clone() };
        assert_eq!(
            names(&everywhere).0,
            ["cq", "secret-team", "gone"],
            "the right to see Workloads is another"
        );
        let admin = Viewer { queues: true, ..alice.clone() };
        assert_eq!((names(&admin).0.len(), names(&admin).1.len()), (4, 4));
        assert!(!SeenQueues::of(None, &alice).queue("cq") && SeenQueues::of(None, &admin).queue("cq"));
    }
}
