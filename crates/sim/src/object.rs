//! Converts documents to the engine's inputs.

use serde::Deserialize;
use serde_json::Value;
use sluice_api::conversion::{Version, convert};
use sluice_api::gates::Gates;
use sluice_api::job::{JobKind, TemplateKind};
use sluice_api::slim;
use sluice_api::v1beta2::{ClusterQueue, Cohort, ResourceFlavor};
use sluice_api::validation::{validate_cluster_queue, validate_cohort, validate_resource_flavor};
use sluice_api::{GROUP, defaults};
use sluice_engine::{Kind, Object, ObjectRef};

use crate::json::{self, text};
use crate::left_out::is_stored;

/// Every kind that the engine sees, but jobs.
const KINDS: [Kind; 15] = [
    Kind::Namespace,
    Kind::Topology,
    Kind::ResourceFlavor,
    Kind::ProvisioningRequestConfig,
    Kind::AdmissionCheck,
    Kind::Cohort,
    Kind::ClusterQueue,
    Kind::LocalQueue,
    Kind::WorkloadPriorityClass,
    Kind::PriorityClass,
    Kind::LimitRange,
    Kind::RuntimeClass,
    Kind::Node,
    Kind::Workload,
    Kind::ProvisioningRequest,
];

/// Every kind that the engine sees, in an order in which referenced kinds come before the ones that refer to them.
pub(crate) fn kinds() -> impl Iterator<Item = Kind> {
    KINDS
        .into_iter()
        .chain(TemplateKind::ALL.map(Kind::Template))
        .chain(JobKind::all().iter().copied().map(Kind::Job))
}

/// The simulated kind of a document's `apiVersion` and `kind`, for any version of its group.
pub(crate) fn kind_of(api_version: &str, kind: &str) -> Option<Kind> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    kinds().find(|k| k.group() == group && k.as_str() == kind)
}

/// The kind in a decision log, which may be one that is not simulated.
pub(crate) fn recorded_kind(api_version: &str, kind: &str) -> Option<Kind> {
    let external = JobKind::named_externals().into_iter().map(Kind::Job);
    let mut more = [Kind::Pod, Kind::PodTemplate].into_iter().chain(external);
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    kind_of(api_version, kind).or_else(|| more.find(|k| k.group() == group && k.as_str() == kind))
}

/// The kind that a user names, as kubectl takes it: `clusterqueue`, `clusterqueues`, `ClusterQueue`.
pub(crate) fn kind_named(name: &str) -> Option<Kind> {
    let name = name.to_ascii_lowercase();
    kinds().find(|k| k.as_str().to_ascii_lowercase() == name || k.plural() == name)
}

/// A field with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FieldError {
    /// Where in the object, empty for the whole.
    pub path: String,
    /// The problem.
    pub message: String,
}

impl FieldError {
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

/// Decodes a type; on failure once more, to learn where.
fn typed<'de, T: Deserialize<'de>>(value: &'de Value) -> Result<Box<T>, FieldError> {
    T::deserialize(value).map(Box::new).map_err(|_| match serde_path_to_error::deserialize::<_, T>(value) {
        Err(error) => {
            let path = error.path().to_string();
            FieldError::new(if path == "." { String::new() } else { path }, error.inner().to_string())
        }
        Ok(_) => FieldError::new("", "cannot be read"),
    })
}

/// The object as the engine gets it.
pub(crate) fn decode(kind: Kind, value: &Value) -> Result<Object, FieldError> {
    Ok(match kind {
        Kind::ResourceFlavor => Object::ResourceFlavor(typed(value)?),
        Kind::ClusterQueue => Object::ClusterQueue(typed(value)?),
        Kind::LocalQueue => Object::LocalQueue(typed(value)?),
        Kind::Cohort => Object::Cohort(typed(value)?),
        Kind::AdmissionCheck => Object::AdmissionCheck(typed(value)?),
        Kind::Topology => Object::Topology(typed(value)?),
        Kind::Workload => Object::Workload(typed(value)?),
        Kind::WorkloadPriorityClass => Object::WorkloadPriorityClass(typed(value)?),
        Kind::PriorityClass => Object::PriorityClass(typed(value)?),
        Kind::Namespace => Object::Namespace(typed(value)?),
        Kind::Node => {
            let mut node = typed::<slim::Node>(value)?;
            // Manifests never contain it.
            node.ready.get_or_insert(true);
            Object::Node(node)
        }
        Kind::LimitRange => Object::LimitRange(typed(value)?),
        Kind::RuntimeClass => Object::RuntimeClass(typed(value)?),
        Kind::Pod => Object::Pod(typed(value)?),
        Kind::JobPod => Object::JobPod(typed(value)?),
        Kind::ProvisioningRequestConfig => Object::ProvisioningRequestConfig(typed(value)?),
        Kind::ProvisioningRequest => Object::ProvisioningRequest(typed(value)?),
        Kind::Template(kind) => Object::Template(Box::new(sluice_jobs::template(kind, value))),
        Kind::Job(job) if job.integration().of_pods => {
            Object::QueuedPod(Box::new(sluice_jobs::pods::Member::observe(value, &Gates::default())))
        }
        Kind::Job(job) => Object::Job(Box::new(sluice_jobs::observe(job, value))),
        Kind::PodTemplate => return Err(FieldError::new("", "a PodTemplate is written, and never read")),
    })
}

/// Makes of a document what the API server would store: converted to the stored version, defaulted, and checked by the
/// same rules as on a cluster.
pub(crate) fn admit(
    kind: Kind,
    object: &mut Value,
    old: Option<&Value>,
    gates: Gates,
) -> Result<(), FieldError> {
    let Some(root) = object.as_object_mut() else { return Err(FieldError::new("", "expected an object")) };
    if root.get("metadata").is_none_or(|m| text(&m["name"]).is_empty()) {
        return Err(FieldError::new("metadata.name", "expected a name"));
    }
    if kind.group() == GROUP {
        convert(object, Version::V1beta2).map_err(|error| FieldError::new("", error.to_string()))?;
    }
    if kind.namespaced() && text(&object["metadata"]["namespace"]).is_empty() {
        object["metadata"]["namespace"] = Value::from("default");
    }
    let filled = match kind {
        Kind::ClusterQueue => [defaults::finalizer(object), defaults::covered_resources(object)].concat(),
        Kind::Cohort => defaults::covered_resources(object),
        Kind::ResourceFlavor => defaults::finalizer(object),
        Kind::Workload => defaults::min_count(object, gates),
        _ => Vec::new(),
    };
    let filled: Vec<_> = filled.iter().filter_map(|o| serde_json::to_value(o).ok()).collect();
    json::apply(object, &filled).map_err(|why| FieldError::new("", why))?;
    let decoded = decode(kind, object)?;
    // An object that an API server has stored is used as it is, even if today's rules for new objects forbid it.
    let new = old.is_some() || !is_stored(object);
    let errors = match decoded {
        Object::ClusterQueue(_) | Object::Cohort(_) | Object::ResourceFlavor(_) if !new => Vec::new(),
        Object::ClusterQueue(new) => {
            let old = old.and_then(|o| ClusterQueue::deserialize(o).ok());
            validate_cluster_queue(&new, old.as_ref(), gates)
        }
        Object::Cohort(new) => validate_cohort(&new, old.and_then(|o| Cohort::deserialize(o).ok()).as_ref()),
        Object::ResourceFlavor(new) => {
            validate_resource_flavor(&new, old.and_then(|o| ResourceFlavor::deserialize(o).ok()).as_ref())
        }
        Object::Job(view) => match view.invalid {
            Some(why) => return Err(FieldError::new("", why)),
            None => Vec::new(),
        },
        _ => Vec::new(),
    };
    if errors.is_empty() {
        return Ok(());
    }
    Err(FieldError::new("", sluice_api::validation::aggregate(&errors)))
}

/// A document that does not say whether the job is suspended does not change that.
pub(crate) fn keep_suspension(kind: JobKind, old: &Value, new: &mut Value) {
    let pointer = format!("/{}", sluice_jobs::suspend_path(kind).join("/"));
    let (Some(is), None) = (old.pointer(&pointer), new.pointer(&pointer)) else { return };
    let (is, (parents, field)) = (is.clone(), pointer.rsplit_once('/').unwrap_or_default());
    if let Some(parent) = new.pointer_mut(parents).filter(|parent| parent.is_object()) {
        parent[field] = is;
    }
}

/// Whether the engine looks at nodes for what a ClusterQueue admits: Hotswap.
pub(crate) fn looks_at_nodes(queue: &Value) -> bool {
    queue["spec"]["preemption"]["reclaimOutOfCohort"]["enable"] == true
}

/// The name of a document of that kind.
pub(crate) fn reference(kind: Kind, value: &Value) -> ObjectRef {
    let metadata = &value["metadata"];
    let namespace = if kind.namespaced() { text(&metadata["namespace"]) } else { "" };
    ObjectRef { kind, namespace: namespace.into(), name: text(&metadata["name"]).into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_page_of_the_examples_lists_what_is_simulated() {
        let page = include_str!("../../../examples/simulate/README.md");
        let (_, section) = page.split_once("## What is simulated").unwrap();
        let (list, _) = section.split_once("Other kinds").unwrap();
        let names = KINDS.map(Kind::as_str);
        for kind in names.into_iter().chain(["Job", "JobSet", "StatefulSet", "LeaderWorkerSet"]) {
            let plural = match kind.strip_suffix('y') {
                Some(stem) => format!("{stem}ies"),
                None if kind.ends_with("ss") => format!("{kind}es"),
                None => format!("{kind}s"),
            };
            assert!(list.split([' ', ',', '\n']).any(|word| word == plural), "{plural}");
        }
    }

    #[test]
    fn both_versions_are_taken_and_mistakes_name_their_field() {
        let mut queue = json!({
            "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "a"},
            "spec": {"cohort": "c", "resourceGroups": []},
        });
        admit(Kind::ClusterQueue, &mut queue, None, Gates::default()).unwrap();
        assert_eq!(queue["spec"]["cohortName"], "c");
        queue["spec"]["resourceGroups"] = json!([{"coveredResources": ["cpu"], "flavors": [{"name": 1}]}]);
        let wrong = admit(Kind::ClusterQueue, &mut queue, None, Gates::default()).unwrap_err();
        assert_eq!(wrong.path, "spec.resourceGroups[0].flavors[0].name");
        assert!(wrong.message.contains("expected a string"), "{}", wrong.message);
    }

    #[test]
    fn kinds_are_found_as_users_name_them() {
        assert_eq!(kind_of("kueue.x-k8s.io/v1beta1", "LocalQueue"), Some(Kind::LocalQueue));
        assert_eq!(kind_of("apps/v1", "Deployment"), Some(Kind::Job(JobKind::DEPLOYMENT)));
        assert_eq!(kind_of("apps/v1", "DaemonSet"), None);
        assert_eq!(kind_named("ClusterQueues"), Some(Kind::ClusterQueue));
        assert_eq!(kind_named("jobset"), Some(Kind::Job(JobKind::JOB_SET)));
    }
}
