use super::*;
use serde_json::json;

fn job(name: &str, pods: i64, cpu: &str) -> (ObjectRef, Value) {
    let container = json!({"resources": {"requests": {"cpu": cpu}}});
    let value = json!({"spec": {"parallelism": pods, "template": {"spec": {
        "nodeSelector": {"pool": "a"}, "containers": [container]}}}});
    (ObjectRef::namespaced(Kind::Job(JobKind::JOB), "ns", name), value)
}

fn jobset(name: &str, slices: i64, exclusive: bool) -> (ObjectRef, Value) {
    let (_, job) = job(name, 2, "1");
    let annotations =
        if exclusive { json!({"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}) } else { Value::Null };
    let value = json!({"metadata": {"annotations": annotations}, "spec": {"replicatedJobs": [
        {"name": "slice", "replicas": slices, "template": {"spec": job["spec"]}}]}});
    (ObjectRef::namespaced(Kind::Job(JobKind::JOB_SET), "ns", name), value)
}

fn node(rack: &str, ready: &str) -> Value {
    json!({"metadata": {"labels": {"pool": "a", "rack": rack}}, "status": {
        "allocatable": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": ready}]}})
}

fn nodes() -> Nodes {
    let mut nodes = Nodes::default();
    for (name, rack) in [("n1", "x"), ("n2", "x"), ("n3", "y"), ("n4", "y")] {
        assert_eq!(nodes.set(name, &node(rack, "True")), Turn::Better);
    }
    nodes
}

fn on(nodes: &Nodes, job: &ObjectRef) -> Vec<String> {
    nodes.pods_of(job).iter().map(|pod| pod.node.to_string()).collect()
}

#[test]
fn all_pods_of_a_job_are_placed_or_none() {
    let mut nodes = nodes();
    let (a, value) = job("a", 7, "2");
    assert!(nodes.place(&a, JobKind::JOB, &value, &Assigned::new()));
    let (b, value) = job("b", 2, "2");
    assert!(!nodes.place(&b, JobKind::JOB, &value, &Assigned::new()), "one of two fits");
    nodes.release(&a);
    assert_eq!(nodes.take_waiting(), BTreeSet::from([b.clone()]));
    assert!(nodes.place(&b, JobKind::JOB, &value, &Assigned::new()));
    assert_eq!(nodes.jobs_on("n1"), [b]);
}

#[test]
fn parts_without_pods_need_no_room_however_many_they_are() {
    let mut nodes = nodes();
    for exclusive in [false, true] {
        let (a, mut value) = jobset("a", 2_000_000_000, exclusive);
        value["spec"]["replicatedJobs"][0]["template"]["spec"]["parallelism"] = json!(0);
        assert!(nodes.place(&a, JobKind::JOB_SET, &value, &Assigned::new()));
        assert!(nodes.release(&a).is_empty());
    }
    // More parts than there is room for are found out at once.
    for exclusive in [false, true] {
        let (b, value) = jobset("b", 2_000_000_000, exclusive);
        assert!(!nodes.place(&b, JobKind::JOB_SET, &value, &Assigned::new()));
    }
}

#[test]
fn a_node_that_does_not_answer_takes_nothing() {
    let mut nodes = nodes();
    assert_eq!(nodes.set("n1", &node("x", "Unknown")), Turn::Failed);
    let (a, value) = job("a", 7, "2");
    assert!(!nodes.place(&a, JobKind::JOB, &value, &Assigned::new()));
    assert_eq!(nodes.set("n1", &node("x", "True")), Turn::Better);
    assert_eq!(nodes.set("n1", &node("x", "True")), Turn::Same);
    assert!(nodes.place(&a, JobKind::JOB, &value, &Assigned::new()));
}

#[test]
fn each_job_of_an_exclusive_jobset_has_a_group_of_nodes_to_itself() {
    let mut nodes = nodes();
    let (a, value) = jobset("a", 2, true);
    assert!(nodes.place(&a, JobKind::JOB_SET, &value, &Assigned::new()));
    assert_eq!(on(&nodes, &a), ["n1", "n1", "n3", "n3"]);
    let (b, other) = jobset("b", 1, false);
    assert!(!nodes.place(&b, JobKind::JOB_SET, &other, &Assigned::new()), "other JobSets keep off");
    let (c, plain) = job("c", 1, "1");
    assert!(nodes.place(&c, JobKind::JOB, &plain, &Assigned::new()), "plain Jobs do not");
    nodes.release(&a);
    assert!(nodes.place(&b, JobKind::JOB_SET, &other, &Assigned::new()));
    let (d, third) = jobset("d", 2, true);
    assert!(
        !nodes.place(&d, JobKind::JOB_SET, &third, &Assigned::new()),
        "there are two groups, and one is in use"
    );
}

#[test]
fn pods_go_where_they_like_it_best() {
    let mut nodes = nodes();
    let (a, mut value) = job("a", 1, "1");
    let expression = json!({"key": "rack", "operator": "NotIn", "values": ["x"]});
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": {"matchExpressions": [expression]}}]}});
    value["spec"]["template"]["spec"]["affinity"] = affinity;
    assert!(nodes.place(&a, JobKind::JOB, &value, &Assigned::new()));
    assert_eq!(on(&nodes, &a), ["n3"]);
}

#[test]
fn a_node_that_comes_back_has_the_pods_that_were_not_collected() {
    let mut nodes = nodes();
    let (a, value) = job("a", 1, "4");
    assert!(nodes.place(&a, JobKind::JOB, &value, &Assigned::new()));
    assert!(nodes.remove("n1") && !nodes.remove("n1"));
    nodes.set("n1", &node("x", "True"));
    let (b, value) = job("b", 4, "4");
    assert!(!nodes.place(&b, JobKind::JOB, &value, &Assigned::new()));
}
