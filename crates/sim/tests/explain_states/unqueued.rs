//! Jobs without a Workload for reasons outside their queue: the answer's advice resolves them.

use super::waiting::{finding, played, wait};
use super::*;
use sluice_api::config::Configuration;
use sluice_api::gates::Gate;

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
    let command = carried_out(&explained, "ask about the jobset set").command.clone().unwrap();
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
    assert!(holds(&simulation, "a/set"), "{}", whole.text());
}

#[test]
pub fn a_job_below_one_that_names_no_queue_is_no_part_of_what_is_queued() {
    let world = part().replace("uid: set-uid, labels: {kueue.x-k8s.io/queue-name: main}}", "uid: set-uid}");
    let explained = ask(&read(&world), options());
    let text = explained.text();
    assert_eq!(
        (explained.state, codes(&explained)),
        (State::NotQueued, vec![Code::QueueNameMissing]),
        "{text}"
    );
    assert!(text.contains("its controller, the jobset set, names no queue"), "{text}");
    assert!(text.contains("kubectl label jobset set -n a kueue.x-k8s.io/queue-name=main"), "{text}");
    let open = world.replace("{clusterQueue: cq, stopPolicy: Hold}", "{clusterQueue: cq}");
    let mut simulation = cluster(&open);
    assert!(!holds(&simulation, "a/set"), "{text}");
    act(&mut simulation, &explained, &Act::Follow("name a LocalQueue in the label"));
    assert!(holds(&simulation, "a/set"), "{text}");
}

/// Whether a job runs.
fn holds(simulation: &Simulation, job: &str) -> bool {
    let own = simulation.record().job_named(job);
    own.is_some_and(|job| job.holds.iter().any(|hold| hold.to.is_none() && hold.admitted.is_some()))
}

#[test]
pub fn a_pod_without_a_queue_runs_when_it_is_created_again_with_one() {
    let pod = |name: &str, labels: &str| {
        format!(
            "
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: a, labels: {{{labels}}}, annotations: {{sluice.dev/run-seconds: \"3600\"}}}}
spec:
  restartPolicy: Never
  containers: [{{name: c, image: i, resources: {{requests: {{cpu: 1}}}}}}]
---
"
        )
    };
    let (explained, mut simulation) =
        played(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &pod("mine", "")].concat(), &options(), 10);
    assert_eq!(codes(&explained), [Code::QueueNameMissing], "{}", explained.text());
    assert!(!holds(&simulation, "a/mine"), "{}", explained.text());
    let again = carried_out(&explained, "create it again with the label kueue.x-k8s.io/queue-name=main");
    assert_eq!(again.command, None, "{again:?}");
    for manifest in &read(&pod("again", "kueue.x-k8s.io/queue-name: main")).objects {
        simulation.apply(manifest).unwrap();
    }
    wait(&mut simulation, 60);
    assert!(holds(&simulation, "a/again"), "{}", explained.text());
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

#[test]
pub fn a_job_below_one_that_others_manage_runs_when_the_workload_of_that_is_let_in() {
    let tour = JobKind::external("Tour.v1.example.com").unwrap();
    let part = |workload: Option<&str>| {
        let whole =
            sluice_engine::Whole { kind: tour, name: "grand".into(), workload: workload.map(Into::into) };
        read_as_part(Some(whole))
    };
    // Its controller makes the Workload in time.
    carried_out(&part(None), "wait until the controller of the tour grand has made its Workload");
    let made = "
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: tour-grand, namespace: a}
spec:
  queueName: main
  podSets:
  - name: main
    count: 4
    template: {spec: {restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}
---
";
    let queue = LOCAL_QUEUE.replace("{clusterQueue: cq}", "{clusterQueue: cq, stopPolicy: Hold}");
    let world = [FLAVOR, CLUSTER_QUEUE, &queue, made].concat();
    let asked_for = part(Some("tour-grand"));
    let command = carried_out(&asked_for, "ask about the Workload tour-grand").command.clone().unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    let ["kubectl", "kueue", "explain", kind, name, "-n", "a"] = words[..] else { unreachable!("{command}") };
    let whole = asked(&world, sluice_sim::resource::explained(kind).unwrap(), name);
    assert_eq!(codes(&whole), [Code::LocalQueueStopped], "{}", whole.text());
    let mut simulation = cluster(&world);
    let admitted = |simulation: &Simulation| {
        let of = ObjectRef::namespaced(Kind::Workload, "a", "tour-grand");
        let conditions = simulation.object(&of).unwrap()["status"]["conditions"].clone();
        conditions.as_array().into_iter().flatten().any(|c| c["type"] == "Admitted" && c["status"] == "True")
    };
    assert!(!admitted(&simulation), "{}", whole.text());
    act(&mut simulation, &whole, &Act::Follow("resume the LocalQueue main"));
    assert!(admitted(&simulation), "{}", whole.text());
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

const RUNTIME: &str = "
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

#[test]
pub fn a_job_of_which_no_workload_can_be_made_says_why_and_starts_when_that_is_mended() {
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, TRAIN_JOB].concat();
    let (explained, mut simulation) = played(&world, &options(), 10);
    let said = finding(&explained, Code::WithoutWorkload);
    let missing = "spec.runtimeRef: ClusterTrainingRuntime torch does not exist";
    assert_eq!(said, format!("no Workload can be made of it: {missing}"));
    assert!(!runs(&simulation), "{}", explained.text());
    act(
        &mut simulation,
        &explained,
        &Act::Apply("correct the job, or the object that it refers to", RUNTIME),
    );
    assert!(runs(&simulation), "{}", explained.text());
}

#[test]
pub fn a_job_that_waits_for_a_workload_of_a_name_says_the_name_and_starts_when_it_is_made() {
    let label = "kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/prebuilt-workload-name: ready-made}";
    let world = world().replace("kueue.x-k8s.io/queue-name: main}", label);
    let (explained, mut simulation) = played(&world, &options(), 10);
    let said = finding(&explained, Code::WithoutWorkload);
    assert!(
        said.starts_with("it waits for the Workload ready-made, named by its label kueue.x-k8s.io/prebuilt-"),
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

/// With the gate `WorkloadIdentifierAnnotations` off.
fn labels_alone() -> Options {
    let mut options = options();
    let gates = &mut options.configuration.gates;
    *gates = gates.with(Gate::WorkloadIdentifierAnnotations, false);
    options
}

#[test]
fn an_annotation_names_a_workload_only_while_its_gate_is_on() {
    let annotated =
        world().replace("annotations: {", "annotations: {kueue.x-k8s.io/prebuilt-workload-name: long, ");
    let both = annotated
        .replace("queue-name: main}", "queue-name: main, kueue.x-k8s.io/prebuilt-workload-name: short}");
    for (world, options, named) in [
        (&annotated, options(), "long, named by its annotation"),
        (&both, options(), "long, named by its annotation"),
        (&both, labels_alone(), "short, named by its label"),
    ] {
        let (explained, simulation) = played(world, &options, 10);
        let said = finding(&explained, Code::WithoutWorkload);
        let starts =
            format!("it waits for the Workload {named} kueue.x-k8s.io/prebuilt-workload-name: no Workload");
        assert!(said.starts_with(&starts), "{said}");
        assert!(!runs(&simulation), "{said}");
    }
    let (explained, simulation) = played(&annotated, &labels_alone(), 10);
    assert!(runs(&simulation), "{}", explained.text());
    // Where no Workload is made of it all the same, its events say why.
    let mut manifests = read(&annotated);
    let job = manifests.objects.pop().unwrap();
    assert_eq!(job.kind, Kind::Job(JobKind::JOB));
    manifests.subject = Some(Subject { job: Some(job.object), ..Subject::default() });
    let explained = ask(&manifests, labels_alone());
    assert_eq!(codes(&explained), [Code::WithoutWorkload], "{}", explained.text());
    remedy(&explained, "read its events");
}

#[test]
fn the_group_of_a_pod_is_that_of_its_annotation_only_while_the_gate_is_on() {
    let pod = "
apiVersion: v1
kind: Pod
metadata:
  name: mine
  namespace: a
  labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/pod-group-name: short}
  annotations: {kueue.x-k8s.io/pod-group-name: long, kueue.x-k8s.io/pod-group-total-count: \"2\"}
spec:
  restartPolicy: Never
  containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]
";
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, pod].concat();
    for (options, group) in [(options(), "long"), (labels_alone(), "short")] {
        let (explained, _) = played(&world, &options, 10);
        let said = finding(&explained, Code::PodGroupIncomplete);
        assert_eq!(said, format!("the pod group {group} has 1 of its 2 pods"));
    }
}

#[test]
pub fn what_was_made_without_pods_is_queued_when_it_asks_for_some() {
    let world = [FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, &stateful_set(0)].concat();
    let (explained, mut simulation) = played(&world, &options(), 10);
    assert_eq!(codes(&explained), [Code::OnHold], "{}", explained.text());
    carried_out(&explained, "scale the job up again");
    simulation.patch("StatefulSet", Some("a"), "mine", &json!({"spec": {"replicas": 2}})).unwrap();
    wait(&mut simulation, 60);
    assert!(runs(&simulation), "{}", explained.text());
}

/// Jobs that name a PriorityClass for their pods elsewhere than in a template, each with the objects that it needs.
fn with_class() -> Vec<Value> {
    let template = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}});
    let policy = json!({"suspend": true, "schedulingPolicy": {"priorityClass": "gone"}});
    let pods = json!({"replicas": 1, "template": template});
    vec![
        json!({"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob",
            "spec": {"runPolicy": policy, "pytorchReplicaSpecs": {"Master": pods}}}),
        json!({"apiVersion": "kubeflow.org/v2beta1", "kind": "MPIJob",
            "spec": {"runPolicy": policy, "mpiReplicaSpecs": {"Launcher": pods, "Worker": pods}}}),
        json!({"apiVersion": "sparkoperator.k8s.io/v1beta2", "kind": "SparkApplication", "spec": {
            "suspend": true, "type": "Python", "mode": "cluster", "sparkVersion": "4.0.0", "image": "spark",
            "mainApplicationFile": "local:///main.py",
            "driver": {"coreRequest": "1", "memory": "1g", "priorityClassName": "gone"},
            "executor": {"instances": 1, "coreRequest": "1", "memory": "1g"},
        }}),
        json!({"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
            "spec": {"suspend": true, "runtimeRef": {"name": "torch"}}}),
        json!({"apiVersion": "class.sim.example.com/v1", "kind": "Errand",
            "spec": {"suspend": true, "image": "i", "priority": "gone"}}),
    ]
}

/// What a declaration makes of an object may have a class, too.
fn errand() -> Configuration {
    let template = "{'spec': {'priorityClassName': self.spec.priority, 'containers': [{'name': 'c', 'image': self.spec.image, \
                    'resources': {'requests': {'cpu': '1'}}}]}}";
    let configuration = json!({
        "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
        "integrations": {"declared": [{
            "group": "class.sim.example.com", "version": "v1", "kind": "Errand",
            "suspend": {"path": "spec.suspend"}, "podSets": [{"name": "main", "templateExpression": template,
                "inject": {"nodeSelector": "spec.nodeSelector", "tolerations": "spec.tolerations"}}],
            "active": "self.status.phase == 'Running'",
            "finished": "self.status.phase in ['Done', 'Failed']", "success": "self.status.phase == 'Done'",
            "states": {"running": {"phase": "Running"}, "succeeded": {"phase": "Done"}, "failed": {"phase": "Failed"}},
        }]},
    });
    let (declared, _) = Configuration::parse(&configuration.to_string()).unwrap();
    sluice_jobs::declare(&declared).unwrap();
    let mut all = Options::default_configuration();
    all.integrations.declared = declared.integrations.declared;
    all.integrations.frameworks.push("class.sim.example.com/errand".to_owned());
    all
}

#[test]
pub fn a_priority_class_that_is_missing_is_reported_wherever_the_kind_names_it() {
    let options = Options::new(errand());
    let memory = "[{name: cpu, nominalQuota: 10}, {name: memory, nominalQuota: 10Gi}]";
    let queue =
        CLUSTER_QUEUE.replace("[cpu]", "[cpu, memory]").replace("[{name: cpu, nominalQuota: 10}]", memory);
    let runtime = RUNTIME.replace("{spec: {containers", "{spec: {priorityClassName: gone, containers");
    for mut job in with_class() {
        job["metadata"] = json!({"name": "mine", "namespace": "a",
            "labels": {"kueue.x-k8s.io/queue-name": "main"}, "annotations": {"sluice.dev/run-seconds": "3600"}});
        let world = [FLAVOR, &queue, LOCAL_QUEUE, &format!("{job}\n---"), &runtime].concat();
        let (explained, mut simulation) = played(&world, &options, 10);
        assert_eq!(explained.state, State::NotQueued, "{}", explained.text());
        assert_eq!(codes(&explained), [Code::PriorityClassMissing], "{job}: {}", explained.text());
        let said = finding(&explained, Code::PriorityClassMissing);
        assert_eq!(said, "the PriorityClass gone, which it names, does not exist");
        assert!(!runs(&simulation), "{}", explained.text());
        let class =
            "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: gone}\nvalue: 9\n";
        act(&mut simulation, &explained, &Act::Apply("create the PriorityClass gone", class));
        assert!(runs(&simulation), "{job}: it does not run after what is advised");
    }
}
