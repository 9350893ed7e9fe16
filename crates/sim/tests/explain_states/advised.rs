//! Each piece of advice is carried out by a test, here or on a control plane, or it is said why not.

use super::covered::stories;
use super::objects::{condition, of_a_cluster, workload};
use super::waiting::wait;
use super::*;

/// Advice that no virtual cluster can carry out.
enum Elsewhere {
    /// A function of the tests on a control plane, below `tests/tests/operator/explain`, carries it out, which it finds by these words.
    OnAControlPlane(&'static str, &'static str),
    /// The same in `kinds.rs`, whose tests have declared kinds.
    ByKind(&'static str, &'static str),
    /// It cannot be carried out, or nothing comes of it for this job.
    Never(&'static str),
}

use Elsewhere::{ByKind, Never, OnAControlPlane};

const ROOM: &str = "pods_without_room_run_after_a_preemption_or_on_a_node_that_is_added";
const LABELS: &str = "pods_whose_nodes_lack_labels_or_are_cordoned_run_when_these_are_mended";
const CONTAINERS: &str = "containers_run_when_what_is_advised_is_done";

fn elsewhere(advice: Advice) -> Option<Elsewhere> {
    Some(match advice {
        Advice::AddNodes => OnAControlPlane(ROOM, "add nodes: the quota of the flavor promises more"),
        Advice::StopUntilRoom => OnAControlPlane(ROOM, "or stop the Workload, lower the quota"),
        Advice::AddTaintToFlavor => OnAControlPlane(
            "pods_that_do_not_tolerate_their_nodes_run_when_the_flavor_knows_the_taint",
            "add the taint to nodeTaints and a toleration to tolerations of the ResourceFlavor",
        ),
        Advice::LabelNodes => OnAControlPlane(LABELS, "give nodes the labels that the flavor (nodeLabels)"),
        Advice::Uncordon => OnAControlPlane(LABELS, "make the nodes that are cordoned schedulable again"),
        Advice::BindVolumes => OnAControlPlane(
            "pods_without_their_volume_run_when_it_is_made",
            "create the PersistentVolumeClaims that the pods name",
        ),
        Advice::SeeGates => OnAControlPlane(
            "pods_with_a_gate_of_another_program_run_when_it_takes_the_gate_away",
            "see which scheduling gates the pods have",
        ),
        Advice::SeeScheduler => OnAControlPlane(
            "pods_of_a_scheduler_that_does_not_run_run_when_it_does",
            "see whether the scheduler runs that the pods name in spec.schedulerName",
        ),
        Advice::FollowScheduler => OnAControlPlane(
            "pods_that_want_a_port_that_others_have_run_when_it_is_free",
            "change the nodes or the pods as the scheduler's message says",
        ),
        Advice::CorrectImage => OnAControlPlane(CONTAINERS, "correct the image of the container"),
        Advice::CreateConfig => {
            OnAControlPlane(CONTAINERS, "create the ConfigMap or Secret that the container names")
        }
        Advice::ReadLogs => {
            OnAControlPlane(CONTAINERS, "find out why the container ends; it keeps being restarted")
        }
        Advice::AwaitNode => OnAControlPlane(CONTAINERS, "wait: its node prepares it"),
        Advice::SeeKubelet => OnAControlPlane(
            CONTAINERS,
            "let an administrator see whether its node is ready: its kubelet has not taken the pod yet",
        ),
        Advice::FollowContainer => {
            OnAControlPlane(CONTAINERS, "change what the message of the container names")
        }
        Advice::SeeJobController => OnAControlPlane(
            "a_job_whose_pods_are_refused_runs_when_the_quota_of_its_namespace_takes_them",
            "find out why the controller of the job does not make its pods",
        ),
        Advice::ReadEvents => {
            OnAControlPlane("jobs_that_wait_for_a_workload_of_a_name_are_led_to_one", "read its events")
        }
        Advice::CreateTopology => {
            Never("a queue whose flavor names a Topology that is missing is not active: CompleteClusterQueue")
        }
        Advice::UseFlavorWithoutTopology => ByKind(
            "a_job_whose_pods_no_gate_holds_back_runs_when_its_flavor_has_no_topology",
            "give the queue a flavor without a topology",
        ),
        Advice::AskAgain => Never("it is about the answer, not about the job"),
        Advice::FollowManager => Never("the answer knows too little to advise more"),
        Advice::EndPreemptionLoop => Never("tests of the core end it: see PreemptionHeldBack"),
        _ => return None,
    })
}

/// What is said of each piece of advice by jobs that are admitted and do not run, and by jobs that only their events explain.
fn said() -> Vec<(Advice, String)> {
    let admitted =
        [condition("QuotaReserved", "True", "x", ""), condition("Admitted", "True", "Admitted", "")];
    let admitted = workload(
        &json!(admitted),
        &json!({"status": {"admission": {"podSetAssignments": [{"name": "main", "count": 99}]}}}),
    );
    let waits = [
        ("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu."),
        ("Unschedulable", "0/1 nodes are available: 1 node(s) had untolerated taint {a: b}."),
        ("Unschedulable", "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."),
        ("Unschedulable", "0/1 nodes are available: 1 node(s) were unschedulable."),
        ("Unschedulable", "0/1 nodes are available: persistentvolumeclaim \"data\" not found."),
        (
            "Unschedulable",
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
        ),
        ("SchedulingGated", ""),
        ("", ""),
    ];
    let pod = |name: String, spec: Value, status: Value| json!({"metadata": {"name": name, "ownerReferences": [{"uid": "j"}]}, "spec": spec, "status": status});
    let pending = waits.iter().enumerate().map(|(at, (reason, message))| {
        let scheduled = condition("PodScheduled", "False", reason, message);
        pod(format!("p{at}"), json!({}), json!({"conditions": [scheduled]}))
    });
    let reasons =
        ["ErrImagePull", "CreateContainerConfigError", "CrashLoopBackOff", "ContainerCreating", "Other"];
    let waiting = reasons.iter().map(|reason| {
        let statuses = json!([{"name": "c", "state": {"waiting": {"reason": reason}}}]);
        pod(
            format!("c-{reason}"),
            json!({"nodeName": "n0"}),
            json!({"phase": "Pending", "containerStatuses": statuses}),
        )
    });
    let untaken = pod("c".to_owned(), json!({"nodeName": "n0"}), json!({"phase": "Pending"}));
    let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "mine", "namespace": "a", "uid": "j"}});
    let mut answers = Vec::new();
    // Each pod for itself: an answer names only the first few.
    for pod in pending.chain(waiting).chain([untaken]) {
        let subject =
            Subject { job: Some(job.clone()), pods: vec![pod], all_pods: true, ..Subject::default() };
        answers.push(of_a_cluster(admitted.clone(), subject));
    }
    let mut manifests = read(&[FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE].concat());
    let mut queued = job;
    queued["metadata"]["labels"] = json!({"kueue.x-k8s.io/queue-name": "main"});
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    queued["spec"] = json!({"suspend": true, "template": template});
    manifests.subject = Some(Subject { job: Some(queued), ..Subject::default() });
    answers.push(ask(&manifests, options()));
    let all = answers.into_iter().flat_map(|answer| answer.remedies);
    all.flat_map(|remedy| remedy.advice.into_iter().map(move |advice| (advice, remedy.text.clone())))
        .collect()
}

/// A function of a source file, up to its closing brace.
fn function<'a>(files: &'a [String], name: &str) -> Option<&'a str> {
    let begins = format!("fn {name}(");
    let (file, at) = files.iter().find_map(|file| Some((file, file.find(&begins)?)))?;
    let rest = &file[at..];
    Some(rest.find("\n}\n").map_or(rest, |end| &rest[..end]))
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test reads its files")]
fn each_piece_of_advice_is_carried_out() {
    DONE.take();
    for story in stories() {
        story();
    }
    let done = DONE.take();
    let said = said();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tests/operator/explain");
    let files = ["pods.rs", "states.rs", "unqueued.rs", "wrong_queues.rs"]
        .map(|name| std::fs::read_to_string(format!("{folder}/{name}")).unwrap());
    let kinds = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kinds.rs");
    let kinds = [std::fs::read_to_string(kinds).unwrap()];
    for advice in Advice::ALL {
        match elsewhere(*advice) {
            None => assert!(done.contains(advice), "nothing carries out {advice:?}"),
            Some(Never(why)) => {
                assert!(!why.is_empty() && !done.contains(advice), "{advice:?} is carried out after all");
            }
            Some(ByKind(name, words)) => {
                let function = function(&kinds, name).unwrap_or_else(|| unreachable!("no function {name}"));
                assert!(function.contains(words), "{advice:?}: {name} looks for no advice {words:?}");
            }
            Some(OnAControlPlane(name, words)) => {
                let function = function(&files, name).unwrap_or_else(|| unreachable!("no function {name}"));
                assert!(function.contains(words), "{advice:?}: {name} looks for no advice {words:?}");
                let is_it = |(of, text): &(Advice, String)| of == advice && text.contains(words);
                assert!(said.iter().any(is_it), "{advice:?} does not say {words:?}: {said:?}");
            }
        }
    }
}

#[test]
pub fn a_job_that_was_admitted_a_moment_ago_has_its_pods_when_it_has_been_started() {
    let mut simulation = cluster(&world());
    // As it was read before the manager started it.
    let (mut subject, _) = asked_about(&simulation, "mine");
    subject.job.as_mut().unwrap()["spec"]["suspend"] = json!(true);
    subject.all_pods = true;
    for each in subject.workload.as_mut().unwrap()["status"]["conditions"].as_array_mut().unwrap() {
        if each["type"] == "PodsReady" {
            each["status"] = json!("False");
        }
    }
    let mut manifests = as_read(&simulation);
    manifests.subject = Some(subject);
    let explained = ask(&manifests, options());
    assert!(codes(&explained).contains(&Code::PodsMissing), "{}", explained.text());
    carried_out(&explained, "wait: its pods are made once it is started");
    wait(&mut simulation, 30);
    let (subject, _) = asked_about(&simulation, "mine");
    let mut manifests = as_read(&simulation);
    manifests.subject = Some(subject);
    let explained = ask(&manifests, options());
    assert!(runs(&simulation) && codes(&explained).is_empty(), "{}", explained.text());
}
