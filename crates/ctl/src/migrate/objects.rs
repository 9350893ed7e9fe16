//! Searches the objects for features that Sluice does not have, and for violations of its rules.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use kube::api::ListParams;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sluice_api::conditions::WorkloadCondition;
use sluice_api::conversion::{Version, convert};
use sluice_api::gates::Gates;
use sluice_api::job::JobKind;
use sluice_api::labels;
use sluice_api::v1beta2::{ClusterQueue, Cohort, ResourceFlavor, Workload};
use sluice_api::validation::{
    FieldError, aggregate, validate_cluster_queue, validate_cohort, validate_resource_flavor,
    validate_workload,
};

use super::definitions::{Definition, Found};
use super::running::Running;

/// Objects per request.
const PAGE: u32 = 500;
/// Names that are listed for each thing found.
const EXAMPLES: usize = 3;

/// Kinds that Sluice ignores.
const IDLE_KINDS: [(&str, &str); 2] = [
    ("multikueueclusters", "jobs are not sent to other clusters (MultiKueue)"),
    ("multikueueconfigs", "jobs are not sent to other clusters (MultiKueue)"),
];

/// The same finding in several objects.
#[derive(Clone, Debug, Default)]
struct Finding {
    count: usize,
    examples: Vec<String>,
}

/// The findings in the objects of all kinds.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    unsupported: BTreeMap<String, Finding>,
    broken: BTreeMap<String, Finding>,
    gates: Gates,
    /// Kinds that other controllers queue.
    external: BTreeSet<JobKind>,
    running: Running,
}

impl Tally {
    /// An empty tally. Some rules depend on the gates.
    pub fn new(gates: Gates) -> Self {
        Self { gates, ..Self::default() }
    }

    /// Jobs of these kinds are started and stopped by others (`integrations.externalFrameworks`).
    #[must_use]
    pub fn with_external(self, external: BTreeSet<JobKind>) -> Self {
        Self { external, ..self }
    }

    /// The features in use that Sluice does not have.
    pub fn unsupported(&self) -> Vec<String> {
        lines(&self.unsupported)
    }

    /// The Workloads of jobs that may run.
    pub const fn running(&self) -> &Running {
        &self.running
    }

    /// The violated rules.
    pub fn broken(&self) -> Vec<String> {
        lines(&self.broken)
    }

    /// Examines one object, in v1beta2.
    pub fn look(&mut self, plural: &str, object: &Value) {
        let name = full_name(plural, object);
        let mut unsupported = Vec::new();
        if let Some((_, what)) = IDLE_KINDS.iter().find(|(idle, _)| *idle == plural) {
            unsupported.push((*what).to_owned());
        }
        let gates = self.gates;
        let errors = match plural {
            "clusterqueues" => {
                if !object["spec"]["concurrentAdmissionPolicy"].is_null() {
                    unsupported
                        .push("several flavors are not tried at once (concurrentAdmissionPolicy)".to_owned());
                }
                rules(object, |queue: &ClusterQueue| validate_cluster_queue(queue, None, gates))
            }
            "cohorts" => rules(object, |cohort: &Cohort| validate_cohort(cohort, None)),
            "resourceflavors" => {
                rules(object, |flavor: &ResourceFlavor| validate_resource_flavor(flavor, None))
            }
            "admissionchecks" => {
                unsupported.extend(check_controller(object));
                None
            }
            "workloads" => {
                unsupported.extend(workload(object, &self.external));
                self.running.look(object);
                rules(object, |workload: &Workload| validate_workload(workload, None, gates))
            }
            _ => None,
        };
        for what in unsupported {
            note(&mut self.unsupported, what, &name);
        }
        if let Some(error) = errors {
            note(&mut self.broken, error, &name);
        }
    }
}

fn check_controller(check: &Value) -> Option<String> {
    let controller = check["spec"]["controllerName"].as_str()?;
    (controller == labels::MULTIKUEUE_CONTROLLER_NAME)
        .then(|| format!("admission checks of {controller} stay pending: Sluice has no such controller"))
}

fn workload(workload: &Value, external: &BTreeSet<JobKind>) -> Vec<String> {
    let finished = workload["status"]["conditions"].as_array().is_some_and(|all| {
        all.iter().any(|c| c["type"] == WorkloadCondition::Finished.as_str() && c["status"] == "True")
    });
    if finished {
        return Vec::new();
    }
    let mut found = Vec::new();
    let owners = workload["metadata"]["ownerReferences"].as_array();
    for owner in owners.into_iter().flatten() {
        let [version, kind] = ["apiVersion", "kind"].map(|key| owner[key].as_str().unwrap_or_default());
        if JobKind::from_owner_or(external, version, kind).is_none() {
            found.push(format!("jobs of kind {kind} are neither started nor stopped"));
        }
    }
    found.sort();
    found.dedup();
    let owners = workload["metadata"]["ownerReferences"].as_array();
    let elastic = workload["metadata"]["annotations"][labels::ELASTIC_JOB] == "true";
    let has_slices = |owner: &Value| {
        let [api_version, kind] = ["apiVersion", "kind"].map(|key| owner[key].as_str().unwrap_or_default());
        JobKind::from_owner(api_version, kind).is_some_and(sluice_jobs::supports_slices)
    };
    if elastic && !owners.into_iter().flatten().all(has_slices) {
        found.push("jobs of its kind do not change their size while they run (elastic jobs)".to_owned());
    }
    found
}

/// The rules that an object violates. An unreadable object violates the first rule.
fn rules<T: DeserializeOwned>(object: &Value, check: impl FnOnce(&T) -> Vec<FieldError>) -> Option<String> {
    match serde_json::from_value(object.clone()) {
        Ok(typed) => {
            let errors = check(&typed);
            (!errors.is_empty()).then(|| aggregate(&errors))
        }
        Err(error) => Some(format!("it cannot be read: {error}")),
    }
}

fn full_name(plural: &str, object: &Value) -> String {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("{plural} {namespace}/{name}"),
        None => format!("{plural} {name}"),
    }
}

fn note(findings: &mut BTreeMap<String, Finding>, what: String, name: &str) {
    let finding = findings.entry(what).or_default();
    finding.count += 1;
    if finding.examples.len() < EXAMPLES {
        finding.examples.push(name.to_owned());
    }
}

fn lines(findings: &BTreeMap<String, Finding>) -> Vec<String> {
    let line = |(what, finding): (&String, &Finding)| {
        let more = finding.count - finding.examples.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("{what}: {}{more}", finding.examples.join(", "))
    };
    findings.iter().map(line).collect()
}

/// Reads and examines all objects of a kind. Returns how many there are, or why they cannot be read.
///
/// They are read in the stored version, which works without a conversion webhook, and converted here.
pub async fn look_at_all(
    client: &Client,
    definition: &Definition,
    found: &Found,
    tally: &mut Tally,
) -> Result<usize, kube::Error> {
    let stored = found.stored.first().filter(|version| found.served.contains(version));
    let version = stored.unwrap_or(&found.storage);
    let api = definition.objects(client, version);
    let (mut count, mut params) = (0, ListParams::default().limit(PAGE));
    loop {
        let list = api.list(&params).await?;
        for object in list.items {
            count += 1;
            let mut object = serde_json::to_value(object).map_err(kube::Error::SerdeError)?;
            object["apiVersion"] = format!("{}/{version}", sluice_api::GROUP).into();
            object["kind"] = definition.kind.clone().into();
            // An object that cannot be converted is reported by the rules below.
            let _ = convert(&mut object, Version::V1beta2);
            tally.look(&definition.plural, &object);
        }
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = ListParams::default().limit(PAGE).continue_token(&token),
            None => return Ok(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_sluice_does_not_have_is_named_with_examples() {
        let mut tally = Tally::new(Gates::default());
        for n in 0..5 {
            let metadata = json!({"name": format!("c{n}")});
            tally.look("multikueueconfigs", &json!({"metadata": metadata, "spec": {"clusters": ["far"]}}));
        }
        // What places pods is there.
        tally.look(
            "topologies",
            &json!({"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": "a"}]}}),
        );
        let flavor = json!({"topologyName": "t", "nodeLabels": {"a": "b"}});
        tally.look("resourceflavors", &json!({"metadata": {"name": "f"}, "spec": flavor}));
        tally.look(
            "admissionchecks",
            &json!({
                "metadata": {"name": "remote"},
                "spec": {"controllerName": "kueue.x-k8s.io/multikueue"},
            }),
        );
        tally
            .look("admissionchecks", &json!({"metadata": {"name": "own"}, "spec": {"controllerName": "me"}}));
        let group = "example.com/v1";
        let owner = json!([{"apiVersion": group, "kind": "Other", "name": "a", "uid": "u"}]);
        let template = json!({"spec": {"containers": [{"name": "c"}]}});
        let spec = json!({"podSets": [{"name": "main", "count": 1, "template": template}]});
        let mut served = json!({
            "metadata": {"name": "w", "namespace": "ns", "ownerReferences": owner}, "spec": spec,
        });
        tally.look("workloads", &served);
        served["status"]["conditions"] = json!([{
            "type": "Finished", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }]);
        tally.look("workloads", &served);
        assert_eq!(
            tally.unsupported(),
            [
                "admission checks of kueue.x-k8s.io/multikueue stay pending: Sluice has no such controller: \
                 admissionchecks remote",
                "jobs are not sent to other clusters (MultiKueue): multikueueconfigs c0, multikueueconfigs c1, \
                 multikueueconfigs c2 and 2 more",
                "jobs of kind Other are neither started nor stopped: workloads ns/w",
            ]
        );
        assert!(tally.broken().is_empty(), "{:?}", tally.broken());
    }

    #[test]
    fn broken_rules_are_named() {
        let mut tally = Tally::new(Gates::default());
        tally.look(
            "resourceflavors",
            &json!({
                "metadata": {"name": "f"}, "spec": {"nodeLabels": {"a b": "c"}},
            }),
        );
        tally.look("cohorts", &json!({"metadata": {"name": "c"}, "spec": {"resourceGroups": 1}}));
        let broken = tally.broken();
        assert_eq!(broken.len(), 2, "{broken:?}");
        assert!(broken[0].contains("it cannot be read") && broken[0].ends_with("cohorts c"), "{broken:?}");
        assert!(
            broken[1].contains("spec.nodeLabels") && broken[1].ends_with("resourceflavors f"),
            "{broken:?}"
        );
    }
}
