//! States that end by waiting, or by actions of people and other programs: each is simulated, explained, and ended as the answer says.

use super::*;

/// The answer, and the cluster that it is about, after `seconds` seconds.
pub fn played(world: &str, options: &Options, seconds: i64) -> (Explained, Simulation) {
    let manifests = read(world);
    let files = BTreeMap::new();
    let at = SignedDuration::from_secs(seconds);
    let question = Question { options: options.clone(), at, ..question(&manifests, "mine") };
    let mut simulation = sluice_sim::prepare(&manifests, &files, options.clone()).unwrap();
    simulation.advance(at).unwrap();
    (question.answer().unwrap(), simulation)
}

pub fn scenario(spec: &Value) -> String {
    let scenario = json!({"apiVersion": "sluice.dev/v1alpha1", "kind": "Scenario", "spec": spec});
    format!("{scenario}\n---\n")
}

/// A finding of the answer, with its details.
pub fn finding(explained: &Explained, code: Code) -> String {
    let found = explained.findings.iter().find(|f| f.code == code);
    let found = found.unwrap_or_else(|| unreachable!("no {code:?}: {}", explained.text()));
    [std::slice::from_ref(&found.text), &found.details].concat().join("\n")
}

pub fn wait(simulation: &mut Simulation, seconds: i64) {
    simulation.advance(SignedDuration::from_secs(seconds)).unwrap();
}

/// A job of all ten processors that is there before.
pub fn first() -> String {
    JOB.replace("name: mine", "name: first")
        .replace("parallelism: 4\n  completions: 4", "parallelism: 10\n  completions: 10")
}

pub fn later(job: &str, more: &str) -> String {
    let labels = format!("queue-name: main{more}}}");
    job.replace("queue-name: main}", &labels)
        .replace("annotations: {", "annotations: {sluice.dev/submit-after-seconds: \"5\", ")
}

#[test]
pub fn what_it_preempts_is_named_until_its_pods_are_gone() {
    let class = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: top}\nvalue: 9\n---\n";
    let queue = CLUSTER_QUEUE.replace(
        "namespaceSelector: {}",
        "namespaceSelector: {}\n  preemption: {withinClusterQueue: LowerPriority}",
    );
    let mine = later(JOB, ", kueue.x-k8s.io/priority-class: top");
    let slow = scenario(&json!({"podTermination": "60s"}));
    let world = [FLAVOR, &queue, LOCAL_QUEUE, class, &first(), &mine, &slow].concat();
    let (explained, mut simulation) = played(&world, &options(), 20);
    let said = finding(&explained, Code::PreemptionPending);
    assert!(said.starts_with("1 workload(s) are being stopped to make room for it\na/job-first-"), "{said}");
    carried_out(&explained, "wait until their pods are gone");
    assert!(!runs(&simulation));
    wait(&mut simulation, 120);
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
pub fn whose_pods_keep_it_waiting_is_named_until_they_are_ready() {
    let mut options = options();
    let mut waits = options.configuration.wait_for_pods_ready.clone().unwrap();
    waits.block_admission = true;
    options.configuration.wait_for_pods_ready = Some(waits);
    let small = first().replace("parallelism: 10\n  completions: 10", "parallelism: 1\n  completions: 1");
    let slow = scenario(&json!({"podStartup": "60s"}));
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &small, &later(JOB, ""), &slow].concat();
    let (explained, mut simulation) = played(&world, &options, 20);
    let said = finding(&explained, Code::WaitingForPodsReady);
    assert!(said.contains("waitForPodsReady.blockAdmission") && said.contains("\na/job-first-"), "{said}");
    carried_out(&explained, "wait until their pods are ready");
    assert!(!runs(&simulation), "{}", explained.text());
    wait(&mut simulation, 120);
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
pub fn a_job_that_wants_no_pods_starts_when_it_wants_some() {
    let down =
        json!({"kind": "StatefulSet", "namespace": "a", "name": "mine", "merge": {"spec": {"replicas": 0}}});
    let down = scenario(&json!({"events": [{"at": "5s", "patch": down}]}));
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &stateful_set(2), &down].concat();
    let (explained, mut simulation) = played(&world, &options(), 20);
    let said = finding(&explained, Code::OnHold);
    assert_eq!(said, "its job holds it: StatefulSet scaled to zero; workload on hold");
    assert!(explained.text().contains("a person or program has to act first"), "{}", explained.text());
    let up =
        Act::Change("scale the job up again", ("StatefulSet", "a", "mine"), json!({"spec": {"replicas": 2}}));
    act(&mut simulation, &explained, &up);
    assert!(runs(&simulation), "{}", explained.text());
}

/// One of the two pods of the group `mine`.
fn pod(name: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata:
  name: {name}
  namespace: a
  labels: {{kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/pod-group-name: mine}}
  annotations: {{kueue.x-k8s.io/pod-group-total-count: \"2\", sluice.dev/run-seconds: \"3600\"}}
spec:
  restartPolicy: Never
  containers: [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]
---
"
    )
}

#[test]
pub fn a_group_that_lacks_pods_says_how_many_and_starts_when_they_are_made() {
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &pod("mine-0")].concat();
    let manifests = read(&world);
    let explained = question(&manifests, "mine-0").answer().unwrap();
    assert_eq!(explained.state, State::NotQueued, "{}", explained.text());
    let said = finding(&explained, Code::PodGroupIncomplete);
    assert_eq!(said, "the pod group mine has 1 of its 2 pods");
    carried_out(&explained, "create the 1 pods of the group mine that are missing");
    let mut simulation = cluster(&world);
    assert!(!runs(&simulation));
    for manifest in &read(&pod("mine-1")).objects {
        simulation.apply(manifest).unwrap();
    }
    wait(&mut simulation, 60);
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
pub fn a_preempted_group_is_queued_again_when_its_pods_are_made_again() {
    let class = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: top}\nvalue: 9\n---\n";
    let queue = CLUSTER_QUEUE
        .replace(
            "namespaceSelector: {}",
            "namespaceSelector: {}\n  preemption: {withinClusterQueue: LowerPriority}",
        )
        .replace("nominalQuota: 10", "nominalQuota: 2");
    let other = later(JOB, ", kueue.x-k8s.io/priority-class: top")
        .replace("name: mine", "name: other")
        .replace("parallelism: 4\n  completions: 4", "parallelism: 2\n  completions: 2")
        .replace("sluice.dev/run-seconds: \"3600\"", "sluice.dev/run-seconds: \"120\"");
    let pods = ["mine-0", "mine-1"].map(pod).concat();
    let mut simulation = cluster(&[FLAVOR, &queue, LOCAL_QUEUE, class, &pods, &other].concat());
    wait(&mut simulation, 60);
    let own = simulation.objects(Kind::Workload).find(|(of, _)| *of.name == *"mine");
    let workload = own.unwrap().1.clone();
    let account = simulation.engine().account(Some(Kind::Workload), "a", "mine", 5).unwrap();
    let explained = reported(workload, &account);
    assert_eq!(explained.state, State::Waiting, "{}", explained.text());
    let said = finding(&explained, Code::PodGroupIncomplete);
    assert!(said.ends_with("it is queued again when they have been replaced"), "{said}");
    carried_out(&explained, "create the missing pods of the group again, unless their controller does");
    wait(&mut simulation, 120);
    assert!(!runs(&simulation), "the other has ended, and nothing made the pods again");
    for manifest in &read(&["mine-2", "mine-3"].map(pod).concat()).objects {
        simulation.apply(manifest).unwrap();
    }
    wait(&mut simulation, 60);
    assert!(runs(&simulation), "{}", explained.text());
}

/// A queue whose only flavor has a topology and takes nodes that are asked for.
const PROVISIONED: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata: {name: hosts}
spec: {levels: [{nodeLabel: kubernetes.io/hostname}]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
spec: {topologyName: hosts, nodeLabels: {pool: dws}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: nodes}
spec:
  controllerName: kueue.x-k8s.io/provisioning-request
  parameters: {apiGroup: kueue.x-k8s.io, kind: ProvisioningRequestConfig, name: dws}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ProvisioningRequestConfig
metadata: {name: dws}
spec: {provisioningClassName: queued-provisioning.gke.io}
---
apiVersion: v1
kind: Node
metadata: {name: n0, labels: {pool: dws, kubernetes.io/hostname: n0}}
status: {allocatable: {cpu: 8, pods: 10}, conditions: [{type: Ready, status: \"True\"}]}
---
";

#[test]
pub fn what_the_provider_says_is_reported_and_that_nodes_are_chosen_only_then() {
    let queue = CLUSTER_QUEUE.replace(
        "namespaceSelector: {}",
        "namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: nodes}]}",
    );
    let play = scenario(&json!({"provisioning": {"delay": "60s", "play": "QuotaExceeded,Provisioned"}}));
    let job = JOB.replace(
        "template:\n    spec:",
        "template:\n    metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: kubernetes.io/hostname}}\n    spec:",
    );
    let world = [PROVISIONED, &queue, LOCAL_QUEUE, &job, &play].concat();
    let (explained, mut simulation) = played(&world, &options(), 90);
    assert_eq!(explained.state, State::Checking, "{}", explained.text());
    let said = finding(&explained, Code::CheckPending);
    assert!(said.contains("the admission check nodes is Pending: "), "{said}");
    assert!(
        said.contains("ProvisioningRequest job-mine-") && said.contains("Quota 'NVIDIA_P4_GPUS' exceeded"),
        "{said}"
    );
    assert!(!explained.checks[0].provider.is_empty(), "{:?}", explained.checks);
    let said = finding(&explained, Code::NodesNotChosen);
    assert_eq!(said, "nodes are chosen once the checks are ready, for pod set main");
    carried_out(
        &explained,
        "wait for the controller kueue.x-k8s.io/provisioning-request to set the check nodes to Ready",
    );
    assert!(!runs(&simulation));
    wait(&mut simulation, 300);
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
fn work_on_failing_nodes_says_why_it_was_not_moved() {
    let simulation = cluster(&world());
    let (reference, workload) = simulation.objects(Kind::Workload).next().unwrap();
    let mut workload = workload.clone();
    workload["status"]["unhealthyNodes"] = json!([{"name": "n0"}]);
    let mut account = simulation.engine().account(Some(Kind::Workload), "a", &reference.name, 5).unwrap();
    let text = "no healthy nodes are free for it".to_owned();
    account.not_moved = Some(WhyNotMoved { text, barred: None, no_room: true });
    let explained = reported(workload, &account);
    let said = finding(&explained, Code::NodesLost);
    assert_eq!(said, "it lost 1 node(s)\nit was not moved: no healthy nodes are free for it");
    remedy(&explained, "repair the nodes, or add others");
}

#[test]
pub fn a_job_that_was_put_back_is_tried_again_when_it_is_said() {
    let mut options = options();
    let mut waits = options.configuration.wait_for_pods_ready.clone().unwrap();
    waits.timeout = sluice_api::config::Duration::from_secs(30);
    waits.requeuing_strategy.backoff_base_seconds = 60;
    options.configuration.wait_for_pods_ready = Some(waits);
    let slow = scenario(&json!({"podStartup": "600s"}));
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, JOB, &slow].concat();
    let (explained, mut simulation) = played(&world, &options, 50);
    let said = finding(&explained, Code::BackingOff);
    assert!(said.ends_with("it was requeued 1 time(s)"), "{said}");
    carried_out(&explained, "wait until ");
    assert!(!runs(&simulation), "{}", explained.text());
    wait(&mut simulation, 60);
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
pub fn a_job_of_a_namespace_that_is_not_managed_is_queued_when_the_namespace_gets_its_label() {
    let mut options = options();
    options.configuration.managed_jobs_namespace_selector.match_labels =
        Some([("team".to_owned(), "ml".to_owned())].into());
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n";
    let world = [namespace, FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, JOB].concat();
    let (explained, mut simulation) = played(&world, &options, 20);
    let said = finding(&explained, Code::NamespaceNotManaged);
    assert!(said.contains("managedJobsNamespaceSelector asks for") && said.contains("team"), "{said}");
    assert!(!runs(&simulation), "{}", explained.text());
    let label = json!({"metadata": {"labels": {"team": "ml"}}});
    let labelled = Act::Change("the labels of the namespace", ("Namespace", "", "a"), label);
    act(&mut simulation, &explained, &labelled);
    assert!(runs(&simulation), "{}", explained.text());
}

pub const CHECK: &str = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: budget}
spec: {controllerName: example.com/budget}
---
";

/// A Workload that waits for a check, whose controller takes its time.
pub fn checked() -> String {
    let queue = CLUSTER_QUEUE.replace(
        "namespaceSelector: {}",
        "namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: budget}]}",
    );
    let slow = scenario(&json!({"checkDelay": "300s"}));
    [CHECK, FLAVOR, &queue, LOCAL_QUEUE, JOB, &slow].concat()
}

/// The check as its controller sets it.
fn set_check(simulation: &mut Simulation, state: &str, more: &Value) {
    let name = simulation.objects(Kind::Workload).next().unwrap().0.name.to_string();
    let mut check = json!({
        "name": "budget", "state": state, "message": "the office says no", "lastTransitionTime": "2026-01-05T00:00:20Z",
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        check[key] = value.clone();
    }
    let status = json!({"status": {"admissionChecks": [check]}});
    simulation.patch("Workload", Some("a"), &name, &status).unwrap();
}

/// What is so of the Workload now, as a manager is asked.
fn explained_now(simulation: &Simulation) -> Explained {
    let (reference, workload) = simulation.objects(Kind::Workload).next().unwrap();
    let account = simulation.engine().account(Some(Kind::Workload), "a", &reference.name, 5).unwrap();
    reported(workload.clone(), &account)
}

#[test]
pub fn a_check_that_wants_a_retry_says_what_follows_and_when() {
    let (_, mut simulation) = played(&checked(), &options(), 20);
    set_check(&mut simulation, "Retry", &json!({"requeueAfterSeconds": 600, "retryCount": 1}));
    let explained = explained_now(&simulation);
    assert_eq!(explained.state, State::Checking, "{}", explained.text());
    let said = finding(&explained, Code::CheckRetry);
    assert_eq!(
        said,
        "the admission check budget asks for another attempt (Retry): the office says no\nit asked for 1 retries so far\n\
         it asks for a retry after 600 s\n\
         it gives its quota back once its pods are gone, and is queued again 600 s after the check said so"
    );
    carried_out(&explained, "wait: it gives its quota back once its pods are gone");
    assert!(!explained.text().contains("to set the check budget to Ready"), "{}", explained.text());
    wait(&mut simulation, 10);
    let explained = explained_now(&simulation);
    assert_eq!(explained.state, State::Waiting, "{}", explained.text());
    let said = finding(&explained, Code::EvictedBefore);
    assert!(said.contains("the office says no"), "{said}");
    assert!(
        finding(&explained, Code::BackingOff).contains("it is retried at 2026-01-05T00:10:2"),
        "{}",
        explained.text()
    );
    assert!(!runs(&simulation));
    // Its check begins again with its next quota.
    wait(&mut simulation, 600 + 320);
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
pub fn a_check_that_rejects_says_that_it_is_deactivated_and_it_starts_when_it_is_activated() {
    let (_, mut simulation) = played(&checked(), &options(), 20);
    set_check(&mut simulation, "Rejected", &json!({}));
    let explained = explained_now(&simulation);
    let said = finding(&explained, Code::CheckRejected);
    assert_eq!(
        said,
        "the admission check budget rejects it (Rejected): the office says no\n\
         the manager deactivates it; it is not retried until you activate it"
    );
    carried_out(&explained, "correct what the check budget reports, and activate the Workload then");
    wait(&mut simulation, 10);
    let explained = explained_now(&simulation);
    assert_eq!(explained.state, State::Deactivated, "{}", explained.text());
    let said = finding(&explained, Code::Inactive);
    assert!(said.contains("by the manager") && said.contains("the office says no"), "{said}");
    act(&mut simulation, &explained, &Act::Follow("activate the Workload again"));
    wait(&mut simulation, 320);
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
pub fn a_check_whose_object_is_gone_continues_when_it_is_created_again() {
    let name = json!({"kind": "AdmissionCheck", "name": "budget"});
    let mut free = name.clone();
    free["merge"] = json!({"metadata": {"finalizers": null}});
    // Its finalizer is taken away by force.
    let gone = json!([{"at": "15s", "patch": free}, {"at": "15s", "delete": name}]);
    let gone = scenario(&json!({"events": gone}));
    let (explained, mut simulation) = played(&[checked(), gone].concat(), &options(), 20);
    assert_eq!(explained.state, State::Checking, "{}", explained.text());
    assert_eq!(explained.checks[0].controller, None);
    for manifest in &read(CHECK).objects {
        carried_out(&explained, "create the AdmissionCheck budget again, or take it out of the ClusterQueue");
        simulation.apply(manifest).unwrap();
    }
    wait(&mut simulation, 320);
    assert!(runs(&simulation), "{}", explained.text());
}

/// What the engine may decide in a cycle and decides otherwise in a later one, and that it runs when it has waited.
#[test]
pub fn what_is_tried_again_by_itself_runs_after_a_while() {
    use sluice_core::{Detail, PodSetRefusal, Reason, Refusal, Unadmitted};
    let missing = vec![Refusal::FlavorNotFound { flavor: "default".into() }];
    let pod_sets = vec![PodSetRefusal { name: "main".into(), refusals: missing }];
    for (detail, says) in [
        (Detail::NoLongerFits, "wait: it is tried again in the next cycle"),
        (Detail::DeferredFit, "wait: it is tried again in the next cycle"),
        (
            Detail::Bypassed,
            "wait: it is retried when the missing quota of the equivalent Workload may be free",
        ),
        (Detail::QueueInactive("cq".into()), "wait: something that it depends on has changed since"),
        (Detail::Flavors { pod_sets, pending_preemptions: 0 }, "wait: it is tried again"),
    ] {
        let short = first().replace("sluice.dev/run-seconds: \"3600\"", "sluice.dev/run-seconds: \"60\"");
        let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &short, &later(JOB, "")].concat();
        let (_, mut simulation) = played(&world, &options(), 20);
        let own = simulation.objects(Kind::Workload).find(|(of, _)| of.name.starts_with("job-mine-"));
        let (reference, workload) = own.unwrap();
        let account = simulation.engine().account(Some(Kind::Workload), "a", &reference.name, 5).unwrap();
        let decision =
            Unadmitted { reason: Reason::WaitingForQuota, detail, requests: std::sync::Arc::from([]) };
        let explained = reported(workload.clone(), &Account { decision: Some(decision), ..account });
        finding(&explained, Code::TriedAgain);
        carried_out(&explained, says);
        assert!(!runs(&simulation), "{}", explained.text());
        wait(&mut simulation, 60);
        assert!(runs(&simulation), "{}", explained.text());
    }
}

#[test]
pub fn quota_that_is_in_use_is_reported_and_free_when_its_holder_ends() {
    let short = first().replace("sluice.dev/run-seconds: \"3600\"", "sluice.dev/run-seconds: \"60\"");
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &short, &later(JOB, "")].concat();
    let (explained, mut simulation) = played(&world, &options(), 20);
    let said = finding(&explained, Code::QuotaShort);
    assert_eq!(said, "quota that pod set main needs is in use\ncpu of flavor default: 4 needed, 0 free");
    carried_out(&explained, "starts when a/first finishes");
    assert!(!runs(&simulation));
    wait(&mut simulation, 60);
    assert!(runs(&simulation), "{}", explained.text());
}
