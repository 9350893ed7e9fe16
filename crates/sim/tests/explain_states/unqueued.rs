//! Jobs without a Workload, for reasons that are none of their queue: the answer leads to what mends it.

use super::waiting::{finding, played, wait};
use super::*;

fn asked(world: &str, kind: Kind, name: &str) -> Explained {
    let manifests = read(world);
    Question { kind: Some(kind), ..question(&manifests, name) }.answer().unwrap()
}

/// A JobSet that needs a queue which is stopped, and a Job that it controls.
fn part() -> String {
    let queue = LOCAL_QUEUE.replace("{clusterQueue: cq}", "{clusterQueue: cq, stopPolicy: Hold}");
    let set = "
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: set, namespace: a, uid: set-uid, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  suspend: true
  replicatedJobs:
  - name: workers
    template: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}}
---
";
    let owner = "ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: set, uid: set-uid, controller: true}]";
    // The controller of JobSets names no queue on them.
    let job = JOB
        .replace("  labels: {kueue.x-k8s.io/queue-name: main}\n", "")
        .replace("  annotations: {", &format!("  {owner}\n  annotations: {{"));
    [FLAVOR, CLUSTER_QUEUE, &queue, set, &job].concat()
}

#[test]
pub fn a_question_about_a_part_leads_to_the_whole_and_what_lets_that_start() {
    let world = part();
    let explained = ask(&read(&world), options());
    assert_eq!((explained.state, codes(&explained)), (State::NotQueued, vec![Code::PartOfAnother]));
    let command = remedy(&explained, "ask about the jobset set").command.clone().unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    let ["kubectl", "kueue", "explain", kind, name, "-n", "a"] = words[..] else { unreachable!("{command}") };
    let whole = asked(&world, sluice_sim::resource::explained(kind).unwrap(), name);
    assert_eq!(
        (whole.job.as_str(), codes(&whole)),
        ("a/set", vec![Code::LocalQueueStopped]),
        "{}",
        whole.text()
    );
    let mut simulation = cluster(&world);
    act(&mut simulation, &whole, &Act::Follow("starts now: resume the LocalQueue main"));
    let own = simulation.record().job_named("a/set").unwrap();
    assert!(own.holds.iter().any(|hold| hold.to.is_none() && hold.admitted.is_some()), "{}", whole.text());
}

#[test]
fn a_job_below_one_that_names_no_queue_is_no_part_of_what_is_queued() {
    let world = part().replace("uid: set-uid, labels: {kueue.x-k8s.io/queue-name: main}}", "uid: set-uid}");
    let explained = ask(&read(&world), options());
    let text = explained.text();
    assert_eq!(
        (explained.state, codes(&explained)),
        (State::NotQueued, vec![Code::QueueNameMissing]),
        "{text}"
    );
    assert!(text.contains("it is controlled by the jobset set, which names no queue"), "{text}");
    assert!(text.contains("kubectl label jobset set -n a kueue.x-k8s.io/queue-name=main"), "{text}");
}

/// The answer about a Job that was read, and which the engine says is a part of that.
fn read_as_part(whole: Option<sluice_engine::Whole>) -> Explained {
    let mut manifests = read(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE].concat());
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Tour", "name": "grand", "uid": "u", "controller": true});
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {
        "name": "mine", "namespace": "a", "uid": "j", "ownerReferences": [owner]}, "spec": {"suspend": true}});
    manifests.subject = Some(Subject { job: Some(job), whole, ..Subject::default() });
    ask(&manifests, options())
}

#[test]
fn a_job_below_one_that_others_manage_leads_to_the_workload_of_that() {
    let tour = JobKind::external("Tour.v1.example.com").unwrap();
    let whole = |workload: Option<&str>| sluice_engine::Whole {
        kind: tour,
        name: "grand".into(),
        workload: workload.map(Into::into),
    };
    for (workload, says) in
        [(Some("tour-grand"), "; its Workload is tour-grand"), (None, "it has no Workload yet")]
    {
        let explained = read_as_part(Some(whole(workload)));
        let text = explained.text();
        assert_eq!(codes(&explained), [Code::PartOfAnother], "{text}");
        assert!(text.contains("it runs on the quota of the tour grand"), "{text}");
        assert!(text.contains(says), "{text}");
        let asked = text.contains("kubectl kueue explain workload tour-grand -n a");
        assert_eq!(asked, workload.is_some(), "{text}");
    }
    // Of one that nothing queues it is no part.
    assert_eq!(codes(&read_as_part(None)), [Code::QueueNameMissing]);
}

/// The command of a part names its whole in a word that is understood.
#[test]
fn each_kind_that_has_parts_can_be_asked_about() {
    for kind in sluice_api::job::JobKind::jobs() {
        let word = kind.kind().to_ascii_lowercase();
        assert_eq!(sluice_sim::resource::explained(&word), Some(Kind::Job(kind)), "{word}");
    }
}

const TRAIN_JOB: &str = "
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: mine
  namespace: a
  labels: {kueue.x-k8s.io/queue-name: main}
  annotations: {sluice.dev/run-seconds: \"3600\"}
spec:
  runtimeRef: {name: torch}
  trainer: {numNodes: 2, resourcesPerNode: {requests: {cpu: 1}}}
";

#[test]
pub fn a_job_of_which_no_workload_can_be_made_says_why_and_starts_when_that_is_mended() {
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, TRAIN_JOB].concat();
    let (explained, mut simulation) = played(&world, &options(), 10);
    let said = finding(&explained, Code::WithoutWorkload);
    let missing = "spec.runtimeRef: ClusterTrainingRuntime torch does not exist";
    assert_eq!(said, format!("no Workload can be made of it: {missing}"));
    assert!(!runs(&simulation), "{}", explained.text());
    let runtime = "
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: i}]}}}
";
    act(&mut simulation, &explained, &Act::Apply("correct what is wrong with it", runtime));
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
pub fn a_job_that_waits_for_a_workload_of_a_name_says_the_name_and_starts_when_it_is_made() {
    let label = "kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/prebuilt-workload-name: ready-made}";
    let world = world().replace("kueue.x-k8s.io/queue-name: main}", label);
    let (explained, mut simulation) = played(&world, &options(), 10);
    let said = finding(&explained, Code::WithoutWorkload);
    assert!(
        said.starts_with("it waits for the Workload ready-made, which its kueue.x-k8s.io/prebuilt-"),
        "{said}"
    );
    assert!(!runs(&simulation), "{}", explained.text());
    let made = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: ready-made, namespace: a}
spec:
  queueName: main
  podSets:
  - name: main
    count: 4
    template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
";
    act(&mut simulation, &explained, &Act::Apply("create the Workload ready-made", made));
    let jobs = simulation.objects(Kind::Job(sluice_api::job::JobKind::JOB));
    let suspended: Vec<_> = jobs.map(|(_, job)| job["spec"]["suspend"].clone()).collect();
    assert_eq!(suspended, [json!(false)], "{}", explained.text());
}

#[test]
pub fn what_was_made_without_pods_is_queued_when_it_asks_for_some() {
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &stateful_set(0)].concat();
    let (explained, mut simulation) = played(&world, &options(), 10);
    assert_eq!(codes(&explained), [Code::OnHold], "{}", explained.text());
    remedy(&explained, "scale the job up again");
    simulation.patch("StatefulSet", Some("a"), "mine", &json!({"spec": {"replicas": 2}})).unwrap();
    wait(&mut simulation, 60);
    assert!(runs(&simulation), "{}", explained.text());
}
