//! Advice with several alternatives: those that the tests of the states do not carry out are carried out here.

use super::waiting::{CHECK, checked, finding, played, scenario, wait};
use super::*;

/// A second ClusterQueue that covers what is said, with the LocalQueue `other`.
fn other_queue(covered: &str) -> String {
    let resources: Vec<_> =
        covered.split(", ").map(|name| format!("{{name: {name}, nominalQuota: 10}}")).collect();
    let queue = CLUSTER_QUEUE
        .replace("{name: cq}", "{name: second}")
        .replace("[cpu]", &format!("[{covered}]"))
        .replace("[{name: cpu, nominalQuota: 10}]", &format!("[{}]", resources.join(", ")));
    let local = LOCAL_QUEUE
        .replace("{name: main,", "{name: other,")
        .replace("clusterQueue: cq", "clusterQueue: second");
    [queue, local].concat()
}

fn in_the_other_queue(part: &'static str) -> Act {
    Act::Change(
        part,
        ("Job", "a", "mine"),
        json!({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}),
    )
}

/// The answer about a job that waits, and that it runs once this is done.
fn ends(world: &str, code: Code, way: &Act) {
    let (explained, mut simulation) = played(world, &options(), 20);
    finding(&explained, code);
    assert!(!runs(&simulation), "{}", explained.text());
    act(&mut simulation, &explained, way);
    assert!(runs(&simulation), "{}", explained.text());
}

/// That an object is deleted so early, and loses the finalizer of another program, if it has one, so much later.
fn deleted(kind: &str, name: &str, namespace: Option<&str>) -> Value {
    let mut object = json!({"kind": kind, "name": name});
    if let Some(namespace) = namespace {
        object["namespace"] = json!(namespace);
    }
    object
}

#[test]
pub fn a_check_whose_object_is_gone_may_be_taken_out_of_the_queue() {
    let name = deleted("AdmissionCheck", "budget", None);
    let mut free = name.clone();
    free["merge"] = json!({"metadata": {"finalizers": null}});
    let gone = scenario(&json!({"events": [{"at": "15s", "patch": free}, {"at": "15s", "delete": name}]}));
    let (explained, mut simulation) = played(&[checked(), gone].concat(), &options(), 20);
    assert!(CHECK.contains("budget") && explained.checks[0].controller.is_none(), "{}", explained.text());
    let out = json!({"spec": {"admissionChecksStrategy": null}});
    let way = Act::Change("or take it out of the ClusterQueue", ("ClusterQueue", "", "cq"), out);
    act(&mut simulation, &explained, &way);
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
pub fn a_namespace_that_no_labels_can_open_may_use_another_queue() {
    let closed = CLUSTER_QUEUE.replace(
        "namespaceSelector: {}",
        "namespaceSelector: {matchLabels: {team: blue}, matchExpressions: [{key: team, operator: DoesNotExist}]}",
    );
    let world = [FLAVOR, &closed, LOCAL_QUEUE, &other_queue("cpu"), JOB].concat();
    ends(&world, Code::NamespaceNotSelected, &in_the_other_queue("or use another queue"));
}

#[test]
pub fn pods_that_a_limit_range_refuses_start_when_it_allows_them() {
    let range = |most: u32| {
        format!(
            "apiVersion: v1\nkind: LimitRange\nmetadata: {{name: limits, namespace: a}}\n\
             spec: {{limits: [{{type: Container, max: {{cpu: {most}}}}}]}}\n---\n"
        )
    };
    let large = JOB.replace("requests: {cpu: 1}", "requests: {cpu: 2}");
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &range(1), &large].concat();
    let wider = json!({"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}});
    let way = Act::Change("or the LimitRange of the namespace", ("LimitRange", "a", "limits"), wider);
    ends(&world, Code::Misconfigured, &way);
}

#[test]
pub fn a_resource_that_is_not_covered_may_be_left_out_or_asked_of_another_queue() {
    let job = JOB.replace("requests: {cpu: 1}", "requests: {cpu: 1, example.com/gpu: 1}");
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &other_queue("cpu, example.com/gpu"), &job].concat();
    ends(&world, Code::ResourceNotCovered, &in_the_other_queue("or name a queue that has it"));
    let container = json!({"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}});
    let without = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
    let part = "take example.com/gpu out of the requests and limits of the pods";
    ends(&world, Code::ResourceNotCovered, &Act::Change(part, ("Job", "a", "mine"), without));
}

#[test]
pub fn a_priority_class_that_is_missing_need_not_be_named() {
    let job = JOB.replace("queue-name: main}", "queue-name: main, kueue.x-k8s.io/priority-class: gone}");
    let class = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: there}\nvalue: 9\n---\n";
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, class, &job].concat();
    let other = json!({"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "there"}}});
    let way = Act::Change("or name one that exists", ("Job", "a", "mine"), other);
    ends(&world, Code::PriorityClassMissing, &way);
}

#[test]
pub fn a_job_of_a_namespace_that_is_not_managed_runs_in_another_or_when_the_selector_takes_it() {
    let selecting = |team: &str| {
        let mut options = options();
        options.configuration.managed_jobs_namespace_selector.match_labels =
            Some([("team".to_owned(), team.to_owned())].into());
        options
    };
    let namespaces = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {team: web}}\n---\n\
                      apiVersion: v1\nkind: Namespace\nmetadata: {name: b, labels: {team: ml}}\n---\n";
    let there = LOCAL_QUEUE.replace("namespace: a", "namespace: b");
    let world = [namespaces, FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &there].concat();
    let job = world.clone() + JOB;
    let (explained, simulation) = played(&job, &selecting("ml"), 20);
    finding(&explained, Code::NamespaceNotManaged);
    carried_out(
        &explained,
        "use another namespace, or let an administrator change managedJobsNamespaceSelector",
    );
    assert!(!runs(&simulation), "{}", explained.text());
    let elsewhere = world.clone() + &JOB.replace("namespace: a", "namespace: b");
    for (world, team) in [(&elsewhere, "ml"), (&job, "web")] {
        let mut simulation = sluice_sim::prepare(&read(world), &BTreeMap::new(), selecting(team)).unwrap();
        wait(&mut simulation, 20);
        assert!(runs(&simulation), "{team}");
    }
}

#[test]
pub fn a_workload_that_another_program_holds_goes_when_that_lets_it_and_its_job_starts_again() {
    let (_, simulation) = played(&world(), &options(), 20);
    let name = simulation.objects(Kind::Workload).next().unwrap().0.name.to_string();
    let workload = deleted("Workload", &name, Some("a"));
    let mut held = workload.clone();
    held["merge"] =
        json!({"metadata": {"finalizers": ["kueue.x-k8s.io/resource-in-use", "example.com/mine"]}});
    let events = json!([{"at": "10s", "patch": held}, {"at": "15s", "delete": workload}]);
    let (_, mut simulation) =
        played(&[world(), scenario(&json!({"events": events}))].concat(), &options(), 20);
    let is_suspended =
        |simulation: &Simulation| asked_about(simulation, "mine").0.job.unwrap()["spec"]["suspend"] == true;
    wait(&mut simulation, 120);
    assert!(is_suspended(&simulation));
    let (subject, account) = asked_about(&simulation, "mine");
    let mut manifests = as_read(&simulation);
    manifests.subject = Some(subject);
    let question = Question { live: account.as_ref(), decides: true, ..question(&manifests, "mine") };
    let explained = question.answer().unwrap();
    assert!(
        finding(&explained, Code::BeingDeleted).contains("held by the finalizers example.com/mine"),
        "{}",
        explained.text()
    );
    carried_out(&explained, "the programs that set these finalizers must remove them");
    simulation.patch("Workload", Some("a"), &name, &json!({"metadata": {"finalizers": null}})).unwrap();
    wait(&mut simulation, 120);
    assert!(!is_suspended(&simulation), "{}", explained.text());
}

#[test]
pub fn a_local_queue_that_goes_may_be_made_again_once_it_is_gone() {
    let held = LOCAL_QUEUE
        .replace("metadata: {name: main,", "metadata: {finalizers: [example.com/holds], name: main,");
    let gone =
        scenario(&json!({"events": [{"at": "3s", "delete": deleted("LocalQueue", "main", Some("a"))}]}));
    let late = JOB.replace("annotations: {", "annotations: {sluice.dev/submit-after-seconds: \"5\", ");
    let world = [FLAVOR, CLUSTER_QUEUE, &held, &late, &gone].concat();
    let (explained, mut simulation) = played(&world, &options(), 20);
    finding(&explained, Code::LocalQueueTerminating);
    assert!(!runs(&simulation), "{}", explained.text());
    simulation.patch("LocalQueue", Some("a"), "main", &json!({"metadata": {"finalizers": null}})).unwrap();
    wait(&mut simulation, 10);
    act(&mut simulation, &explained, &Act::Apply("or create it again once it is gone", LOCAL_QUEUE));
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
fn a_queue_that_is_resumed_in_vain_is_said_to_be_only_one_of_two_things() {
    let world = world()
        .replace("namespaceSelector: {}", "namespaceSelector: {}\n  stopPolicy: Hold")
        .replace("nominalQuota: 10", "nominalQuota: 2");
    let explained = ask(&read(&world), options());
    let resume = remedy(&explained, "resume the ClusterQueue cq");
    assert_eq!(resume.effect, Effect::NotEnough, "{}", explained.text());
    assert_eq!(resume.text, "necessary, but not sufficient: resume the ClusterQueue cq");
}
