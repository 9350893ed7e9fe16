//! The guide to GPUs with the Dynamic Workload Scheduler, on a control plane whose autoscaler is an older one: it serves ProvisioningRequests in
//! v1beta1 only.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};
use sluice_testkit::wait::{Progress, eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, assets, autoscaler, chart, crds, kubectl, workloads};
use sluice_tests::place::DEADLINE;

fn file(name: &str) -> String {
    assets::workspace().join("examples/dws").join(name).to_str().unwrap().to_owned()
}

async fn run(plane: &ControlPlane, args: &[&str]) -> String {
    kubectl::kubectl(plane, args).await.unwrap()
}

async fn requests(plane: &ControlPlane) -> Vec<Value> {
    let api = autoscaler::requests(&plane.client().await.unwrap(), "v1beta1");
    let all = api.list(&ListParams::default()).await.unwrap().items;
    all.iter().map(|request| serde_json::to_value(request).unwrap()).collect()
}

/// Waits until the Workload of a job is as wanted, and gives it.
async fn workload(plane: &ControlPlane, job: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let client = plane.client().await.unwrap();
    eventually(&format!("the Workload of {job}"), DEADLINE, || async {
        let found = workloads::of_job(&client, "default", job).await?;
        Ok(match found {
            Some(workload) if wanted(&workload) => Progress::Done(workload),
            other => Progress::NotYet(format!("{:?}", other.map(|w| w["status"].to_string()))),
        })
    })
    .await
    .unwrap()
}

/// The objects of a kind in the namespace `default`. By the client: they are looked at many times a second, and each kubectl takes a tenth of one.
async fn all(plane: &ControlPlane, group: &str, kind: &str) -> Vec<Value> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    let api: Api<DynamicObject> = Api::default_namespaced_with(plane.client().await.unwrap(), &kind);
    let all = api.list(&ListParams::default()).await.unwrap().items;
    all.iter().map(|object| serde_json::to_value(object).unwrap()).collect()
}

async fn nothing_is_asked_for(plane: &ControlPlane) {
    eventually("the requests and templates to go", DEADLINE, || async {
        let templates = all(plane, "", "PodTemplate").await;
        let left = requests(plane).await;
        Ok(progress(left.is_empty() && templates.is_empty(), format!("{left:?} {templates:?}")))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn the_guide_reads_the_same_on_an_older_autoscaler_and_over_a_crash() {
    // Its own: the autoscaler is an older one, and the manager is killed.
    let plane = ControlPlane::builder().complete().start().await.unwrap();
    let _autoscaler =
        autoscaler::StandIn::start(&plane.kubeconfig_path(), autoscaler::Served::Older).await.unwrap();
    let setup = Setup::new(&plane).unwrap().alone();
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    let old = json!({"provisioningRequests": {"oldPodAnnotations": true}});
    let manager = Manager::start(&plane, setup.with(&old)).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    run(&plane, &["apply", "-f", &file("nodes.yaml"), "-f", &file("queues.yaml")]).await;

    run(&plane, &["create", "-f", &file("job.yaml")]).await;
    run(&plane, &["wait", "--for=condition=Complete", "--timeout=180s", "job/sample-job"]).await;
    described_as_the_guide_says(&plane).await;
    let pods = run(&plane, &["get", "pods", "-l", "job-name=sample-job", "-o", "json"]).await;
    let pods: Value = serde_json::from_str(&pods).unwrap();
    let annotations = &pods["items"][0]["metadata"]["annotations"];
    for prefix in ["autoscaling.x-k8s.io", "cluster-autoscaler.kubernetes.io"] {
        let name = annotations[format!("{prefix}/consume-provisioning-request")].as_str().unwrap();
        assert!(name.starts_with("job-sample-job-") && name.ends_with("-dws-prov-1"), "{name}");
        assert_eq!(annotations[format!("{prefix}/provisioning-class-name")], "queued-provisioning.gke.io");
    }
    nothing_is_asked_for(&plane).await;

    // The provider's quota keeps a request waiting: the user sees which one. A crash of the manager changes nothing.
    run(&plane, &["create", "-f", &file("waiting-job.yaml")]).await;
    let says = |w: &Value| w["status"]["admissionChecks"][0]["message"] == autoscaler::QUOTA_EXCEEDED;
    workload(&plane, "waiting-job", says).await;
    let before = requests(&plane).await;
    assert_eq!(before.len(), 1);
    assert_eq!(before[0]["spec"]["parameters"]["maxRunDurationSeconds"], "600");
    let owner = &before[0]["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("Workload"), &json!(true)));
    // Events come after all else: one that is not written yet is lost in a crash.
    let asked = format!("dws-prov: {}", autoscaler::QUOTA_EXCEEDED);
    eventually("the user to see which quota", DEADLINE, || async {
        let described = run(&plane, &["describe", "job", "waiting-job"]).await;
        Ok(progress(described.contains(&asked), described))
    })
    .await
    .unwrap();
    let manager = manager.restart(&plane).await.unwrap();
    let after = requests(&plane).await;
    let uid = |all: &[Value]| all.iter().map(|r| r["metadata"]["uid"].clone()).collect::<Vec<_>>();
    assert_eq!(uid(&before), uid(&after));
    let again = without_its_configuration(&plane).await;
    let again = deleted_by_its_user(&plane, &again).await;
    deleted_by_its_user(&plane, &again).await;
    run(&plane, &["delete", "job", "waiting-job"]).await;
    nothing_is_asked_for(&plane).await;

    // A failure gives the quota back, and a second attempt brings the nodes.
    let sooner = json!({"spec": {"retryStrategy": {"backoffBaseSeconds": 1}}}).to_string();
    run(&plane, &["patch", "provisioningrequestconfig", "dws-config", "--type=merge", "-p", &sooner]).await;
    run(&plane, &["create", "-f", &file("retried-job.yaml")]).await;
    let done = workload(&plane, "retried-job", |w| workloads::holds(w, "Finished")).await;
    let check = &done["status"]["admissionChecks"][0];
    assert_eq!((&check["state"], &check["retryCount"]), (&json!("Ready"), &json!(1)));
    let evictions = &done["status"]["schedulingStats"]["evictions"];
    assert_eq!((&evictions[0]["reason"], &evictions[0]["count"]), (&json!("AdmissionCheck"), &json!(1)));
    eventually("the failure to be told", DEADLINE, || async {
        let events = all(&plane, "events.k8s.io", "Event").await;
        let is_reported = |event: &Value| {
            event["reason"] == "AdmissionCheckUpdated"
                && event["reportingController"] == "kueue-provisioning-request-controller"
                && event["note"]
                    .as_str()
                    .is_some_and(|note| note.contains("updated state from Pending to Retry"))
        };
        Ok(progress(events.iter().any(is_reported), format!("{events:#?}")))
    })
    .await
    .unwrap();
    // The requests of a Workload are one series each, sent within ten seconds: of equal notes by one API, of a new one by the other.
    let series = eventually("the series of events", DEADLINE, || async {
        let events = all(&plane, "events.k8s.io", "Event").await;
        let requests = events.iter().filter(|e| e["reason"] == "ProvisioningRequestCreated");
        let reported: Vec<_> = requests
            .filter(|e| e["series"]["count"].is_u64())
            .map(|e| (e["series"]["count"].as_u64().unwrap(), e["note"].as_str().unwrap().to_owned()))
            .collect();
        let has = |count, job: &str, end: &str| {
            let begin = format!("Created ProvisioningRequest: \"job-{job}-");
            reported.iter().any(|(n, note)| *n == count && note.starts_with(&begin) && note.ends_with(end))
        };
        let both = has(3, "waiting-job", "-dws-prov-1\"") && has(2, "retried-job", "-dws-prov-2\"");
        Ok(progress(both, format!("{reported:?}")))
    });
    series.await.unwrap();
    drop(manager);
}

/// Waits until `kubectl describe` shows the events of the guide's job: they come a moment after what they report.
async fn described_as_the_guide_says(plane: &ControlPlane) {
    let events = [
        ("Suspended", "job-controller", "Job suspended"),
        ("CreatedWorkload", "batch/job-kueue-controller", "Created Workload: default/job-sample-job-"),
        ("Started", "batch/job-kueue-controller", "Admitted by clusterQueue dws-cluster-queue"),
        ("SuccessfulCreate", "job-controller", "Created pod: sample-job-"),
        ("Resumed", "job-controller", "Job resumed"),
        ("Completed", "job-controller", "Job completed"),
    ];
    eventually("the events of the guide's job", DEADLINE, || async {
        let described = kubectl::kubectl(plane, &["describe", "job", "sample-job"]).await?;
        for (reason, reporter, note) in events {
            let Some(line) = described.lines().find(|line| line.contains(&format!(" {reason} "))) else {
                return Ok(Progress::NotYet(format!("no event {reason}:\n{described}")));
            };
            if !line.contains(reporter) || !line.contains(note) {
                return Ok(Progress::Never(format!("it reads {line}")));
            }
        }
        Ok(Progress::Done(()))
    })
    .await
    .unwrap();
}

/// Takes the configuration of the check away and gives it back: what it asked for goes, and is asked for anew.
async fn without_its_configuration(plane: &ControlPlane) -> Value {
    let config = run(plane, &["get", "provisioningrequestconfig", "dws-config", "-o", "json"]).await;
    let mut config: Value = serde_json::from_str(&config).unwrap();
    run(plane, &["delete", "provisioningrequestconfig", "dws-config"]).await;
    workload(plane, "waiting-job", |w| {
        w["status"]["admissionChecks"][0]["message"] == "the check is not active"
    })
    .await;
    eventually("the request to go", DEADLINE, || async {
        let left = requests(plane).await;
        Ok(progress(left.is_empty(), format!("{left:?}")))
    })
    .await
    .unwrap();
    config["metadata"] = json!({"name": "dws-config"});
    kubectl::apply(plane, &config.to_string()).await.unwrap();
    asked_again(plane, &Value::Null).await
}

/// Deletes the only request, and waits until there is another.
async fn deleted_by_its_user(plane: &ControlPlane, old: &Value) -> Value {
    let name = old["metadata"]["name"].as_str().unwrap();
    run(plane, &["delete", "provisioningrequests.autoscaling.x-k8s.io", name]).await;
    asked_again(plane, &old["metadata"]["uid"]).await
}

/// Waits until the only request is another one, and its template is its own.
async fn asked_again(plane: &ControlPlane, old: &Value) -> Value {
    eventually("a new request with its template", DEADLINE, || async {
        let asked = requests(plane).await;
        let templates = all(plane, "", "PodTemplate").await;
        let [request] = &asked[..] else { return Ok(Progress::NotYet(format!("{asked:?}"))) };
        let (uid, template) =
            (&request["metadata"]["uid"], &request["spec"]["podSets"][0]["podTemplateRef"]["name"]);
        let own = templates.iter().any(|known| {
            known["metadata"]["name"] == *template && known["metadata"]["ownerReferences"][0]["uid"] == *uid
        });
        Ok(if uid != old && own {
            Progress::Done(request.clone())
        } else {
            Progress::NotYet(format!("{asked:?} {templates:?}"))
        })
    })
    .await
    .unwrap()
}

/// Submits a Job whose attempts the autoscaler answers so.
async fn play(plane: &ControlPlane, name: &str, states: &str) {
    let job = std::fs::read_to_string(file("retried-job.yaml")).unwrap();
    assert!(job.contains("Failed;Accepted,Provisioned"), "{job}");
    let job = job.replace("retried-job", name).replace("Failed;Accepted,Provisioned", states);
    kubectl::apply(plane, &job).await.unwrap();
}

#[tokio::test]
async fn a_booking_that_expires_is_asked_for_again_and_capacity_that_is_revoked_deactivates() {
    // Its own: the guide's manifests name cluster-wide objects, and one of them is changed.
    let plane = ControlPlane::builder().complete().start().await.unwrap();
    let _autoscaler =
        autoscaler::StandIn::start(&plane.kubeconfig_path(), autoscaler::Served::Both).await.unwrap();
    let setup = chart::install(&plane, Setup::new(&plane).unwrap(), &json!({})).await.unwrap();
    let _manager = Manager::start(&plane, setup).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    run(&plane, &["apply", "-f", &file("nodes.yaml"), "-f", &file("queues.yaml")]).await;
    let sooner =
        json!({"spec": {"retryStrategy": {"backoffBaseSeconds": 1, "backoffLimitCount": 1}}}).to_string();
    run(&plane, &["patch", "provisioningrequestconfig", "dws-config", "--type=merge", "-p", &sooner]).await;
    play(&plane, "expired-job", "Accepted,BookingExpired;Accepted,Provisioned").await;
    play(&plane, "always-expires", "Accepted,BookingExpired").await;
    play(&plane, "revoked-job", "Accepted,Provisioned,CapacityRevoked").await;

    let done = workload(&plane, "expired-job", |w| workloads::holds(w, "Finished")).await;
    let check = &done["status"]["admissionChecks"][0];
    assert_eq!((&check["state"], &check["retryCount"]), (&json!("Ready"), &json!(1)));
    let evictions = &done["status"]["schedulingStats"]["evictions"];
    assert_eq!((&evictions[0]["reason"], &evictions[0]["count"]), (&json!("AdmissionCheck"), &json!(1)));

    let why = "The workload is deactivated due to AdmissionCheck in Rejected state: \"dws-prov\"";
    for (job, said) in [
        ("always-expires", "The nodes were not used in time."),
        ("revoked-job", "The nodes were taken away."),
    ] {
        let inactive =
            workload(&plane, job, |w| w["spec"]["active"] == false && workloads::holds(w, "Evicted")).await;
        let evicted = workloads::condition(&inactive, "Evicted").unwrap();
        assert_eq!(evicted["reason"], "DeactivatedDueToAdmissionCheck");
        assert_eq!(evicted["message"], format!("{why} ({said})"));
        let gone =
            |w: &Value| workloads::condition(w, "QuotaReserved").is_some_and(|c| c["status"] == "False");
        workload(&plane, job, gone).await;
        assert_eq!(run(&plane, &["get", "job", job, "-o", "jsonpath={.spec.suspend}"]).await, "true");
    }
    nothing_is_asked_for(&plane).await;
}
