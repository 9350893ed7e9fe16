//! Why a job has no Workload.

use serde_json::{Value, json};
use sluice_api::config::{Configuration, selector_matches};
use sluice_api::gates::Gate;
use sluice_api::job::{JobKind, JobView};
use sluice_api::labels;
use sluice_engine::{Kind, ObjectRef, Whole};
use sluice_jobs::pods::group_name;

use super::Question;
use super::advice::Advice;
use super::finding::{Code, Finding, Help};
use super::patch::patch_of;
use super::queues::{labels as labels_of, shown, unmet};
use super::view::View;
use crate::json::text;
use crate::queue_of;

impl Question<'_> {
    /// The whole that a job without a Workload is a part of: from the engine of the cluster, or of a virtual one.
    pub(super) fn whole_of(&self, view: &View<'_>, job: &ObjectRef) -> Option<Whole> {
        match (&self.manifests.subject, view) {
            (Some(subject), _) => subject.whole.clone(),
            (None, View::Played(simulation)) => simulation.engine().whole_of(job),
            (None, View::Read(..)) => None,
        }
    }
}

/// What prevents a Workload for a job. `whole` is what the job is a part of.
pub(super) fn findings(
    view: &View<'_>,
    configuration: &Configuration,
    (reference, job): (&ObjectRef, &Value),
    whole: Option<&Whole>,
) -> Vec<Finding> {
    // The whole is queued, so a queue name or a managed namespace would not help the part.
    if let Some(whole) = whole {
        return vec![part_of_another(&reference.namespace, whole)];
    }
    let mut found: Vec<Finding> = Vec::new();
    found.extend(not_managed(view, configuration, reference, job));
    found.extend(missing_class(view, reference, job));
    found.extend(incomplete_group(view, configuration, reference, job));
    if found.is_empty() {
        found.push(without_workload(view, configuration, reference, job));
    }
    found
}

/// The reason from its object, or else from its events.
fn without_workload(
    view: &View<'_>,
    configuration: &Configuration,
    reference: &ObjectRef,
    job: &Value,
) -> Finding {
    let said = match reference.kind {
        Kind::Job(kind) => of_itself(view, configuration, (kind, reference), job),
        _ => None,
    };
    said.unwrap_or_else(|| {
        let text = "it has no Workload yet: the manager has not seen it, or cannot make one; the events of the job say \
                    what is wrong with it";
        let command = format!(
            "kubectl describe {} {} -n {}",
            reference.kind.as_str().to_ascii_lowercase(),
            reference.name,
            reference.namespace
        );
        Finding::new(Code::WithoutWorkload, text).with(Help::command(Advice::ReadEvents, "read its events", command))
    })
}

/// The job as the engine reads its object, with the template object that it names.
fn observed(view: &View<'_>, kind: JobKind, job: &Value) -> JobView {
    let seen = sluice_jobs::observe(kind, job);
    let template = sluice_jobs::template_of(kind, job).and_then(|used| {
        let object = view.get(&ObjectRef::of_template(&used))?;
        Some(sluice_jobs::template(used.kind, object))
    });
    sluice_jobs::filled(&seen, template.as_ref())
}

/// The Workload that a job names, and where: an annotation goes before the label, and counts only while its gate is on.
fn named_workload<'a>(configuration: &Configuration, job: &'a Value) -> Option<(&'a str, &'static str)> {
    let of = |map: &str| {
        Some(text(&job["metadata"][map][labels::PREBUILT_WORKLOAD_NAME])).filter(|name| !name.is_empty())
    };
    let annotations = configuration.gates.enabled(Gate::WorkloadIdentifierAnnotations);
    let annotation = of("annotations").filter(|_| annotations).map(|name| (name, "annotation"));
    annotation.or_else(|| Some((of("labels")?, "label")))
}

/// The same according to the engine's reading of the object.
fn of_itself(
    view: &View<'_>,
    configuration: &Configuration,
    (kind, reference): (JobKind, &ObjectRef),
    job: &Value,
) -> Option<Finding> {
    let seen = observed(view, kind, job);
    if let Some(trouble) = seen.invalid {
        let text = format!("no Workload can be made of it: {trouble}");
        let help = Help::words(Advice::CorrectJob, "correct the job, or the object that it refers to");
        return Some(Finding::new(Code::WithoutWorkload, text).with(help));
    }
    // Kinds whose Workloads are those of their pods name none.
    if seen.prebuilt_workload.is_some()
        && let Some((name, place)) = named_workload(configuration, job)
        && view.namespaced(Kind::Workload, &reference.namespace, name).is_none()
    {
        let key = labels::PREBUILT_WORKLOAD_NAME;
        let text = format!(
            "it waits for the Workload {name}, named by its {place} {key}: no Workload of that name exists in its queue"
        );
        let help = format!("create the Workload {name}, or create the job again without {key}");
        let help = Help::words(Advice::CreateWorkload, help);
        return Some(Finding::new(Code::WithoutWorkload, text).with(help));
    }
    if kind.gathers_pods() && seen.on_hold == Some(true) {
        let text = "it requests no pods now, so no Workload is queued";
        return Some(
            Finding::new(Code::OnHold, text).with(Help::words(Advice::ScaleUp, "scale the job up again")),
        );
    }
    None
}

/// A job above it is queued, not it.
fn part_of_another(namespace: &str, whole: &Whole) -> Finding {
    let (kind, name) = (whole.kind.kind().to_ascii_lowercase(), &whole.name);
    let explain = |what: &str| format!("kubectl kueue explain {what} -n {namespace}");
    if !whole.kind.is_external() {
        let text = format!(
            "it belongs to the {kind} {name}, which is queued as a whole, and starts and stops this job"
        );
        let (help, command) = (format!("ask about the {kind} {name}"), explain(&format!("{kind} {name}")));
        let help = Help::command(Advice::AskAboutWhole, help, command);
        return Finding::new(Code::PartOfAnother, text).with(help);
    }
    let text = format!("it runs on the quota of the {kind} {name}, which another program queues and starts");
    let (text, help) = if let Some(workload) = &whole.workload {
        let help = format!("ask about the Workload {workload}, which is that of the {kind} {name}");
        let command = explain(&format!("workload {workload}"));
        (
            format!("{text}; its Workload is {workload}"),
            Help::command(Advice::AskAboutWorkload, help, command),
        )
    } else {
        let help = format!("wait until the controller of the {kind} {name} has made its Workload");
        (format!("{text}; it has no Workload yet"), Help::words(Advice::AwaitWorkload, help))
    };
    Finding::new(Code::PartOfAnother, text).with(help)
}

/// The controlling job of a managed kind, if that names no queue.
fn unqueued_owner(view: &View<'_>, configuration: &Configuration, job: &Value) -> Option<ObjectRef> {
    let mut owners = job["metadata"]["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|owner| owner["controller"] == true)?;
    let kind = JobKind::from_owner(text(&owner["apiVersion"]), text(&owner["kind"]))?;
    let namespace = text(&job["metadata"]["namespace"]);
    let above = ObjectRef::namespaced(Kind::Job(kind), namespace, text(&owner["name"]));
    let object = view.get(&above)?;
    let is_it = object["metadata"]["uid"] == owner["uid"] && queue_of(object).is_empty();
    (is_it && configuration.job_kinds().contains(&kind)).then_some(above)
}

fn not_managed(
    view: &View<'_>,
    configuration: &Configuration,
    reference: &ObjectRef,
    job: &Value,
) -> Option<Finding> {
    let namespace = &*reference.namespace;
    let labels_there = view.cluster(Kind::Namespace, namespace).map(labels_of).unwrap_or_default();
    let selector = &configuration.managed_jobs_namespace_selector;
    let named = !queue_of(job).is_empty();
    let knows = view.knows(Kind::Namespace) || view.cluster(Kind::Namespace, namespace).is_some();
    if knows
        && !selector_matches(selector, &labels_there)
        && (named || configuration.manage_jobs_without_queue_name)
    {
        let text = format!(
            "jobs of the namespace {namespace} are not managed: managedJobsNamespaceSelector asks for {}",
            unmet(selector, &labels_there).join(" and ")
        );
        let help = "use another namespace, or let an administrator change managedJobsNamespaceSelector or the labels of \
                    the namespace";
        let finding = Finding::new(Code::NamespaceNotManaged, text)
            .detail(format!("labels of the namespace {namespace}: {}", shown(&labels_there)));
        return Some(finding.with(Help::words(Advice::UseManagedNamespace, help)));
    }
    if named || configuration.manage_jobs_without_queue_name {
        return None;
    }
    let queues = view.of_kind(Kind::LocalQueue);
    let first = queues.iter().find(|(r, _)| *r.namespace == *namespace).map(|(r, _)| r.name.to_string());
    let Kind::Job(kind) = reference.kind else { return None };
    let finding = Finding::new(Code::QueueNameMissing, how_it_runs(kind, job));
    let above = unqueued_owner(view, configuration, job);
    if let Some((above, Kind::Job(kind))) = above.as_ref().map(|above| (above, above.kind)) {
        let (word, name) = (kind.kind().to_ascii_lowercase(), &above.name);
        let said = format!(
            "its controller, the {word} {name}, names no queue; if you give that a queue, it is queued together with all that it creates"
        );
        return Some(finding.detail(said).with(named_queue(kind, above, first.as_deref())));
    }
    Some(finding.with(named_queue(kind, reference, first.as_deref())))
}

/// What happens to a job that is not managed.
fn how_it_runs(kind: JobKind, job: &Value) -> String {
    let facts = kind.integration();
    // A job without a suspend field counts as suspended until its pods are ready.
    if facts.suspends_pods || !sluice_jobs::is_suspended(kind, job) {
        return "it names no queue, so it is not managed and runs at once".to_owned();
    }
    let field = sluice_jobs::suspend_path(kind).join(".");
    let by = if facts.of_pods { "a gate keeps it from running" } else { "its owner has suspended it" };
    format!("it names no queue, so it is not managed; {by} ({field})")
}

/// The help that the job must name a LocalQueue, with its name if there is one.
fn named_queue(kind: JobKind, reference: &ObjectRef, queue: Option<&str>) -> Help {
    let (label, named) = (labels::QUEUE_NAME, queue.unwrap_or("QUEUE"));
    let facts = kind.integration();
    if facts.of_pods {
        // Only a new pod is given the gate that keeps it until it is admitted.
        let text = format!(
            "create it again with the label {label}={named}: on an existing pod the label has no effect"
        );
        return Help::words(Advice::RecreateWithQueue, text);
    }
    let when = if facts.suspends_pods { "none of its pods is ready" } else { "the job is suspended" };
    let help = Help::command(
        Advice::NameQueue,
        format!("name a LocalQueue in the label {label}, while {when}"),
        format!(
            "kubectl label {} {} -n {} {label}={named}",
            reference.kind.as_str().to_ascii_lowercase(),
            reference.name,
            reference.namespace
        ),
    );
    let Some(queue) = queue else { return help };
    help.patch(patch_of(reference, json!({"metadata": {"labels": {label: queue}}})))
}

fn missing_class(view: &View<'_>, reference: &ObjectRef, job: &Value) -> Option<Finding> {
    let name = text(&job["metadata"]["labels"][labels::PRIORITY_CLASS]);
    let known = |kind: Kind, name: &str| !view.knows(kind) || view.cluster(kind, name).is_some();
    if !name.is_empty() && !known(Kind::WorkloadPriorityClass, name) {
        return Some(without_class(view, Kind::WorkloadPriorityClass, name));
    }
    let Kind::Job(kind) = reference.kind else { return None };
    // A class of Workloads goes before that of the pods.
    let named = observed(view, kind, job).pod_priority_class.filter(|_| name.is_empty())?;
    // Kubernetes makes these itself.
    let built_in = named.starts_with("system-");
    let missing = !built_in && !known(Kind::PriorityClass, &named);
    missing.then(|| without_class(view, Kind::PriorityClass, &named))
}

fn without_class(view: &View<'_>, kind: Kind, name: &str) -> Finding {
    let word = kind.as_str();
    let mut finding = Finding::new(
        Code::PriorityClassMissing,
        format!("the {word} {name}, which it names, does not exist"),
    );
    let there: Vec<String> =
        view.of_kind(kind).iter().take(super::MOST_LISTED).map(|(r, _)| r.name.to_string()).collect();
    if !there.is_empty() {
        finding = finding.detail(format!("there are: {}", there.join(", ")));
    }
    finding.with(Help::words(
        Advice::CreatePriorityClass,
        format!("create the {word} {name}, or name one that exists"),
    ))
}

fn incomplete_group(
    view: &View<'_>,
    configuration: &Configuration,
    reference: &ObjectRef,
    job: &Value,
) -> Option<Finding> {
    let group_of = |pod: &Value| group_name(&pod["metadata"], &configuration.gates).map(str::to_owned);
    let group = group_of(job)?;
    let total: usize = text(&job["metadata"]["annotations"][labels::POD_GROUP_TOTAL_COUNT]).parse().ok()?;
    let pods = view.of_kind(reference.kind);
    let is_own = |pod: &Value| group_of(pod).as_ref() == Some(&group);
    let own = pods.iter().filter(|(r, pod)| r.namespace == reference.namespace && is_own(pod));
    let there = own.count().max(1);
    (there < total).then(|| {
        let text = format!("the pod group {group} has {there} of its {total} pods");
        let help = format!("create the {} pods of the group {group} that are missing", total - there);
        Finding::new(Code::PodGroupIncomplete, text).with(Help::words(Advice::CompleteGroup, help))
    })
}
