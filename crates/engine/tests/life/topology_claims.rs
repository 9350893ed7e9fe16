//! Pods that claim to belong to a Workload that holds their node.

use serde_json::json;
use sluice_engine::{Kind, ObjectRef};

use crate::model::Cluster;
use crate::topology::{HOSTNAME, bed, end_pod, node_ref, run_pods, runs, submit_in_rack};

/// A bound pod that names the Workload of a job, and asks for so much.
fn claim(c: &mut Cluster, (name, job): (&str, &str), node: &str, cpu: &str) -> ObjectRef {
    let scheduling = c.api.job(job).view.pod_sets[0].scheduling.clone();
    let container = json!({"name": "c", "resources": {"requests": {"cpu": cpu}}});
    let pod = json!({
        "metadata": {"namespace": "team-a", "name": name, "labels": scheduling.labels,
            "annotations": scheduling.annotations},
        "spec": {"nodeName": node, "containers": [container]}, "status": {"phase": "Running"},
    });
    c.api.put(Kind::Pod, pod.clone());
    let pod = c.api.put(Kind::JobPod, pod);
    c.settle();
    pod
}

#[test]
fn no_more_pods_are_where_they_were_assigned_than_were_assigned() {
    // Whatever it is called, and whether the job's own pod is there before it.
    for (name, first) in [("zzz", true), ("0", true), ("zzz", false), ("0", false)] {
        let mut c = bed(&[("n1", "r1", "4")]);
        submit_in_rack(&mut c, "a", 1);
        if first {
            run_pods(&mut c, "a");
        }
        let forged = claim(&mut c, (name, "a"), "n1", "2");
        if !first {
            run_pods(&mut c, "a");
        }
        submit_in_rack(&mut c, "b", 2);
        assert!(!runs(&c, "b"), "{name}: of 4 there is 1 free");
        c.restart();
        c.settle();
        assert!(!runs(&c, "b"), "{name}");
        end_pod(&mut c, &forged);
        c.advance(1);
        assert!(runs(&c, "b"), "{name}");
    }
}

#[test]
fn what_a_pod_requests_beyond_its_assignment_is_not_free() {
    let mut c = bed(&[("n1", "r1", "4")]);
    submit_in_rack(&mut c, "a", 1);
    let large = claim(&mut c, ("large", "a"), "n1", "3");
    submit_in_rack(&mut c, "b", 2);
    assert!(!runs(&c, "b"), "of 4 there is 1 free");
    c.restart();
    c.settle();
    assert!(!runs(&c, "b"));
    end_pod(&mut c, &large);
    c.advance(1);
    assert!(runs(&c, "b"));
}

#[test]
fn a_pod_elsewhere_or_of_another_pod_set_is_none_of_the_assignment() {
    let mut c = bed(&[("n1", "r1", "1"), ("n2", "r2", "2")]);
    submit_in_rack(&mut c, "a", 1);
    run_pods(&mut c, "a");
    let elsewhere = claim(&mut c, ("elsewhere", "a"), "n2", "1");
    submit_in_rack(&mut c, "b", 2);
    assert!(!runs(&c, "b"));
    end_pod(&mut c, &elsewhere);
    c.advance(1);
    assert!(runs(&c, "b"));
    let other = claim(&mut c, ("other", "b"), "n2", "1");
    let label = json!({"metadata": {"labels": {"kueue.x-k8s.io/podset": "another"}}});
    for kind in [Kind::Pod, Kind::JobPod] {
        c.api.edit(&ObjectRef { kind, ..other.clone() }, &label);
    }
    c.settle();
}

/// A job of one pod that is assigned a rack; its nodes are not.
#[test]
fn a_rack_has_no_more_pods_of_an_assignment_than_were_assigned() {
    let mut c = bed(&[("n1", "r1", "2"), ("n2", "r1", "2"), ("n3", "r2", "1")]);
    let topology = ObjectRef::cluster(Kind::Topology, "dc");
    c.api.edit(&topology, &json!({"spec": {"levels": [{"nodeLabel": "rack"}]}}));
    submit_in_rack(&mut c, "a", 1);
    assert!(runs(&c, "a"));
    claim(&mut c, ("own", "a"), "n1", "1");
    let forged = claim(&mut c, ("forged", "a"), "n2", "1");
    submit_in_rack(&mut c, "b", 3);
    assert!(!runs(&c, "b"), "of 4 in the rack there are 2 free");
    // A node that is in another rack by now has none of them.
    end_pod(&mut c, &forged);
    c.advance(1);
    assert!(runs(&c, "b"));
    c.api.edit(&node_ref("n1"), &json!({"metadata": {"labels": {"rack": "r2", HOSTNAME: "n1"}}}));
    c.settle();
    let many = claim(&mut c, ("many", "a"), "n3", "1");
    end_pod(&mut c, &many);
}
