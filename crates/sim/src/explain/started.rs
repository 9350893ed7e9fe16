//! Pods of an admitted job that have a node and do not run, and pods that do not exist.

use serde_json::Value;
use sluice_api::job::JobKind;
use sluice_engine::{Kind, ObjectRef};

use super::MOST_LISTED;
use super::advice::Advice;
use super::finding::{Code, Finding, Help, holds};
use super::pods::is_own;
use super::subject::Subject;
use crate::json::text;

/// A container that does not run, and why.
struct Waiting<'a> {
    pod: &'a str,
    /// Absent if nodes may not be named.
    node: Option<&'a str>,
    container: &'a str,
    reason: &'a str,
    message: &'a str,
}

impl Waiting<'_> {
    fn line(&self) -> String {
        let Self { pod, container, reason, message, .. } = self;
        let place = self.node.map(|node| format!(" on {node}")).unwrap_or_default();
        let said = match (*reason, *message) {
            ("", _) => return format!("{pod}{place}: its node has not reported on it yet"),
            (reason, "") => reason.to_owned(),
            (reason, message) => format!("{reason}: {message}"),
        };
        format!("{pod}{place}: container {container}: {said}")
    }
}

/// The containers of a pod with a node that wait for something, init containers first.
fn waiting(pod: &Value, names_nodes: bool) -> Vec<Waiting<'_>> {
    let (name, node) = (text(&pod["metadata"]["name"]), text(&pod["spec"]["nodeName"]));
    let phase = text(&pod["status"]["phase"]);
    if node.is_empty() || !["", "Pending", "Running"].contains(&phase) || leaves(pod) {
        return Vec::new();
    }
    let of = |field: &str| pod["status"][field].as_array().into_iter().flatten();
    let all: Vec<_> = of("initContainerStatuses").chain(of("containerStatuses")).collect();
    let node = Some(node).filter(|_| names_nodes);
    let one = |container, reason, message| Waiting { pod: name, node, container, reason, message };
    if all.is_empty() {
        return if phase == "Running" { Vec::new() } else { vec![one("", "", "")] };
    }
    let waits = all.into_iter().filter(|status| status["state"]["waiting"].is_object());
    let each = waits.map(|status| {
        let said = &status["state"]["waiting"];
        let reason = Some(text(&said["reason"])).filter(|reason| !reason.is_empty()).unwrap_or("waiting");
        one(text(&status["name"]), reason, text(&said["message"]))
    });
    // Containers after an init container wait only for it.
    let mut each: Vec<_> = each.collect();
    let behind = |waiting: &Waiting<'_>| waiting.reason == "PodInitializing";
    if each.iter().any(|waiting| !behind(waiting)) {
        each.retain(|waiting| !behind(waiting));
    }
    each
}

fn leaves(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

/// The job's pods that have a node and a container that does not run.
pub(super) fn not_running(
    subject: &Subject,
    workload: &Value,
    own: &ObjectRef,
    names_nodes: bool,
) -> Option<Finding> {
    let pods = subject.pods.iter().filter(|pod| is_own(pod, workload, subject.job.as_ref()));
    let each: Vec<_> =
        pods.map(|pod| waiting(pod, names_nodes)).filter(|containers| !containers.is_empty()).collect();
    if each.is_empty() {
        return None;
    }
    let at_least = if subject.more_pods { "at least " } else { "" };
    let text = format!("{at_least}{} of its pods have a node and do not run yet", each.len());
    let mut finding = Finding::new(Code::PodsNotRunning, text);
    finding.details = each.iter().flatten().take(MOST_LISTED).map(Waiting::line).collect();
    let all: Vec<&Waiting<'_>> = each.iter().flatten().collect();
    for help in helps(&own.namespace, &all) {
        finding = finding.with(help);
    }
    Some(finding)
}

/// Reasons for which containers wait, by the advice that is about them.
const IMAGE: &[&str] = &["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"];
const CONFIG: &[&str] = &["CreateContainerConfigError", "CreateContainerError", "RunContainerError"];
const CRASH: &[&str] = &["CrashLoopBackOff"];
const PREPARING: &[&str] = &["ContainerCreating", "PodInitializing"];

/// What lets the containers start, by the messages of their nodes.
fn helps(namespace: &str, all: &[&Waiting<'_>]) -> Vec<Help> {
    let first = |reasons: &[&str]| all.iter().find(|waiting| reasons.contains(&waiting.reason));
    let known = [IMAGE, CONFIG, CRASH, PREPARING, &[""]].concat();
    let describe = |pod: &str| format!("kubectl describe pod {pod} -n {namespace}");
    let mut helps = Vec::new();
    if let Some(of) = first(IMAGE) {
        let text = format!(
            "correct the image of the container (kubectl set image pod/{} {}=IMAGE -n {namespace}, and in the job for pods to come), or let \
             its nodes reach the registry (imagePullSecrets): a name or tag that does not exist is never pulled",
            of.pod, of.container
        );
        helps.push(Help::command(Advice::CorrectImage, text, describe(of.pod)));
    }
    if let Some(of) = first(CONFIG) {
        let text =
            "create the ConfigMap or Secret that the container names, or correct what its message names";
        helps.push(Help::command(Advice::CreateConfig, text, describe(of.pod)));
    }
    if let Some(of) = first(CRASH) {
        let text = "find out why the container ends; it keeps being restarted";
        let command = format!("kubectl logs {} -n {namespace} -c {} --previous", of.pod, of.container);
        helps.push(Help::command(Advice::ReadLogs, text, command));
    }
    if let Some(of) = first(PREPARING) {
        let text =
            "wait: its node prepares it; if that takes long, read the events of the pod (volumes, network)";
        helps.push(Help::command(Advice::AwaitNode, text, describe(of.pod)));
    }
    if let Some(of) = first(&[""]) {
        let taken = "is ready: its kubelet has not taken the pod yet";
        helps.push(match of.node {
            Some(node) => Help::command(
                Advice::SeeKubelet,
                format!("see whether the node {node} {taken}"),
                format!("kubectl describe node {node}"),
            ),
            None => {
                Help::words(Advice::SeeKubelet, format!("let an administrator see whether its node {taken}"))
            }
        });
    }
    if let Some(of) = all.iter().find(|waiting| !known.contains(&waiting.reason)) {
        let text = "change what the message of the container names";
        helps.push(Help::command(Advice::FollowContainer, text, describe(of.pod)));
    }
    helps
}

/// How many pods the Workload was admitted with, without those that it gave back (`reclaimablePods`), and how many it gave back.
fn admitted(workload: &Value) -> (i64, i64) {
    let list = |value: &'_ Value| value.as_array().cloned().unwrap_or_default();
    let reclaimable = list(&workload["status"]["reclaimablePods"]);
    let sets = list(&workload["status"]["admission"]["podSetAssignments"]);
    let of = |set: &Value| {
        let name = &set["name"];
        let specified = || super::decided::pod_set(workload, text(name))["count"].as_i64();
        let count = set["count"].as_i64().or_else(specified).unwrap_or(0).max(0);
        let back = reclaimable.iter().find(|back| back["name"] == *name);
        (count, back.and_then(|back| back["count"].as_i64()).unwrap_or(0).clamp(0, count))
    };
    let each = sets.iter().map(of);
    each.fold((0, 0), |(wanted, given_back), (count, back)| (wanted + count - back, given_back + back))
}

/// The finding that pods of an admitted job do not exist, if all its pods were read.
pub(super) fn missing(subject: &Subject, workload: &Value, job: &ObjectRef) -> Option<Finding> {
    if !subject.all_pods || holds(workload, "PodsReady") {
        return None;
    }
    let own = || subject.pods.iter().filter(|pod| is_own(pod, workload, subject.job.as_ref()));
    let phase = |pod: &Value, phase: &str| pod["status"]["phase"] == phase;
    let has_ended = |pod: &Value| phase(pod, "Failed") || phase(pod, "Succeeded");
    let count =
        |is: &dyn Fn(&Value) -> bool| i64::try_from(own().filter(|pod| is(pod)).count()).unwrap_or(i64::MAX);
    // Pods of a declared kind may not be recognizable as such here.
    let is_declared = JobKind::ALL.into_iter().all(|kind| Kind::Job(kind) != job.kind);
    if is_declared && own().next().is_none() {
        return None;
    }
    let lives = count(&|pod| !has_ended(pod) && !leaves(pod));
    let succeeded = count(&|pod| phase(pod, "Succeeded"));
    let (wanted, given_back) = admitted(workload);
    let (left, failed) = match (&subject.job, &job.kind) {
        (Some(object), Kind::Job(kind)) => (
            sluice_jobs::left_to_complete(*kind, object, succeeded),
            sluice_jobs::failed_for_good(*kind, object),
        ),
        _ => (None, 0),
    };
    // Of the pods that are over for good, those that were given back are not wanted any more.
    let over = succeeded.saturating_add(failed);
    let (wanted, there) = match left {
        Some(left) => (wanted.min(left), lives),
        None => (wanted, lives.saturating_add((over - given_back).max(0))),
    };
    if there >= wanted {
        return None;
    }
    let missing = wanted - there;
    let said = format!("the job is admitted with {wanted} pod(s), and {missing} of them are not there");
    let finding = Finding::new(Code::PodsMissing, said);
    let suspended = subject.job.as_ref().is_some_and(|value| {
        let kind = JobKind::from_owner(text(&value["apiVersion"]), text(&value["kind"]));
        kind.is_some_and(|kind| sluice_jobs::is_suspended(kind, value))
    });
    if suspended {
        let finding = finding.detail("the job is still suspended: the manager starts it next");
        return Some(
            finding.with(Help::words(Advice::AwaitStart, "wait: its pods are made once it is started")),
        );
    }
    let (kind, name, namespace) = (job.kind.as_str().to_ascii_lowercase(), &job.name, &job.namespace);
    let help = "find out why the controller of the job does not make its pods: see the events of the job and of what it owns \
                (a ResourceQuota, a webhook, a controller that does not run)";
    let command = format!("kubectl describe {kind} {name} -n {namespace}");
    Some(finding.with(Help::command(Advice::SeeJobController, help, command)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(name: &str, phase: &str, containers: &Value) -> Value {
        json!({
            "metadata": {"name": name, "ownerReferences": [{"uid": "u"}]}, "spec": {"nodeName": "n0"},
            "status": {"phase": phase, "containerStatuses": containers},
        })
    }

    fn waits(reason: &str, message: &str) -> Value {
        json!([{"name": "c", "state": {"waiting": {"reason": reason, "message": message}}}])
    }

    fn workload(count: i64) -> Value {
        json!({
            "metadata": {"name": "w", "namespace": "a", "ownerReferences": [{"uid": "u"}]},
            "status": {"admission": {"podSetAssignments": [{"name": "main", "count": count}]}},
        })
    }

    fn subject(pods: Vec<Value>) -> Subject {
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", "namespace": "a", "uid": "u"},
            "spec": {"suspend": false}});
        Subject { job: Some(job), pods, all_pods: true, ..Subject::default() }
    }

    fn job() -> ObjectRef {
        ObjectRef::namespaced(sluice_engine::Kind::Job(JobKind::JOB), "a", "j")
    }

    fn first_help(pods: Vec<Value>) -> (String, Option<String>) {
        let finding = not_running(&subject(pods), &workload(1), &job(), true).unwrap();
        let help = &finding.helps[0];
        (help.text.clone(), help.command.clone())
    }

    #[test]
    fn pods_with_a_node_say_what_their_containers_wait_for() {
        let running = json!([{"name": "c", "state": {"running": {}}}]);
        let pods = vec![
            pod("p0", "Pending", &waits("ImagePullBackOff", "Back-off pulling image \"x\"")),
            pod("p1", "Running", &waits("CrashLoopBackOff", "")),
            pod("p2", "Running", &running),
            pod("p3", "Pending", &json!([])),
        ];
        let finding = not_running(&subject(pods), &workload(4), &job(), true).unwrap();
        assert_eq!(finding.text, "3 of its pods have a node and do not run yet");
        assert_eq!(
            finding.details,
            [
                "p0 on n0: container c: ImagePullBackOff: Back-off pulling image \"x\"",
                "p1 on n0: container c: CrashLoopBackOff",
                "p3 on n0: its node has not reported on it yet",
            ]
        );
        assert_eq!(finding.helps.len(), 3, "{finding:?}");
        assert!(
            not_running(&subject(vec![pod("p2", "Running", &running)]), &workload(1), &job(), true).is_none()
        );
    }

    #[test]
    fn whatever_a_container_waits_for_there_is_something_to_do() {
        for (reason, begins, command) in [
            ("ErrImagePull", "correct the image", "kubectl describe pod p -n a"),
            ("CreateContainerConfigError", "create the ConfigMap or Secret", "kubectl describe pod p -n a"),
            ("CrashLoopBackOff", "find out why the container ends", "kubectl logs p -n a -c c --previous"),
            ("ContainerCreating", "wait: its node prepares it", "kubectl describe pod p -n a"),
            ("Surprising", "change what the message", "kubectl describe pod p -n a"),
        ] {
            let (text, given) = first_help(vec![pod("p", "Pending", &waits(reason, ""))]);
            assert!(text.starts_with(begins), "{reason}: {text}");
            assert_eq!(given.as_deref(), Some(command), "{reason}");
        }
        let (text, given) = first_help(vec![pod("p", "Pending", &json!([]))]);
        assert_eq!(
            (text.starts_with("see whether the node n0 is ready"), given.as_deref()),
            (true, Some("kubectl describe node n0"))
        );
    }

    #[test]
    fn an_init_container_stands_for_those_behind_it() {
        let mut one = pod("p", "Pending", &waits("PodInitializing", ""));
        one["status"]["initContainerStatuses"] = waits("ErrImagePull", "no such image");
        let finding = not_running(&subject(vec![one]), &workload(1), &job(), true).unwrap();
        assert_eq!(finding.details, ["p on n0: container c: ErrImagePull: no such image"]);
    }

    #[test]
    fn pods_that_are_not_there_are_counted_if_all_were_read() {
        let there = |phase: &str| pod("p", phase, &json!([]));
        let of = |pods: Vec<Value>| missing(&subject(pods), &workload(3), &job());
        let finding = of(vec![there("Running")]).unwrap();
        assert_eq!(finding.text, "the job is admitted with 3 pod(s), and 2 of them are not there");
        assert_eq!(finding.helps[0].command.as_deref(), Some("kubectl describe job j -n a"));
        let mut going = there("Running");
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let text = of(vec![there("Failed"), going]).unwrap().text;
        assert!(text.ends_with("and 3 of them are not there"), "{text}");
        assert!(of(vec![there("Running"), there("Succeeded"), there("Pending")]).is_none());
        // Reclaimable pods are not reported as missing; neither is any pod if there may be more than were read.
        let mut less = workload(3);
        less["status"]["reclaimablePods"] = json!([{"name": "main", "count": 2}]);
        assert!(missing(&subject(vec![there("Running")]), &less, &job()).is_none());
        // What succeeded and is given back does not stand for what is missing.
        let mut less = workload(4);
        less["status"]["reclaimablePods"] = json!([{"name": "main", "count": 1}]);
        let of = |pods: Vec<Value>| missing(&subject(pods), &less, &job()).map(|finding| finding.text);
        let text = of(vec![there("Succeeded"), there("Running"), there("Running")]).unwrap();
        assert!(text.ends_with("admitted with 3 pod(s), and 1 of them are not there"), "{text}");
        assert_eq!(of(vec![there("Succeeded"), there("Running"), there("Running"), there("Pending")]), None);
        // A pod that succeeded a moment ago is not given back yet.
        assert_eq!(
            of(vec![there("Succeeded"), there("Succeeded"), there("Running"), there("Running")]),
            None
        );
        let unknown = Subject { all_pods: false, ..subject(Vec::new()) };
        assert!(missing(&unknown, &workload(3), &job()).is_none());
        let mut ready = workload(3);
        ready["status"]["conditions"] = json!([{"type": "PodsReady", "status": "True"}]);
        assert!(missing(&subject(Vec::new()), &ready, &job()).is_none());
        let mut stopped = subject(Vec::new());
        stopped.job.as_mut().unwrap()["spec"]["suspend"] = json!(true);
        let finding = missing(&stopped, &workload(3), &job()).unwrap();
        assert_eq!(finding.details, ["the job is still suspended: the manager starts it next"]);
    }

    #[test]
    fn each_pod_that_succeeds_is_followed_by_another_while_there_is_more_to_complete() {
        let there = |phase: &str| pod("p", phase, &json!([]));
        let of = |completions: i64, pods: Vec<Value>| {
            let mut subject = subject(pods);
            let more = json!({"parallelism": 2, "completions": completions});
            subject.job.as_mut().unwrap()["spec"]
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            missing(&subject, &workload(2), &job()).map(|finding| finding.text)
        };
        let text = of(9, vec![there("Succeeded"), there("Succeeded"), there("Running")]).unwrap();
        assert!(text.ends_with("admitted with 2 pod(s), and 1 of them are not there"), "{text}");
        assert_eq!(of(9, vec![there("Succeeded"), there("Running"), there("Running")]), None);
        // The last one.
        assert_eq!(of(3, vec![there("Succeeded"), there("Succeeded"), there("Running")]), None);
        assert_eq!(of(2, vec![there("Succeeded"), there("Running")]), None);
    }

    #[test]
    fn no_pod_is_missed_for_an_index_that_failed_for_good() {
        let there = |phase: &str| pod("p", phase, &json!([]));
        let of = |completions: i64, failed: &str, pods: Vec<Value>| {
            let mut subject = subject(pods);
            let object = subject.job.as_mut().unwrap();
            object["status"] = json!({"failedIndexes": failed});
            let spec = json!({"parallelism": 3, "completions": completions, "completionMode": "Indexed", "backoffLimitPerIndex": 0});
            object["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            missing(&subject, &workload(3), &job()).map(|finding| finding.text)
        };
        // More completions than pods at a time, and as many: what failed is not given back yet.
        for completions in [4, 3] {
            let left = completions - 2;
            let running = |count: i64| (0..count).map(|_| there("Running"));
            let failed = || [there("Failed"), there("Failed")].into_iter();
            assert_eq!(
                of(completions, "0,2", failed().chain(running(left)).collect()),
                None,
                "{completions}"
            );
            let text = of(completions, "0,2", failed().chain(running(left - 1)).collect()).unwrap();
            assert!(text.ends_with("and 1 of them are not there"), "{text}");
        }
    }
}
