//! What large groups and many pods cost, as counts.

use serde_json::json;
use sluice_api::job::JobKind;
use sluice_engine::{Input, Kind, ObjectRef};

use crate::model::pods::{member, pod};
use crate::model::{Cluster, condition};
use crate::plain_pods::bed;

/// A group of so many pods, all of which may run.
fn group_of(pods: usize) -> Cluster {
    let mut c = bed(&pods.to_string());
    c.checked = false;
    for at in 0..pods {
        c.api.add_pod(member(&format!("p{at}"), "g", pods, "main"));
    }
    c.settle();
    assert_eq!(condition(&c.api.workloads()[0], "Admitted"), "True");
    assert!(c.api.is_free("p0") && c.api.is_free(&format!("p{}", pods - 1)));
    c
}

/// The allocations that it takes to take in that a pod is in a phase now.
fn cost(c: &mut Cluster, name: &str, phase: &str) -> u64 {
    c.api.run_pod(name, phase);
    let object = c.api.seen(&ObjectRef::namespaced(Kind::Job(JobKind::POD), "team-a", name));
    let (engine, now) = (&mut c.engine, c.now);
    let measured = allocation_counter::measure(|| {
        engine.apply(now, Input::Applied(object));
        engine.cycle(now);
    });
    measured.count_total
}

#[test]
fn what_happens_to_one_pod_costs_the_same_in_a_group_of_any_size() {
    let (mut small, mut large) = (group_of(50), group_of(5_000));
    for phase in ["Running", "Succeeded"] {
        let [few, many] = [&mut small, &mut large].map(|c| cost(c, "p7", phase));
        assert!(many <= few + few / 4, "{phase}: {few} allocations, and in a large group {many}");
    }
}

#[test]
fn many_pods_that_are_queued_alone_cost_as_much_each_as_few() {
    let total = |pods: usize| {
        let mut c = bed(&pods.to_string());
        c.checked = false;
        for at in 0..pods {
            c.api.add_pod(pod(&format!("p{at}"), "lq", "1"));
        }
        let measured = allocation_counter::measure(|| c.settle());
        assert!(c.api.is_free("p0") && c.api.is_free(&format!("p{}", pods - 1)));
        assert_eq!(c.api.workloads()[0].spec.pod_sets[0].count, 1);
        measured.count_total
    };
    let (few, many) = (total(250), total(1_000));
    assert!(many <= few * 42 / 10, "{few} allocations for 250 pods, {many} for 1,000");
}

#[test]
fn a_pod_that_waits_for_the_rest_of_its_group_costs_the_same_however_many_are_there() {
    let mut costs = [10, 2_000].map(|pods: usize| {
        let mut c = bed("1");
        c.checked = false;
        for at in 0..pods {
            c.api.add_pod(member(&format!("p{at}"), "g", 5_000, "main"));
        }
        c.settle();
        c.api.add_pod(member("late", "g", 5_000, "main"));
        c.api.edit_pod("late", &json!({"metadata": {"labels": {"example.com/x": "y"}}}));
        let object = c.api.seen(&ObjectRef::namespaced(Kind::Job(JobKind::POD), "team-a", "late"));
        let (engine, now) = (&mut c.engine, c.now);
        allocation_counter::measure(|| engine.apply(now, Input::Applied(object))).count_total
    });
    costs.sort_unstable();
    assert!(costs[1] <= costs[0] + costs[0] / 4, "{costs:?}");
}
