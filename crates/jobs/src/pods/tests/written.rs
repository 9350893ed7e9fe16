//! The webhook's effects on a plain pod that is created or changed.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use sluice_api::config::Configuration;
use sluice_api::gates::{Gate, Gates};
use sluice_api::job::PodSetInfo;
use sluice_jobs::pods::{Group, Member, finalize, start};
use sluice_jobs::webhook::{Context, PodSelectors, mutate_plain_pod, validate_plain_pod};

use crate::testing::{apply, junk};

const MANAGED: &str = "kueue.x-k8s.io/managed";

/// A pod as a user writes it.
fn pod() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "team-a", "name": "a", "resourceVersion": "1", "labels": {"kueue.x-k8s.io/queue-name": "user-queue"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
    })
}

/// One of a group of three.
fn grouped() -> Value {
    let mut pod = pod();
    pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = json!("g");
    pod["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-group-total-count": "3"});
    pod
}

fn without_queue() -> Value {
    let mut pod = pod();
    pod["metadata"].as_object_mut().unwrap().remove("labels");
    pod
}

fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = parent.split('/').skip(1).fold(&mut object, |at, key| &mut at[key]);
    parent[key.replace("~1", "/")] = value;
    object
}

/// What a cluster without anything special answers, with these exceptions.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a cluster")]
struct World {
    namespace: &'static str,
    manage_all: bool,
    default_local_queue: bool,
    managed_owner: bool,
    topology_off: bool,
    annotations_off: bool,
    selectors: [Option<LabelSelector>; 2],
    implied: bool,
}

impl World {
    fn with<T>(&self, ask: impl FnOnce(&Context<'_>) -> T) -> T {
        let name = if self.namespace.is_empty() { "team-a" } else { self.namespace };
        let labels = BTreeMap::from([("kubernetes.io/metadata.name".to_owned(), name.to_owned())]);
        let selector = Configuration::default().managed_jobs_namespace_selector;
        ask(&Context {
            manage_jobs_without_queue_name: self.manage_all,
            managed_jobs_namespace_selector: &selector,
            namespace_labels: &labels,
            default_local_queue: self.default_local_queue,
            default_priority_class: false,
            managed_owner: self.managed_owner,
            gatherer: None,
            gates: Gates::default()
                .with(Gate::TopologyAwareScheduling, !self.topology_off)
                .with(Gate::WorkloadIdentifierAnnotations, !self.annotations_off),
        })
    }

    fn create(&self, pod: &Value) -> Value {
        let [namespaces, pods] = &self.selectors;
        let selectors =
            PodSelectors { namespaces: namespaces.as_ref(), pods: pods.as_ref(), implied: self.implied };
        apply(pod, &self.with(|context| mutate_plain_pod(pod, context, &selectors))).unwrap()
    }
}

fn refusals(pod: &Value, old: Option<&Value>) -> String {
    refusals_in(&World::default(), pod, old)
}

fn refusals_in(world: &World, pod: &Value, old: Option<&Value>) -> String {
    world.with(|context| match validate_plain_pod(pod, old, context) {
        Ok(()) => String::new(),
        Err(denied) => denied.to_string(),
    })
}

#[test]
fn a_queued_pod_waits() {
    let made = World::default().create(&pod());
    assert_eq!(
        made["metadata"]["labels"],
        json!({"kueue.x-k8s.io/queue-name": "user-queue", MANAGED: "true"})
    );
    assert_eq!(made["metadata"]["finalizers"], json!([MANAGED]));
    let role = made["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"].as_str().unwrap();
    assert_eq!(role.len(), 8);
    let gates = json!([{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}]);
    assert_eq!(made["spec"]["schedulingGates"], gates);
    // What is there is not added again, and what is of others stays.
    assert_eq!(World::default().create(&made), made);
    let mut others = pod();
    others["metadata"]["finalizers"] = json!(["x/y"]);
    others["metadata"]["annotations"] = json!({"kueue.x-k8s.io/role-hash": "main", "a": "b"});
    others["spec"]["schedulingGates"] = json!([{"name": "x/y"}]);
    let made = World { topology_off: true, ..World::default() }.create(&others);
    assert_eq!(made["metadata"]["finalizers"], json!(["x/y", MANAGED]));
    assert_eq!(made["metadata"]["annotations"], others["metadata"]["annotations"]);
    assert_eq!(
        made["spec"]["schedulingGates"],
        json!([{"name": "x/y"}, {"name": "kueue.x-k8s.io/admission"}])
    );
}

#[test]
fn the_values_of_a_queued_pod_are_limited() {
    let tolerant = |number: usize| {
        let mut pod = World::default().create(&pod());
        pod["spec"]["tolerations"] = json!(vec![json!({"key": "k"}); number]);
        pod
    };
    assert_eq!(refusals(&tolerant(1_900), None), "");
    let large = tolerant(2_100);
    assert!(refusals(&large, None).contains("Too long"), "{}", refusals(&large, None));
    assert_eq!(refusals(&large, Some(&large)), "", "it is there");
    let mut of_set = large.clone();
    of_set["metadata"]["annotations"]["kueue.x-k8s.io/pod-suspending-parent"] = json!("statefulset");
    assert!(!refusals(&of_set, None).contains("Too long"), "its template was let in");
    let mut free = large.clone();
    free["metadata"]["labels"] = json!({});
    assert_eq!(refusals(&free, None), "");
    // What got past the webhook cannot be read, and next to nothing is kept of it.
    let member = Member::observe(&tolerant(100_000), &Gates::default());
    assert!(member.pod_set.unwrap_err().contains("Too long") && member.size.is_none());
}

#[test]
fn others_are_left_alone() {
    let selector = |value: &str| {
        Some(serde_json::from_value(json!({"matchLabels": {"kubernetes.io/metadata.name": value}})).unwrap())
    };
    let app: Option<LabelSelector> =
        Some(serde_json::from_value(json!({"matchLabels": {"app": "x"}})).unwrap());
    let (queued, plain) = (pod(), without_queue());
    for (world, pod) in [
        (World::default(), &plain),
        (World { namespace: "kube-system", ..World::default() }, &queued),
        (
            World {
                namespace: "kube-system",
                manage_all: true,
                default_local_queue: true,
                ..World::default()
            },
            &plain,
        ),
        (World { managed_owner: true, ..World::default() }, &queued),
        (World { selectors: [selector("other"), None], ..World::default() }, &queued),
        (World { selectors: [selector("team-a"), app.clone()], ..World::default() }, &queued),
        (World { manage_all: true, ..World::default() }, &json!({"kind": "Pod"})),
    ] {
        assert_eq!(world.create(pod), *pod);
    }
    let chosen = with(pod(), "/metadata/labels/app", json!("x"));
    let world = World { selectors: [selector("team-a"), app], ..World::default() };
    assert_eq!(world.create(&chosen)["metadata"]["labels"][MANAGED], "true");
}

#[test]
fn a_pod_without_a_queue_name_may_be_managed() {
    let made = World { default_local_queue: true, ..World::default() }.create(&without_queue());
    assert_eq!(made["metadata"]["labels"], json!({"kueue.x-k8s.io/queue-name": "default", MANAGED: "true"}));
    let made = World { manage_all: true, ..World::default() }.create(&without_queue());
    assert_eq!(made["metadata"]["labels"], json!({MANAGED: "true"}));
    let mut annotated = without_queue();
    annotated["metadata"]["annotations"] = json!({"kueue.x-k8s.io/queue-name": "user-queue"});
    let made = World { default_local_queue: true, ..World::default() }.create(&annotated);
    assert_eq!(made["metadata"]["labels"], json!({MANAGED: "true"}));
}

#[test]
fn a_pod_of_a_suspending_parent_is_gated_wherever_it_is() {
    let mut owned = without_queue();
    owned["metadata"]["annotations"] = json!({"kueue.x-k8s.io/pod-suspending-parent": "statefulset"});
    let made = World { namespace: "kube-system", ..World::default() }.create(&owned);
    assert_eq!(made["spec"]["schedulingGates"][0]["name"], "kueue.x-k8s.io/admission");
    assert!(made["metadata"]["annotations"]["kueue.x-k8s.io/role-hash"].is_string());
    assert_eq!(made["metadata"].get("finalizers"), None);
    assert_eq!(made["metadata"]["labels"], json!({MANAGED: "true"}), "it is seen");
}

#[test]
fn the_number_of_a_pod_is_copied() {
    let mut indexed = grouped();
    indexed["metadata"]["labels"]["index"] = json!("2");
    indexed["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-pod-index-label"] = json!("index");
    let copied = |pod: &Value, topology_off: bool| {
        let made = World { topology_off, ..World::default() }.create(pod);
        made["metadata"]["labels"].get("kueue.x-k8s.io/pod-group-pod-index").cloned()
    };
    assert_eq!(copied(&indexed, false), Some(json!("2")));
    assert_eq!(copied(&indexed, true), None);
    indexed["metadata"]["labels"].as_object_mut().unwrap().remove("index");
    assert_eq!(copied(&indexed, false), None);
}

#[test]
fn what_a_new_pod_says_is_checked() {
    let group = "/metadata/labels/kueue.x-k8s.io~1pod-group-name";
    let count = "/metadata/annotations/kueue.x-k8s.io~1pod-group-total-count";
    let prebuilt = "/metadata/labels/kueue.x-k8s.io~1prebuilt-workload-name";
    let both = "Required value: both the 'kueue.x-k8s.io/pod-group-total-count' annotation and the \
        'kueue.x-k8s.io/pod-group-name' label should be set";
    let count_is = |text: &str, why: &str| {
        format!(
            "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: Invalid value: \"{text}\": incorrect annotation value \
             'kueue.x-k8s.io/pod-group-total-count={text}': {why}"
        )
    };
    for (pod, expected) in [
        (pod(), String::new()),
        (grouped(), String::new()),
        (
            with(pod(), "/metadata/labels/kueue.x-k8s.io~1managed", json!("false")),
            "metadata.labels[kueue.x-k8s.io/managed]: Forbidden: managed label value can only be 'true'".to_owned(),
        ),
        (
            with(pod(), count, json!("3")),
            format!("metadata.labels[kueue.x-k8s.io/pod-group-name]: {both}"),
        ),
        (
            with(pod(), group, json!("g")),
            format!("metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: {both}"),
        ),
        (with(grouped(), count, json!("0")), count_is("0", "group total count should be greater than zero")),
        (with(grouped(), count, json!("x")), count_is("x", "must be an integer")),
        (with(grouped(), prebuilt, json!("g")), String::new()),
        (
            with(grouped(), prebuilt, json!("other")),
            "metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]: Invalid value: \"other\": prebuilt workload and pod group \
             should be equal"
                .to_owned(),
        ),
        (
            with(pod(), "/metadata/annotations/kueue.x-k8s.io~1podset-unconstrained-topology", json!("x")),
            "metadata.annotations[kueue.x-k8s.io/podset-unconstrained-topology]: Invalid value: \"x\": must be true or false"
                .to_owned(),
        ),
    ] {
        assert_eq!(refusals(&pod, None), expected);
    }
    for (pointer, place) in [
        (group, "metadata.labels[kueue.x-k8s.io/pod-group-name]"),
        ("/metadata/labels/kueue.x-k8s.io~1queue-name", "metadata.labels[kueue.x-k8s.io/queue-name]"),
    ] {
        let refused = refusals(&with(grouped(), pointer, json!("Not_a_Name")), None);
        assert!(
            refused.starts_with(&format!("{place}: Invalid value: \"Not_a_Name\": a lowercase")),
            "{refused}"
        );
    }
}

#[test]
fn the_prebuilt_workload_that_an_annotation_names_is_compared_with_the_group_only_with_the_gate() {
    let prebuilt = "/metadata/annotations/kueue.x-k8s.io~1prebuilt-workload-name";
    for (name, annotations_off, is_refused) in
        [("g", false, false), ("other", false, true), ("other", true, false), ("", false, false)]
    {
        let world = World { annotations_off, ..World::default() };
        let refused = refusals_in(&world, &with(grouped(), prebuilt, json!(name)), None);
        assert_eq!(!refused.is_empty(), is_refused, "{name}: {refused}");
    }
}

#[test]
fn a_pod_keeps_its_group_and_its_queue() {
    let gates = "/spec/schedulingGates";
    let waiting = with(grouped(), gates, json!([{"name": "kueue.x-k8s.io/admission"}]));
    let group = "/metadata/labels/kueue.x-k8s.io~1pod-group-name";
    let queue = "/metadata/labels/kueue.x-k8s.io~1queue-name";
    let last = "/metadata/annotations/kueue.x-k8s.io~1retriable-in-group";
    let immutable = |key: &str, value: &str| {
        format!("metadata.labels[kueue.x-k8s.io/{key}]: Invalid value: \"{value}\": field is immutable")
    };
    for (old, new, expected) in [
        (waiting.clone(), with(waiting.clone(), gates, Value::Null), String::new()),
        (waiting.clone(), with(waiting.clone(), group, json!("h")), immutable("pod-group-name", "h")),
        (waiting.clone(), with(waiting.clone(), queue, json!("q")), String::new()),
        (grouped(), with(grouped(), queue, json!("q")), immutable("queue-name", "q")),
        (waiting.clone(), with(waiting.clone(), last, json!("false")), String::new()),
        (
            with(waiting.clone(), last, json!("false")),
            waiting.clone(),
            "metadata.annotations[kueue.x-k8s.io/retriable-in-group]: Forbidden: unretriable pod group can't be converted to \
             retriable"
                .to_owned(),
        ),
    ] {
        assert_eq!(refusals(&new, Some(&old)), expected);
    }
    // One that broke a rule before can still be written, and one that is being deleted as long as it does not run.
    let broken = with(waiting, "/metadata/annotations/kueue.x-k8s.io~1pod-group-total-count", json!("x"));
    assert_eq!(refusals(&with(broken.clone(), gates, Value::Null), Some(&broken)), "");
    let moved = with(broken.clone(), group, json!("h"));
    assert_ne!(refusals(&moved, Some(&broken)), "");
    let leaving = with(moved, "/metadata/deletionTimestamp", json!("2026-01-02T03:04:05Z"));
    assert_eq!(refusals(&leaving, Some(&broken)), "");
}

/// Its user sets how long it runs on.
#[test]
fn a_pod_that_runs_while_it_is_being_deleted_stays_in_its_group_and_on_its_workload() {
    let (group, role, workload) = (
        "/metadata/labels/kueue.x-k8s.io~1pod-group-name",
        "/metadata/annotations/kueue.x-k8s.io~1role-hash",
        "/metadata/annotations/kueue.x-k8s.io~1workload",
    );
    let waits = with(World::default().create(&grouped()), workload, json!("w"));
    let runs = with(waits, "/spec/schedulingGates", Value::Null);
    let leaves = with(runs, "/metadata/deletionTimestamp", json!("2026-01-02T03:04:05Z"));
    let ended = with(leaves.clone(), "/status", json!({"phase": "Failed"}));
    for change in [group, role, workload] {
        let why = refusals(&with(leaves.clone(), change, Value::Null), Some(&leaves));
        assert!(why.contains("field is immutable"), "{change}: {why}");
        assert_eq!(refusals(&with(ended.clone(), change, Value::Null), Some(&ended)), "", "{change}");
    }
}

#[test]
fn a_pod_of_a_group_keeps_its_role_and_once_it_runs_the_number_of_pods() {
    let gates = "/spec/schedulingGates";
    let (role, count) = (
        "/metadata/annotations/kueue.x-k8s.io~1role-hash",
        "/metadata/annotations/kueue.x-k8s.io~1pod-group-total-count",
    );
    let waits = World::default().create(&grouped());
    let runs = with(waits.clone(), gates, Value::Null);
    let ended = with(runs.clone(), "/status", json!({"phase": "Succeeded"}));
    let immutable = |key: &str, value: &str| {
        format!("metadata.annotations[kueue.x-k8s.io/{key}]: Invalid value: \"{value}\": field is immutable")
    };
    for (old, new, expected) in [
        (&waits, with(waits.clone(), role, json!("other")), immutable("role-hash", "other")),
        (&ended, with(ended.clone(), role, Value::Null), immutable("role-hash", "")),
        (&grouped(), with(grouped(), role, json!("first")), String::new()),
        (&waits, with(waits.clone(), count, json!("4")), String::new()),
        (&waits, with(runs.clone(), count, json!("1")), immutable("pod-group-total-count", "1")),
        (&runs, with(runs.clone(), count, json!("1")), immutable("pod-group-total-count", "1")),
        (&ended, with(ended.clone(), count, json!("1")), immutable("pod-group-total-count", "1")),
        (&with(runs.clone(), count, json!("x")), runs.clone(), String::new()),
    ] {
        assert_eq!(refusals(&new, Some(old)), expected);
    }
}

#[test]
fn a_pod_stays_managed_until_it_has_ended() {
    let managed = "/metadata/labels/kueue.x-k8s.io~1managed";
    let gates = "/spec/schedulingGates";
    let waits = World::default().create(&grouped());
    let runs = with(waits.clone(), gates, Value::Null);
    let refused = "metadata.labels[kueue.x-k8s.io/managed]: Forbidden: managed label can't be removed before the pod has ended";
    for pod in [&waits, &runs] {
        assert_eq!(refusals(&with(pod.clone(), managed, Value::Null), Some(pod)), refused);
    }
    // Nor while it is being deleted, when it may still run; its finalizer may go.
    let leaves = with(runs.clone(), "/metadata/deletionTimestamp", json!("2026-01-02T03:04:05Z"));
    assert_eq!(refusals(&with(leaves.clone(), managed, Value::Null), Some(&leaves)), refused);
    assert_ne!(refusals(&with(leaves.clone(), managed, json!("false")), Some(&leaves)), "");
    assert_eq!(refusals(&with(leaves.clone(), "/metadata/finalizers", json!([])), Some(&leaves)), "");
    let parent = "/metadata/annotations/kueue.x-k8s.io~1pod-suspending-parent";
    assert_ne!(refusals(&with(leaves.clone(), parent, json!("statefulset")), Some(&leaves)), "");
    let gone = with(leaves, "/status", json!({"phase": "Failed"}));
    assert_eq!(refusals(&with(gone.clone(), managed, Value::Null), Some(&gone)), "");
    let ended = with(runs, "/status", json!({"phase": "Failed"}));
    assert_eq!(refusals(&with(ended.clone(), managed, Value::Null), Some(&ended)), "");
}

#[test]
fn a_pod_of_an_admitted_job_says_on_which_workload_it_runs_until_it_has_ended() {
    let mut runs = grouped();
    runs["metadata"] = json!({"name": "a", "annotations": {"kueue.x-k8s.io/workload": "job-a"}});
    let workload = "/metadata/annotations/kueue.x-k8s.io~1workload";
    for value in [Value::Null, json!(""), json!("other")] {
        let refused = refusals(&with(runs.clone(), workload, value.clone()), Some(&runs));
        assert!(
            refused.starts_with("metadata.annotations[kueue.x-k8s.io/workload]: Invalid value"),
            "{value}"
        );
    }
    assert_eq!(refusals(&with(runs.clone(), "/metadata/labels", json!({"a": "b"})), Some(&runs)), "");
    let ended = with(runs, "/status", json!({"phase": "Failed"}));
    assert_eq!(refusals(&with(ended.clone(), workload, Value::Null), Some(&ended)), "");
}

/// What the webhook adds and a start takes away again leaves the pod as its user wrote it, with the marks of a managed pod.
#[test]
fn a_started_pod_is_the_one_that_was_written() {
    let made = World::default().create(&grouped());
    let member = Member::observe(&made, &Gates::default());
    assert!(member.gated && member.held && member.managed);
    assert_eq!(*member.role, *member.pod_set.as_ref().unwrap().name);
    let info = PodSetInfo { name: member.role.to_string(), count: 1, ..PodSetInfo::default() };
    let started = apply(&made, &start(&member, &info).unwrap().unwrap()).unwrap();
    assert_eq!(started["spec"], grouped()["spec"]);
    let again = Member::observe(&started, &Gates::default());
    assert!(again.is_free());
    assert_eq!(again.role, member.role);
    assert_eq!(refusals(&started, Some(&made)), "");
}

proptest::proptest! {
    #[test]
    fn no_pod_makes_it_panic(place in proptest::sample::select(PLACES.to_vec()), value in junk()) {
        let mut odd = World::default().create(&grouped());
        odd["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-pod-index-label"] = json!("team");
        if let Some(at) = odd.pointer_mut(place) {
            *at = value;
        }
        let world = World { manage_all: true, ..World::default() };
        let _ = world.with(|context| mutate_plain_pod(&odd, context, &PodSelectors::default()));
        let _ = refusals(&odd, None);
        let _ = (refusals(&odd, Some(&grouped())), refusals(&grouped(), Some(&odd)));
        let mut group = Group::new(&["team".to_owned()]);
        group.insert(Member::observe(&grouped(), &Gates::default()));
        group.insert(Member::observe(&odd, &Gates::default()));
        let _ = group.compose("g");
        let info = PodSetInfo::default();
        for member in group.members() {
            let _ = (start(member, &info), finalize(member));
        }
    }
}

const PLACES: &[&str] = &[
    "",
    "/metadata",
    "/metadata/labels",
    "/metadata/labels/kueue.x-k8s.io~1pod-group-name",
    "/metadata/annotations",
    "/metadata/annotations/kueue.x-k8s.io~1pod-group-total-count",
    "/metadata/annotations/kueue.x-k8s.io~1pod-group-pod-index-label",
    "/metadata/finalizers",
    "/metadata/finalizers/0",
    "/spec",
    "/spec/schedulingGates",
    "/spec/schedulingGates/0",
    "/spec/containers",
    "/spec/containers/0/resources/requests",
];

/// The webhook sees the pods of JobSets and other jobs, too: what their template asks for is about all of them.
#[test]
fn only_a_pod_that_is_queued_itself_is_held_against_the_size_of_a_slice() {
    let sliced = |pod| {
        let key = |name: &str| format!("/metadata/annotations/kueue.x-k8s.io~1podset-slice-{name}");
        with(with(pod, &key("required-topology"), json!("rack")), &key("size"), json!("2"))
    };
    assert_eq!(refusals(&sliced(pod()), None), "");
    let managed = with(pod(), "/metadata/labels/kueue.x-k8s.io~1managed", json!("true"));
    assert!(refusals(&sliced(managed), None).contains("must not be greater than pod set count 1"));
}
