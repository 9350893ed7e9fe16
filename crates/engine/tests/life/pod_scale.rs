//! The cost of large groups and many pods, as counts.

use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_engine::{Input, Kind, ObjectRef, Purpose};
use sluice_jobs::pods;

use crate::gathered_pods::{make, replica, with_set};
use crate::model::pods::{member, pod};
use crate::model::{Cluster, condition};
use crate::plain_pods::{add_high, bed};

/// A group of `pods` pods, all of which may run.
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

/// A StatefulSet of `pods` pods, all of which may run.
fn set_of(pods: usize) -> Cluster {
    let (mut c, uid) = with_set(&pods.to_string(), i32::try_from(pods).unwrap());
    c.checked = false;
    make(&mut c, &uid, 0..pods);
    assert!(c.api.is_free("web-0") && c.api.is_free(&format!("web-{}", pods - 1)));
    c
}

/// The allocations that it takes to take in that a pod is in a phase now.
fn cost(c: &mut Cluster, name: &str, phase: &str) -> u64 {
    c.api.run_pod(name, phase);
    cost_of(c, name)
}

/// The allocations that it takes to take in what a pod is now.
fn cost_of(c: &mut Cluster, name: &str) -> u64 {
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
fn what_happens_to_one_pod_costs_the_same_in_a_statefulset_of_any_size() {
    let (mut small, mut large) = (set_of(50), set_of(2_000));
    let [few, many] = [&mut small, &mut large].map(|c| cost(c, "web-7", "Running"));
    assert!(many <= few + few / 4, "{few} allocations, and in a large one {many}");
}

#[test]
fn pods_of_a_statefulset_that_ask_for_too_much_are_looked_at_once() {
    let large = |at: usize, uid: &str| {
        let mut pod = replica(at, uid);
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
        pod
    };
    let [few, many] = [10, 1_000].map(|pods: usize| {
        let (mut c, uid) = with_set("2000", 2_000);
        c.checked = false;
        for at in 0..pods {
            c.api.add_pod(large(at, &uid));
        }
        c.settle();
        assert!(c.api.is_gated("web-0") && c.notes("ErrWorkloadCompose").len() == 1);
        c.api.add_pod(large(pods, &uid));
        let cost = cost_of(&mut c, &format!("web-{pods}"));
        // Another pod that is as it should be is not kept waiting by them.
        make(&mut c, &uid, pods + 1..pods + 2);
        assert!(c.api.is_free(&format!("web-{}", pods + 1)) && c.api.is_gated("web-0"));
        cost
    });
    assert!(many <= few + few / 4, "{few} allocations beside 10 such pods, {many} beside 1,000");
}

#[test]
fn what_was_too_large_runs_once_its_workload_is_for_it() {
    let (mut c, uid) = with_set("8", 2);
    let mut pod = replica(0, &uid);
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("2");
    c.api.add_pod(pod);
    c.settle();
    assert!(c.api.is_gated("web-0"));
    let scale = |c: &mut Cluster, replicas: i32, cpu: &str| {
        c.api.edit_job("web", |job| {
            job.view.pod_sets = vec![crate::model::build::pod_set("main", replicas, cpu)];
            job.view.on_hold = Some(replicas == 0);
        });
        c.settle();
    };
    scale(&mut c, 0, "1");
    scale(&mut c, 2, "2");
    assert!(c.api.is_free("web-0"), "{:?}", c.api.workloads());
}

/// The owners of the Workload of a group are one list: to write it for each pod would be to write it as often as there are pods.
#[test]
fn pods_that_come_to_a_large_group_become_owners_of_its_workload_together() {
    let mut c = bed("400");
    c.checked = false;
    let fast = |at: usize| -> Value {
        let mut pod = member(&format!("p{at:03}"), "g", 400, "main");
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = json!("true");
        pod
    };
    for second in 0..4 {
        for at in 0..100 {
            c.api.add_pod(fast(second * 100 + at));
            c.settle();
        }
        c.advance(1);
    }
    let owners = c.api.workloads()[0].metadata.owner_references.as_ref().map_or(0, Vec::len);
    let updates = c.written(Purpose::UpdateWorkload);
    assert_eq!((owners, c.api.is_free("p399")), (400, true));
    // While it is small, each pod is one at once.
    assert!(updates <= 100 + 2 * 4, "{updates} writes");
}

/// How much of the stored Workload of the group `g` its owners take.
fn owner_bytes(c: &Cluster) -> usize {
    let all = c.api.workloads();
    let group = all.iter().find(|w| w.metadata.name.as_deref() == Some("g")).unwrap();
    let owners = group.metadata.owner_references.iter().flatten();
    owners.map(|owner| pods::owner_bytes(&owner.name)).sum()
}

#[test]
fn a_group_all_of_whose_pods_are_made_again_is_never_owned_by_more_than_can_be_stored() {
    let pods = 1_500;
    let mut c = bed(&pods.to_string());
    c.checked = false;
    let name = |prefix: &str, at: usize| format!("{prefix}{at:0>252}");
    let add = |c: &mut Cluster, prefix: &str| {
        for at in 0..pods {
            c.api.add_pod(member(&name(prefix, at), "g", pods, "main"));
        }
        c.settle();
    };
    add(&mut c, "p");
    assert!(2 * owner_bytes(&c) > pods::MAX_OWNER_BYTES && c.api.is_free(&name("p", pods - 1)));
    add_high(&mut c, "1");
    assert!(c.api.is_free("high"));
    // All are replaced within a second.
    add(&mut c, "r");
    c.advance(5);
    assert_eq!(c.api.pods().len(), pods + 1, "those of before were released");
    let bytes = owner_bytes(&c);
    assert!(bytes <= pods::MAX_OWNER_BYTES && bytes > pods::MAX_OWNER_BYTES / 2, "{bytes}");
    c.api.run_pod("high", "Succeeded");
    c.advance(5);
    assert!(c.api.is_free(&name("r", 0)) && c.api.is_free(&name("r", pods - 1)));
}

#[test]
fn pods_of_a_group_that_cannot_own_its_workload_run_and_it_is_said() {
    let pods = 2_700;
    let mut c = bed(&pods.to_string());
    c.checked = false;
    let fast = |name: &str| -> Value {
        let mut pod = member(name, "g", pods, "main");
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-fast-admission"] = json!("true");
        pod
    };
    // By the first name all would fit.
    c.api.add_pod(fast("p"));
    c.settle();
    for at in 1..pods {
        c.api.add_pod(fast(&format!("{at:0>253}")));
    }
    c.advance(5);
    assert!(owner_bytes(&c) <= pods::MAX_OWNER_BYTES);
    assert!((1..pods).all(|at| c.api.is_free(&format!("{at:0>253}"))));
    let notes = c.notes("ErrWorkloadCompose");
    assert!(
        notes.len() == 1
            && notes[0].starts_with("Pod/p: 72 pods could not become owners of the Workload of their group"),
        "{notes:?}"
    );
    let writes = c.written(Purpose::UpdateWorkload);
    c.restart();
    c.advance(5);
    assert_eq!(c.written(Purpose::UpdateWorkload), writes, "nothing that does not fit is tried again");
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
