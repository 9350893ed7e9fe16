//! Pods of an admitted job that are not scheduled, and the messages of the scheduler.

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::ObjectRef;

use super::MOST_LISTED;
use super::advice::Advice;
use super::finding::{Code, Finding, Help, PendingPod, condition};
use super::subject::Subject;
use crate::json::text;

/// Labels with the name of a pod's job, for pods whose labels no kind of jobs declares.
const OTHER_LABELS: [&str; 2] = ["job-name", sluice_api::labels::POD_GROUP_NAME];

/// Labels by which pods name their job if its controller creates objects in between.
fn owner_labels() -> impl Iterator<Item = &'static str> {
    let of_kind = |kind: &JobKind| [kind.label_of_pods(), kind.integration().part_label];
    JobKind::all().iter().flat_map(of_kind).flatten().chain(OTHER_LABELS)
}

/// Whether a pod belongs to a Workload or its job.
pub(crate) fn is_own(pod: &Value, workload: &Value, job: Option<&Value>) -> bool {
    let metadata = &pod["metadata"];
    let name = text(&workload["metadata"]["name"]);
    if !name.is_empty() && text(&metadata["annotations"][sluice_api::labels::WORKLOAD]) == name {
        return true;
    }
    let mut owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let mut above = workload["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let is = |uid: &Value| !text(uid).is_empty();
    let job_uid = job.map(|job| &job["metadata"]["uid"]).filter(|uid| is(uid));
    if owners
        .any(|o| is(&o["uid"]) && (Some(&o["uid"]) == job_uid || above.clone().any(|a| a["uid"] == o["uid"])))
    {
        return true;
    }
    let itself = above.any(|a| is(&a["uid"]) && a["uid"] == metadata["uid"]);
    let Some(job) = job else { return itself };
    let name = text(&job["metadata"]["name"]);
    itself || owner_labels().any(|label| !name.is_empty() && text(&metadata["labels"][label]) == name)
}

/// The first few own pods that are not scheduled, and how many there are.
pub(super) fn pending(subject: &Subject, workload: &Value) -> (Vec<PendingPod>, usize) {
    let job = subject.job.as_ref();
    let waits = |pod: &&Value| text(&pod["spec"]["nodeName"]).is_empty() && is_own(pod, workload, job);
    let all: Vec<&Value> = subject.pods.iter().filter(waits).collect();
    let show = |pod: &&Value| {
        let scheduled = condition(pod, "PodScheduled").cloned().unwrap_or_default();
        PendingPod {
            name: text(&pod["metadata"]["name"]).to_owned(),
            reason: text(&scheduled["reason"]).to_owned(),
            message: text(&scheduled["message"]).to_owned(),
        }
    };
    (all.iter().take(MOST_LISTED).map(show).collect(), all.len())
}

/// The finding about them. `workload` is the admitted one.
pub(super) fn finding(
    workload: &ObjectRef,
    pods: &[PendingPod],
    count: usize,
    more: bool,
) -> Option<Finding> {
    if count == 0 {
        return None;
    }
    let at_least = if more { "at least " } else { "" };
    let mut finding = Finding::new(
        Code::PodsPending,
        format!("the job is admitted, and {at_least}{count} of its pods are not scheduled"),
    );
    for pod in pods {
        let said = match (pod.reason.as_str(), pod.message.as_str()) {
            ("", "") => "the scheduler has not reported yet".to_owned(),
            (reason, "") => reason.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        finding = finding.detail(format!("{}: {said}", pod.name));
    }
    for help in helps(workload, pods) {
        finding = finding.with(help);
    }
    Some(finding)
}

/// Parts of the reasons of the scheduler that some advice is about, by what it is about.
const ROOM: &[&str] = &["Insufficient ", "Too many pods", "no nodes available"];
const TAINTS: &[&str] = &["untolerated taint"];
const LABELS: &[&str] = &["node affinity/selector"];
const CORDONS: &[&str] = &["were unschedulable"];
const VOLUMES: &[&str] = &["PersistentVolumeClaim", "persistentvolumeclaim"];

/// Whether the scheduler has a reason that no other advice is about: `0/3 nodes are available: 1 …, 2 …. preemption: …`.
fn has_another_reason(message: &str) -> bool {
    let known = [ROOM, TAINTS, LABELS, CORDONS, VOLUMES].concat();
    let reasons = message.split_once("nodes are available: ").map_or("", |(_, reasons)| reasons);
    let reasons = reasons.split(". ").next().unwrap_or_default().split(", ");
    reasons.filter(|reason| !reason.is_empty()).any(|reason| !known.iter().any(|part| reason.contains(part)))
}

/// What lets these pods get nodes, by the messages of the scheduler.
fn helps(workload: &ObjectRef, pods: &[PendingPod]) -> Vec<Help> {
    let ObjectRef { namespace, name, .. } = workload;
    let says = |parts: &[&str]| pods.iter().any(|pod| parts.iter().any(|part| pod.message.contains(part)));
    let stop = format!("kubectl kueue stop workload {name} -n {namespace}");
    let resume = format!("kubectl kueue resume workload {name} -n {namespace}");
    let mut helps = Vec::new();
    if says(ROOM) {
        helps.push(Help::words(
            Advice::AddNodes,
            "add nodes: the quota of the flavor promises more than the nodes have free, or they have it in pieces that are \
             too small",
        ));
        let text = "or stop the Workload, lower the quota of the flavor, and resume the Workload when there is room for it";
        helps.push(Help::command(Advice::StopUntilRoom, text, stop.clone()));
    }
    if says(TAINTS) {
        let text = "add the taint to nodeTaints and a toleration to tolerations of the ResourceFlavor, and let the Workload \
                    be admitted again, so that its pods get the toleration";
        // A Workload that is resumed before the manager has evicted it goes on as before.
        let evicted = format!(
            "kubectl wait workloads.kueue.x-k8s.io/{name} -n {namespace} --for=condition=QuotaReserved=false --timeout=60s"
        );
        helps.push(Help::command(Advice::AddTaintToFlavor, text, format!("{stop} && {evicted} && {resume}")));
    }
    if says(LABELS) {
        helps.push(Help::words(
            Advice::LabelNodes,
            "give nodes the labels that the flavor (nodeLabels) and the pods ask for",
        ));
    }
    if says(CORDONS) {
        helps.push(Help::words(
            Advice::Uncordon,
            "make the nodes that are cordoned schedulable again (kubectl uncordon NODE)",
        ));
    }
    if says(VOLUMES) {
        let text = "create the PersistentVolumeClaims that the pods name, and find out why existing ones are not bound";
        helps.push(Help::command(Advice::BindVolumes, text, format!("kubectl describe pvc -n {namespace}")));
    }
    if pods.iter().any(|pod| pod.reason == "SchedulingGated") {
        let text = "see which scheduling gates the pods have: the program that set a gate must remove it";
        helps.push(Help::words(Advice::SeeGates, text));
    }
    if pods.iter().any(|pod| pod.reason.is_empty() && pod.message.is_empty()) {
        helps.push(Help::words(
            Advice::SeeScheduler,
            "see whether the scheduler runs that the pods name in spec.schedulerName",
        ));
    }
    let other = pods.iter().find(|pod| has_another_reason(&pod.message));
    if let Some(pod) = other.or(pods.first().filter(|_| helps.is_empty())) {
        let command = format!("kubectl describe pod {} -n {namespace}", pod.name);
        let text = "change the nodes or the pods as the scheduler's message says";
        helps.push(Help::command(Advice::FollowScheduler, text, command));
    }
    helps
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, owner: &str, message: &str) -> Value {
        json!({
            "metadata": {"name": name, "ownerReferences": [{"uid": owner}]}, "spec": {},
            "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}]},
        })
    }

    fn of_workload(name: &str) -> ObjectRef {
        ObjectRef::namespaced(sluice_engine::Kind::Workload, "a", name)
    }

    /// Messages of the scheduler that no test on a control plane produces.
    #[test]
    fn whatever_the_scheduler_says_there_is_something_to_do() {
        let advice = |reason: &str, message: &str| {
            let pod =
                PendingPod { name: "p".to_owned(), reason: reason.to_owned(), message: message.to_owned() };
            let helps = helps(&of_workload("w"), &[pod]);
            helps.first().map(|help| (help.text.clone(), help.command.clone())).unwrap_or_default()
        };
        for message in ["no nodes available to schedule pods", "0/9 nodes are available: 9 Too many pods."] {
            assert!(advice("Unschedulable", message).0.starts_with("add nodes: "), "{message}");
        }
        let other = "0/9 nodes are available: 9 node(s) didn't have free ports for the requested pod ports.";
        let describe = Some("kubectl describe pod p -n a".to_owned());
        let (text, command) = advice("Unschedulable", other);
        assert_eq!((text.starts_with("change the nodes or the pods"), command), (true, describe));
    }

    #[test]
    fn only_own_pods_that_have_no_node_are_listed_and_only_a_few() {
        let workload = json!({"metadata": {"name": "w", "ownerReferences": [{"uid": "u"}]}});
        let mut pods: Vec<Value> =
            (0..9).map(|n| pod(&format!("p{n}"), "u", "0/3 nodes: 3 Insufficient cpu.")).collect();
        pods.push(pod("other", "v", "x"));
        pods.push(json!({"metadata": {"name": "none"}, "spec": {}}));
        pods[8]["spec"]["nodeName"] = json!("n");
        let subject =
            Subject { job: Some(json!({"metadata": {"name": "j", "uid": "u"}})), pods, ..Subject::default() };
        let (shown, count) = pending(&subject, &workload);
        assert_eq!((shown.len(), count), (MOST_LISTED, 8));
        let finding = finding(&of_workload("w"), &shown, count, false).unwrap();
        assert_eq!(finding.text, "the job is admitted, and 8 of its pods are not scheduled");
        assert_eq!(finding.details[0], "p0: Unschedulable: 0/3 nodes: 3 Insufficient cpu.");
        assert!(finding.helps[0].text.starts_with("add nodes"), "{finding:?}");
    }

    #[test]
    fn a_reason_that_no_advice_is_about_is_not_hidden_by_the_others() {
        let helps = |message: &str| {
            let subject = Subject {
                job: Some(json!({"metadata": {"name": "j", "uid": "u"}})),
                pods: vec![pod("p", "u", message)],
                ..Subject::default()
            };
            let (shown, count) = pending(&subject, &json!({"metadata": {"name": "w"}}));
            let helps = finding(&of_workload("w"), &shown, count, false).unwrap().helps;
            helps.into_iter().map(|help| help.advice).collect::<Vec<_>>()
        };
        let preemption = "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.";
        let said = |reasons: &str| format!("0/3 nodes are available: {reasons}. {preemption}");
        let labels = "2 node(s) didn't match Pod's node affinity/selector";
        let room = [Advice::AddNodes, Advice::StopUntilRoom];
        let both = [&room[..], &[Advice::LabelNodes]].concat();
        assert_eq!(helps(&said(&format!("1 Too many pods, {labels}"))), both);
        let ports = "1 node(s) didn't have free ports for the requested pod ports";
        let both = [Advice::LabelNodes, Advice::FollowScheduler];
        assert_eq!(helps(&said(&format!("{ports}, {labels}"))), both);
        assert_eq!(helps(&said(ports)), [Advice::FollowScheduler]);
        assert_eq!(helps("no nodes available to schedule pods"), room);
        assert_eq!(helps("something else"), [Advice::FollowScheduler]);
    }

    #[test]
    fn pods_that_their_labels_or_the_annotation_name_are_own_too() {
        let workload = json!({"metadata": {"name": "w"}});
        let job = json!({"metadata": {"name": "set", "uid": "u"}});
        for metadata in [
            json!({"labels": {"jobset.sigs.k8s.io/jobset-name": "set"}}),
            json!({"annotations": {"kueue.x-k8s.io/workload": "w"}}),
        ] {
            assert!(is_own(&json!({"metadata": metadata}), &workload, Some(&job)), "{metadata}");
        }
        let foreign = json!({"metadata": {"labels": {"jobset.sigs.k8s.io/jobset-name": "other"}}});
        assert!(!is_own(&foreign, &workload, Some(&job)));
    }

    #[test]
    fn the_pods_of_each_kind_say_their_job_by_its_label() {
        let job = json!({"metadata": {"name": "train", "uid": "u"}});
        let is_own = |label: &str, name: &str| {
            let pod = json!({"metadata": {"name": "p", "uid": "p", "labels": {label: name}}});
            is_own(&pod, &json!({"metadata": {"name": "w"}}), Some(&job))
        };
        for kind in JobKind::ALL {
            for label in [kind.label_of_pods(), kind.integration().part_label].into_iter().flatten() {
                assert!(is_own(label, "train") && !is_own(label, "other"), "{kind:?}");
            }
        }
        assert!(is_own(sluice_api::labels::POD_GROUP_NAME, "train") && !is_own("app", "train"));
    }
}
