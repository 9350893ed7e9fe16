//! Nodes before admission: the ProvisioningRequest controller with a provider that plays every state (docs/reference/06-algorithm.md, 6.23).

use serde_json::{Value, json};
use sluice_engine::{EngineConfig, Kind, ObjectRef, Purpose, WriteError};

use crate::model::build::job;
use crate::model::{Api, Cluster, condition, reported};

pub fn config() -> EngineConfig {
    EngineConfig { status_interval_ms: 0, provisioning: true, ..EngineConfig::default() }
}

/// A queue with check `dws-prov`, its configuration, and job `a` in it.
pub fn cluster(config: EngineConfig, more: &Value) -> Cluster {
    let mut c = Cluster::new(config);
    c.api.namespace("team-a", &[]);
    let parameters =
        json!({"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "dws"});
    let controller = "kueue.x-k8s.io/provisioning-request";
    c.api.put(
        Kind::AdmissionCheck,
        json!({"metadata": {"name": "dws-prov"},
            "spec": {"controllerName": controller, "parameters": parameters}}),
    );
    let mut spec = json!({"provisioningClassName": "queued", "managedResources": ["cpu"]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    c.api.put(Kind::ProvisioningRequestConfig, json!({"metadata": {"name": "dws"}, "spec": spec}));
    c.api.simple("3", &json!({"admissionChecksStrategy": {"admissionChecks": [{"name": "dws-prov"}]}}));
    let mut view = job("team-a", "a", "lq", 3, "1");
    let run = ("provreq.kueue.x-k8s.io/maxRunDurationSeconds".to_owned(), "600".to_owned());
    view.annotations = [run].into();
    c.api.add_job(view);
    c
}

fn waiting() -> Cluster {
    let mut c = cluster(config(), &json!({}));
    c.settle();
    c
}

/// The only ProvisioningRequest.
fn request(c: &Cluster) -> ObjectRef {
    let all = c.api.names(Kind::ProvisioningRequest);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].clone()
}

/// What the provider says about the only request.
pub fn provider(c: &mut Cluster, type_: &str, status: &str, reason: &str, message: &str) {
    let request = request(c);
    let said = json!({"type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": c.now.to_string()});
    c.api.edit_status(&request, |s| {
        let mut conditions = s["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|c| c["type"] != type_);
        conditions.push(said);
        *s = json!({"conditions": conditions, "provisioningClassDetails": {"Zone": "z1"}});
    });
    c.settle();
}

fn check(c: &Cluster) -> sluice_api::v1beta2::AdmissionCheckState {
    c.workload("a").status.unwrap().admission_checks[0].clone()
}

/// State and message of the check.
fn said(c: &Cluster) -> (String, String) {
    let check = check(c);
    (format!("{:?}", check.state), check.message)
}

fn pair(state: &str, message: &str) -> (String, String) {
    (state.to_owned(), message.to_owned())
}

#[test]
fn quota_then_nodes_then_a_start_on_them() {
    let mut c = waiting();
    let active = c.api.json(&ObjectRef::cluster(Kind::AdmissionCheck, "dws-prov")).unwrap();
    let active = &active["status"]["conditions"][0];
    assert_eq!(
        (&active["reason"], &active["message"]),
        (&json!("Active"), &json!("The admission check is active"))
    );
    let w = c.workload("a");
    assert_eq!(condition(&w, "QuotaReserved"), "True");
    assert!(c.api.job("a").view.suspended);

    let name = format!("{}-dws-prov-1", w.metadata.name.as_deref().unwrap());
    let reference = request(&c);
    assert_eq!(*reference.name, *name);
    let asked = c.api.json(&reference).unwrap();
    assert_eq!(
        asked["spec"],
        json!({"provisioningClassName": "queued", "parameters": {"maxRunDurationSeconds": "600"},
            "podSets": [{"podTemplateRef": {"name": format!("ppt-{name}-main")}, "count": 3}]})
    );
    assert_eq!(asked["metadata"]["ownerReferences"][0]["uid"], w.metadata.uid.clone().unwrap());
    assert_eq!(
        c.notes("ProvisioningRequestCreated"),
        [format!("Workload/job-a: Created ProvisioningRequest: {name:?}")]
    );
    let template = c.api.json(&c.api.names(Kind::PodTemplate)[0]).unwrap();
    assert_eq!(template["template"]["spec"]["nodeSelector"], json!({"pool": "default"}));
    assert_eq!(
        template["metadata"]["ownerReferences"][0]["uid"], asked["metadata"]["uid"],
        "it goes with the request"
    );

    provider(&mut c, "Accepted", "True", "Accepted", "ok");
    assert_eq!(said(&c), pair("Pending", ""));
    provider(&mut c, "Provisioned", "False", "NotProvisioned", "in five minutes");
    assert_eq!(said(&c), pair("Pending", "in five minutes"));
    assert_eq!(c.notes("UpdatedAdmissionCheck"), ["Job/a: dws-prov: in five minutes"]);
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    assert_eq!(said(&c), pair("Ready", "nodes are there"));
    assert_eq!(
        c.notes("AdmissionCheckUpdated"),
        [
            "Workload/job-a: Admission check dws-prov updated state from Pending to Ready with message: nodes are there"
        ]
    );
    let started = &c.api.job("a").view;
    assert!(!started.suspended);
    let annotations = &started.pod_sets[0].scheduling.annotations;
    assert_eq!(annotations["autoscaling.x-k8s.io/consume-provisioning-request"], name);
    assert_eq!(annotations["autoscaling.x-k8s.io/provisioning-class-name"], "queued");
    assert_eq!(c.written(Purpose::CreateRequest), 1);
    assert_eq!(c.written(Purpose::MoveTemplate), 1);

    c.api.finish_job("a", true);
    c.settle();
    assert!(c.api.names(Kind::ProvisioningRequest).is_empty());
    assert!(c.api.names(Kind::PodTemplate).is_empty());
}

#[test]
fn an_exceeded_quota_of_the_provider_reaches_the_user() {
    let mut c = waiting();
    let text = "Quota 'NVIDIA_P4_GPUS' exceeded. Limit: 1.0 in region europe-west4.";
    provider(&mut c, "Provisioned", "False", "QuotaExceeded", text);
    assert_eq!(said(&c), pair("Pending", text));
    assert_eq!(c.notes("UpdatedAdmissionCheck"), [format!("Job/a: dws-prov: {text}")]);
    c.advance(10_000);
    assert_eq!(c.api.names(Kind::ProvisioningRequest).len(), 1, "it stays in the provider's queue");
}

#[test]
fn failures_are_retried_with_growing_waits_and_then_rejected() {
    let mut c = cluster(
        config(),
        &json!({"retryStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 60,
        "backoffMaxSeconds": 1800}}),
    );
    c.settle();
    for (attempt, seconds) in [(1, 60), (2, 120)] {
        assert!(request(&c).name.ends_with(&format!("-dws-prov-{attempt}")));
        provider(&mut c, "Failed", "True", "NoStock", "no stock");
        let w = c.workload("a");
        assert_eq!(
            reported(&w, "Evicted"),
            "True/AdmissionCheck: Evicted due to AdmissionCheck in Retry state: \"dws-prov\" (Retrying after failure: no \
             stock)"
        );
        assert_eq!(condition(&w, "QuotaReserved"), "False", "others may use the quota");
        assert_eq!(check(&c).retry_count, Some(attempt));
        assert_eq!(check(&c).requeue_after_seconds, Some(seconds));
        assert!(c.api.names(Kind::ProvisioningRequest).is_empty(), "it went with the eviction");
        c.advance(i64::from(seconds) - 5);
        assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False");
        c.advance(10);
        assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "True");
    }
    provider(&mut c, "Failed", "True", "NoStock", "no stock at all");
    let w = c.workload("a");
    assert_eq!(w.spec.active, Some(false));
    assert_eq!(
        reported(&w, "Evicted"),
        "True/DeactivatedDueToAdmissionCheck: The workload is deactivated due to AdmissionCheck in Rejected state: \
         \"dws-prov\" (no stock at all)"
    );
    assert!(c.api.names(Kind::ProvisioningRequest).is_empty());
}

#[test]
fn without_cleanup_a_spent_request_stays_until_the_next_one_is_there() {
    let cleanup = sluice_api::gates::Gate::CleanupProvisioningRequestsOnEviction;
    let gates = EngineConfig::default().gates.with(cleanup, false);
    let mut c = cluster(EngineConfig { gates, ..config() }, &json!({}));
    c.settle();
    provider(&mut c, "Failed", "True", "NoStock", "no stock");
    assert!(request(&c).name.ends_with("-1"), "kept for those who debug it");
    c.advance(70);
    assert!(request(&c).name.ends_with("-2"));
    assert_eq!(said(&c).0, "Pending");
}

#[test]
fn a_booking_that_expires_before_the_start_is_retried() {
    let mut c = cluster(config(), &json!({}));
    c.fail.push_back((Purpose::Admit, WriteError::Transient("down".to_owned())));
    c.settle();
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    assert_eq!(said(&c).0, "Ready");
    assert!(c.api.job("a").view.suspended);
    provider(&mut c, "BookingExpired", "True", "BookingExpired", "not used for 10 minutes");
    c.advance(2);
    let w = c.workload("a");
    assert!(reported(&w, "Evicted").ends_with("(Retrying after booking expired: not used for 10 minutes)"));
    c.advance(70);
    assert!(request(&c).name.ends_with("-2"));
}

#[test]
fn a_booking_that_expires_under_running_pods_changes_nothing() {
    let mut c = waiting();
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    provider(&mut c, "BookingExpired", "True", "BookingExpired", "not used for 10 minutes");
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(said(&c).0, "Ready");
}

#[test]
fn revoked_capacity_stops_a_running_job_for_good() {
    let mut c = waiting();
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    provider(&mut c, "CapacityRevoked", "True", "CapacityRevoked", "seven days are over");
    assert!(c.api.job("a").view.suspended);
    let w = c.workload("a");
    assert_eq!(w.spec.active, Some(false));
    assert!(reported(&w, "Evicted").ends_with("\"dws-prov\" (seven days are over)"));
    let job = c.api.job("a");
    assert_eq!(job.original[0], job.view.pod_sets[0].scheduling, "its pods no longer name the request");
}

#[test]
fn a_workload_that_asks_for_nothing_managed_needs_no_nodes() {
    let mut c = cluster(config(), &json!({"managedResources": ["nvidia.com/gpu"]}));
    c.settle();
    assert_eq!(said(&c), pair("Ready", "the provisioning request is not needed"));
    assert!(!c.api.job("a").view.suspended);
    assert_eq!(c.written(Purpose::CreateRequest), 0);
}

#[test]
fn a_check_without_its_parameters_is_inactive_and_so_is_its_queue() {
    let mut c = waiting();
    let dws = ObjectRef::cluster(Kind::ProvisioningRequestConfig, "dws");
    c.api.delete(&dws);
    c.settle();
    let check_ref = ObjectRef::cluster(Kind::AdmissionCheck, "dws-prov");
    let active = c.api.json(&check_ref).unwrap()["status"]["conditions"][0].clone();
    assert_eq!(
        (&active["status"], &active["reason"], &active["message"]),
        (
            &json!("False"),
            &json!("BadParametersRef"),
            &json!("ProvisioningRequestConfig.kueue.x-k8s.io \"dws\" not found")
        )
    );
    let queue = c.api.json(&ObjectRef::cluster(Kind::ClusterQueue, "cq")).unwrap();
    assert_eq!(
        queue["status"]["conditions"][0]["message"],
        "Can't admit new workloads: references inactive AdmissionCheck(s): dws-prov."
    );
    assert_eq!(said(&c), pair("Pending", "the check is not active"));
    assert!(c.api.names(Kind::ProvisioningRequest).is_empty(), "docs/reference/11-observed.md 11.1.16");
    assert!(c.api.names(Kind::PodTemplate).is_empty());

    c.advance(600);
    c.api.put(
        Kind::ProvisioningRequestConfig,
        json!({"metadata": {"name": "dws"}, "spec": {"provisioningClassName": "again"}}),
    );
    c.settle();
    assert_eq!(c.api.json(&request(&c)).unwrap()["spec"]["provisioningClassName"], "again");
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn what_pods_run_on_stays_without_the_configuration() {
    let mut c = waiting();
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    let used = request(&c);
    c.api.delete(&ObjectRef::cluster(Kind::ProvisioningRequestConfig, "dws"));
    c.settle();
    assert_eq!((request(&c), said(&c).0), (used, "Ready".to_owned()));
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_configuration_that_was_not_listed_yet_is_not_missing() {
    let mut c = waiting();
    let asked = request(&c);
    c.restart_without(&[Kind::ProvisioningRequestConfig]);
    c.settle();
    assert_eq!(request(&c), asked);
    assert_eq!(c.written(Purpose::DeleteRequest), 0);
}

#[test]
fn a_configuration_that_comes_late_is_asked_for_when_it_is_there() {
    let mut c = cluster(config(), &json!({}));
    let dws = ObjectRef::cluster(Kind::ProvisioningRequestConfig, "dws");
    let spec = c.api.json(&dws).unwrap()["spec"].clone();
    c.api.delete(&dws);
    c.settle();
    assert!(c.api.names(Kind::ProvisioningRequest).is_empty());
    assert!(c.api.job("a").view.suspended);
    c.api.put(Kind::ProvisioningRequestConfig, json!({"metadata": {"name": "dws"}, "spec": spec}));
    c.settle();
    assert!(request(&c).name.ends_with("-dws-prov-1"));
}

#[test]
fn the_removal_of_the_old_templates_is_not_waited_for() {
    let mut c = waiting();
    let first = request(&c);
    c.api.collector_rests = true;
    let before = c.api.names(Kind::PodTemplate);
    let uid = |c: &Cluster| c.api.json(&before[0]).unwrap()["metadata"]["uid"].clone();
    let old = uid(&c);
    c.api.delete(&first);
    c.settle();
    assert_eq!(request(&c).name, first.name, "at once");
    assert_eq!(c.api.names(Kind::PodTemplate), before);
    assert_ne!(uid(&c), old, "the garbage collector would take the old one");
    let owner = &c.api.json(&before[0]).unwrap()["metadata"]["ownerReferences"][0]["uid"];
    assert_eq!(*owner, c.api.json(&request(&c)).unwrap()["metadata"]["uid"]);
    assert_eq!(c.written(Purpose::CreateTemplate), 2);
    assert!(c.notes("FailedCreate").is_empty());
}

#[test]
fn a_changed_configuration_asks_again_unless_nodes_came_already() {
    let mut c = waiting();
    let dws = ObjectRef::cluster(Kind::ProvisioningRequestConfig, "dws");
    let first = request(&c);
    let uid = c.api.json(&first).unwrap()["metadata"]["uid"].clone();
    c.api.edit(&dws, &json!({"spec": {"provisioningClassName": "other"}}));
    c.settle();
    let second = request(&c);
    assert_ne!(c.api.json(&second).unwrap()["metadata"]["uid"], uid);
    assert_eq!(c.api.json(&second).unwrap()["spec"]["provisioningClassName"], "other");
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    assert!(!c.api.job("a").view.suspended);
    c.api.edit(&dws, &json!({"spec": {"provisioningClassName": "third"}}));
    c.settle();
    assert_eq!(request(&c), second, "pods run on it");
    assert!(!c.api.job("a").view.suspended);
}

#[test]
fn a_request_that_its_user_deletes_is_made_again() {
    let mut c = waiting();
    let first = request(&c);
    c.api.delete(&first);
    c.settle();
    assert_eq!(request(&c).name, first.name);
    assert_eq!(c.written(Purpose::CreateRequest), 2);
    assert_eq!(c.api.names(Kind::PodTemplate).len(), 1);
}

#[test]
fn what_cannot_be_created_is_reported_and_tried_again() {
    let mut c = cluster(config(), &json!({}));
    c.fail.push_back((Purpose::CreateTemplate, WriteError::Refused("no".to_owned())));
    c.fail.push_back((Purpose::CreateRequest, WriteError::NotFound("no such kind".to_owned())));
    c.settle();
    c.advance(60);
    let name = request(&c).name;
    assert_eq!(
        c.notes("FailedCreate"),
        [
            format!("Workload/job-a: Error creating PodTemplate \"ppt-{name}-main\": refused: no"),
            format!(
                "Workload/job-a: Error creating ProvisioningRequest {:?}: not found: no such kind",
                &*name
            ),
        ]
    );
}

#[test]
fn a_template_that_was_made_for_one_flavor_is_not_used_for_another() {
    let mut c = cluster(config(), &json!({}));
    let quota = |c: &mut Cluster, first: &str, second: &str| {
        let flavor = |name: &str, cpu: &str| json!({"name": name, "resources": [{"name": "cpu", "nominalQuota": cpu}]});
        let flavors = json!([flavor("default", first), flavor("second", second)]);
        let groups = json!([{"coveredResources": ["cpu"], "flavors": flavors}]);
        let queue = ObjectRef::cluster(Kind::ClusterQueue, "cq");
        c.api.edit(&queue, &json!({"spec": {"resourceGroups": groups}}));
    };
    c.api.flavor("second", &[("pool", "second")]);
    quota(&mut c, "3", "0");
    c.refuse = Some((Purpose::CreateRequest, WriteError::Refused("not yet".to_owned())));
    c.settle();
    let template = c.api.names(Kind::PodTemplate)[0].clone();
    let pool =
        |c: &Cluster| c.api.json(&template).unwrap()["template"]["spec"]["nodeSelector"]["pool"].clone();
    assert_eq!(pool(&c), "default");
    let stop = |c: &mut Cluster, policy: &str| {
        c.api.edit(&ObjectRef::cluster(Kind::ClusterQueue, "cq"), &json!({"spec": {"stopPolicy": policy}}));
        c.settle();
    };
    stop(&mut c, "HoldAndDrain");
    quota(&mut c, "0", "3");
    c.refuse = None;
    stop(&mut c, "None");
    c.advance(400);
    assert_eq!(c.api.names(Kind::PodTemplate), std::slice::from_ref(&template));
    assert_eq!(
        c.api.json(&request(&c)).unwrap()["spec"]["podSets"][0]["podTemplateRef"]["name"],
        *template.name
    );
    assert_eq!(pool(&c), "second");
}

#[test]
fn the_older_annotations_are_there_when_the_configuration_asks_for_them() {
    let mut c = cluster(EngineConfig { old_provisioning_annotations: true, ..config() }, &json!({}));
    c.settle();
    provider(&mut c, "Provisioned", "True", "Provisioned", "nodes are there");
    let annotations = &c.api.job("a").view.pod_sets[0].scheduling.annotations;
    let name = request(&c).name;
    assert_eq!(annotations["cluster-autoscaler.kubernetes.io/consume-provisioning-request"], *name);
    assert_eq!(annotations["cluster-autoscaler.kubernetes.io/provisioning-class-name"], "queued");
}

#[test]
fn a_deactivated_job_gives_its_nodes_back() {
    let mut c = waiting();
    let workload = Api::workload_ref(&c.workload("a"));
    c.api.edit(&workload, &json!({"spec": {"active": false}}));
    c.settle();
    assert!(c.api.names(Kind::ProvisioningRequest).is_empty());
    assert_eq!(condition(&c.workload("a"), "QuotaReserved"), "False");
}

#[test]
fn with_the_controller_off_another_program_answers() {
    let mut c = cluster(EngineConfig { provisioning: false, ..config() }, &json!({}));
    c.settle();
    assert_eq!(c.written(Purpose::CreateRequest), 0);
    let check = c.api.json(&ObjectRef::cluster(Kind::AdmissionCheck, "dws-prov")).unwrap();
    assert!(check.get("status").is_none());
}

/// A process that ends between the request and the hand-over of its templates leaves them as the Workload's; so the next one hands them over
/// before it deletes the request.
#[test]
fn templates_that_were_not_handed_over_go_with_their_request_all_the_same() {
    for refused in [false, true] {
        let mut c = cluster(config(), &json!({}));
        c.slow = Some(Purpose::MoveTemplate);
        c.settle();
        let first = request(&c);
        provider(&mut c, "Failed", "True", "Failed", "no machines");
        assert_eq!(condition(&c.workload("a"), "Evicted"), "True");
        // What was held back is never sent.
        c.slow = None;
        c.refuse = refused.then(|| (Purpose::MoveTemplate, WriteError::Refused("no".to_owned())));
        c.restart();
        c.advance(30);
        assert!(!c.api.names(Kind::ProvisioningRequest).contains(&first), "what it holds is given back");
        let templates = c.api.names(Kind::PodTemplate);
        let of_first = templates.iter().filter(|template| template.name.contains(&*first.name)).count();
        assert_eq!(of_first, usize::from(refused), "{templates:?}");
    }
}
