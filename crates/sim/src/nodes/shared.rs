//! Pod sets whose pods are objects of their own, as in a pod group: each pod is placed by itself, and all share the domains of the topology
//! assignment of their Workload (docs/reference/06-algorithm.md 6.13).

use std::sync::Arc;

use sluice_api::labels::DEFAULT_POD_SET_NAME;
use sluice_engine::ObjectRef;

use super::{Assigned, Domain, Nodes, Placement};

/// A pod set: its Workload and its name.
pub(crate) type Share = (ObjectRef, String);

impl Nodes {
    /// Where one pod of a pod set goes: into the domain of its rank if that has capacity, else into the first domain that has.
    pub fn place_in_share(&self, share: &Share, domains: &[Domain], rank: Option<i64>) -> Assigned {
        let taken = self.shares.get(share);
        let has_room = |domain: &&Domain| {
            let on = taken
                .into_iter()
                .flatten()
                .filter(|(node, _)| self.by_name.get(*node).is_some_and(|node| domain.has(&node.labels)));
            on.map(|(_, pods)| *pods).sum::<i64>() < domain.pods
        };
        let mut first = 0;
        let of_rank = domains.iter().find(|domain| {
            first += domain.pods;
            rank.is_some_and(|rank| (0..first).contains(&rank))
        });
        let chosen = of_rank.filter(has_room).or_else(|| domains.iter().find(has_room));
        let chosen = chosen.map(Domain::for_one);
        Assigned::from([(DEFAULT_POD_SET_NAME.to_owned(), chosen.into_iter().collect())])
    }

    /// The pods of a job are some of a pod set.
    pub fn share(&mut self, job: &ObjectRef, share: Share) {
        let Some(place) = self.placed.get_mut(job) else { return };
        let nodes = self.shares.entry(share.clone()).or_default();
        for pod in &place.pods {
            *nodes.entry(Arc::clone(&pod.node)).or_default() += 1;
        }
        place.share = Some(share);
    }

    /// The pods of a place are gone from their pod set.
    pub(super) fn unshare(&mut self, place: &Placement) {
        let Some(share) = &place.share else { return };
        let Some(nodes) = self.shares.get_mut(share) else { return };
        for pod in &place.pods {
            if let Some(pods) = nodes.get_mut(&pod.node) {
                *pods -= 1;
            }
        }
        nodes.retain(|_, pods| *pods > 0);
        if nodes.is_empty() {
            self.shares.remove(share);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};
    use sluice_api::job::JobKind;
    use sluice_engine::Kind;

    use super::super::assigned;
    use super::*;

    fn nodes() -> Nodes {
        let mut nodes = Nodes::default();
        for name in ["n1", "n2", "n3"] {
            let labels = json!({"pool": "a", "kubernetes.io/hostname": name});
            let status = json!({"allocatable": {"cpu": "2", "pods": "10"}});
            nodes.set(name, &json!({"metadata": {"labels": labels}, "status": status}));
        }
        nodes
    }

    /// Two pods on n2, and one on n3.
    fn workload() -> Value {
        let domains = json!([{"domainCount": 2, "podCounts": {"individual": [2, 1]},
            "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["2", "3"]}}]}]);
        let assignment = json!({"levels": ["kubernetes.io/hostname"], "slices": domains});
        json!({"status": {"admission": {"podSetAssignments": [
            {"name": "main", "topologyAssignment": assignment}]}}})
    }

    fn spec() -> Value {
        json!({"nodeSelector": {"pool": "a"}, "containers": [{"resources": {"requests": {"cpu": "1"}}}]})
    }

    fn job(name: &str) -> (ObjectRef, Value) {
        let value = json!({"spec": {"parallelism": 3, "template": {"spec": spec()}}});
        (ObjectRef::namespaced(Kind::Job(JobKind::JOB), "ns", name), value)
    }

    /// Places one pod of a group; returns its node.
    fn place(nodes: &mut Nodes, name: &str, rank: Option<i64>) -> Option<String> {
        let share = (ObjectRef::namespaced(Kind::Workload, "ns", "group"), "main".to_owned());
        let pod = ObjectRef::namespaced(Kind::Job(JobKind::POD), "ns", name);
        let domains = nodes.place_in_share(&share, &assigned(&workload())["main"], rank);
        if !nodes.place(&pod, JobKind::POD, &json!({"spec": spec()}), &domains) {
            return None;
        }
        nodes.share(&pod, share);
        nodes.pods_of(&pod).first().map(|pod| pod.node.to_string())
    }

    #[test]
    fn pods_go_where_they_are_assigned_to_in_the_order_of_their_ranks() {
        let mut nodes = nodes();
        let workload = workload();
        let (a, value) = job("a");
        assert!(nodes.place(&a, JobKind::JOB, &value, &assigned(&workload)));
        let on: Vec<&str> = nodes.pods_of(&a).iter().map(|pod| &*pod.node).collect();
        assert_eq!(on, ["n2", "n2", "n3"]);
        let (b, value) = job("b");
        assert!(!nodes.place(&b, JobKind::JOB, &value, &assigned(&workload)), "n2 is full");
        assert!(nodes.place(&b, JobKind::JOB, &value, &Assigned::new()));
    }

    #[test]
    fn the_pods_of_a_group_fill_the_domains_of_their_workload_one_after_the_other() {
        let mut nodes = nodes();
        let on: Vec<_> = ["a", "b", "c"].iter().map(|name| place(&mut nodes, name, None).unwrap()).collect();
        assert_eq!(on, ["n2", "n2", "n3"]);
        assert_eq!(place(&mut nodes, "d", None), None, "the group has three pods");
        nodes.release(&ObjectRef::namespaced(Kind::Job(JobKind::POD), "ns", "b"));
        assert_eq!(place(&mut nodes, "e", None).as_deref(), Some("n2"));
    }

    #[test]
    fn a_pod_of_a_group_goes_where_its_rank_says_if_there_is_room() {
        let mut nodes = nodes();
        assert_eq!(place(&mut nodes, "c", Some(2)).as_deref(), Some("n3"));
        assert_eq!(place(&mut nodes, "again", Some(2)).as_deref(), Some("n2"), "its place is taken");
        assert_eq!(place(&mut nodes, "beyond", Some(i64::MAX)).as_deref(), Some("n2"));
    }

    #[test]
    fn what_is_kept_of_a_group_goes_with_its_last_pod() {
        let mut nodes = nodes();
        place(&mut nodes, "a", None).unwrap();
        nodes.release(&ObjectRef::namespaced(Kind::Job(JobKind::POD), "ns", "a"));
        assert_eq!(nodes.shares, BTreeMap::new());
    }
}
