//! Compares a job and its Workload with a wanted state.

use anyhow::Result;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::format::{Is, State};

/// The resource that a dynamic API is asked for.
pub fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// `None` when the job is as wanted, else what it is instead. `workloads` are all that there are.
///
/// # Errors
/// The API server's.
pub async fn differs(client: &Client, wanted: &State, workloads: &[DynamicObject]) -> Result<Option<String>> {
    let (namespace, name) = wanted.job.split_once('/').unwrap_or(("default", &wanted.job));
    let Some(job) = find_job(client, namespace, name).await? else {
        return Ok(Some("the job does not exist".to_owned()));
    };
    let workload = workloads.iter().find(|workload| {
        workload.owner_references().iter().any(|owner| owner.uid == job.uid().unwrap_or_default())
    });
    Ok(match (wanted.is, workload) {
        (Is::Unmanaged, None) => None,
        (Is::Unmanaged, Some(workload)) => Some(format!("it has the Workload {}", workload.name_any())),
        (Is::Completed, _) => (!completed(&job)).then(|| format!("status {}", job.data["status"])),
        (_, None) => Some("it has no Workload".to_owned()),
        (is, Some(workload)) => workload_differs(wanted, is, &workload.data),
    })
}

async fn find_job(client: &Client, namespace: &str, name: &str) -> Result<Option<DynamicObject>> {
    for resource in
        [resource("batch", "v1", "Job", "jobs"), resource("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")]
    {
        let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
        if let Some(job) = api.get_opt(name).await? {
            return Ok(Some(job));
        }
    }
    Ok(None)
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object.pointer("/status/conditions")?.as_array()?.iter().find(|condition| condition["type"] == type_)
}

fn holds(object: &Value, type_: &str) -> bool {
    condition(object, type_).is_some_and(|condition| condition["status"] == "True")
}

fn completed(job: &DynamicObject) -> bool {
    holds(&job.data, "Complete") || holds(&job.data, "Completed")
}

fn workload_differs(wanted: &State, is: Is, workload: &Value) -> Option<String> {
    let in_state = match is {
        Is::Waiting => !holds(workload, "QuotaReserved") && !holds(workload, "Finished"),
        Is::Reserved => {
            holds(workload, "QuotaReserved") && !holds(workload, "Admitted") && !holds(workload, "Finished")
        }
        Is::Admitted => holds(workload, "Admitted") && !holds(workload, "Finished"),
        _ => holds(workload, "Finished"),
    };
    let reserved = condition(workload, "QuotaReserved");
    let text = |field: &str| reserved.and_then(|condition| condition[field].as_str()).unwrap_or_default();
    let admission = &workload["status"]["admission"];
    let pod_sets = admission["podSetAssignments"].as_array();
    let flavors_differ = wanted.flavors.iter().any(|(resource, flavor)| {
        pod_sets.is_none_or(|sets| sets.iter().any(|set| set["flavors"][resource] != flavor.as_str()))
    });
    let differs = !in_state
        || wanted.cluster_queue.as_ref().is_some_and(|queue| admission["clusterQueue"] != queue.as_str())
        || wanted.priority.is_some_and(|priority| workload["spec"]["priority"] != priority)
        || flavors_differ
        || wanted.reason.as_ref().is_some_and(|reason| text("reason") != reason)
        || wanted.message.as_ref().is_some_and(|part| !text("message").contains(part.as_str()))
        || wanted.ready.is_some_and(|ready| holds(workload, "PodsReady") != ready)
        || wanted.check.as_ref().is_some_and(|part| !check_says(workload, part));
    differs.then(|| {
        let conditions = &workload["status"]["conditions"];
        let checks = &workload["status"]["admissionChecks"];
        let priority = &workload["spec"]["priority"];
        format!("priority {priority}, admission {admission}, checks {checks}, conditions {conditions}")
    })
}

/// Whether the message of an admission check has this part.
fn check_says(workload: &Value, part: &str) -> bool {
    let checks = workload["status"]["admissionChecks"].as_array();
    checks.is_some_and(|checks| {
        checks.iter().any(|check| check["message"].as_str().is_some_and(|text| text.contains(part)))
    })
}
