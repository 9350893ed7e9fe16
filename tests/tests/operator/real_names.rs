//! Kubernetes' own controllers, which have their real names and rights here, work on queued jobs: neither webhooks nor policies are in their way.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use serde_json::json;
use sluice_testkit::wait::{eventually, progress};
use sluice_tests::place::{DEADLINE, Place};

use crate::bed::bed;

const NAME: &str = "real-names";

/// From now on only the controller of Jobs makes pods here, and only that of namespaces deletes Jobs: all others are refused.
async fn let_only_controllers(place: &Place<'_>) {
    let rule = |group: &str, operation: &str, resource: &str| json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]});
    let policy = json!({
        "metadata": {"name": NAME},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAME}},
                "resourceRules": [rule("", "CREATE", "pods"), rule("batch", "DELETE", "jobs")],
            },
            "validations": [{
                "expression": "request.userInfo.username == 'system:serviceaccount:kube-system:' + \
                               (request.operation == 'CREATE' ? 'job-controller' : 'namespace-controller')",
                "message": "this is for a controller",
            }],
        },
    });
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(place.client.clone());
    let params = PostParams::default();
    policies.create(&params, &serde_json::from_value(policy).unwrap()).await.unwrap();
    let binding =
        json!({"metadata": {"name": NAME}, "spec": {"policyName": NAME, "validationActions": ["Deny"]}});
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(place.client.clone());
    bindings.create(&params, &serde_json::from_value(binding).unwrap()).await.unwrap();
    let pod =
        json!({"metadata": {"name": "tried"}, "spec": {"containers": [{"name": "main", "image": "none"}]}});
    let pod = serde_json::from_value(pod).unwrap();
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    eventually("the policy to refuse an administrator's pod", DEADLINE, || async {
        let refused = place.pods().create(&dry, &pod).await.err().map(|error| error.to_string());
        let text = refused.unwrap_or_default();
        Ok(progress(text.contains("this is for a controller"), text))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn controllers_make_the_pods_of_queued_jobs_and_collect_their_namespace_under_their_own_names() {
    let place = Place::new(bed().await.plane, NAME, 1).await.unwrap();
    let_only_controllers(&place).await;
    place.job("runs", "lq", 1).await.unwrap();
    place.wait_until("runs", true).await.unwrap();
    place.job("waits", "lq", 1).await.unwrap();
    place.wait_for_condition("waits", "QuotaReserved", "False/").await.unwrap();
    eventually("a pod of the Job to run", DEADLINE, || async {
        let pods = place.pods().list(&ListParams::default()).await?.items;
        let phases: Vec<_> = pods.into_iter().map(|pod| pod.status.unwrap_or_default().phase).collect();
        Ok(progress(phases == [Some("Running".to_owned())], format!("{phases:?}")))
    })
    .await
    .unwrap();
    let namespaces: Api<Namespace> = Api::all(place.client.clone());
    namespaces.delete(NAME, &DeleteParams::default()).await.unwrap();
    eventually("the namespace to be gone", DEADLINE, || async {
        let left = namespaces.get_opt(NAME).await?;
        let why = left.as_ref().and_then(|left| left.status.clone()).unwrap_or_default();
        Ok(progress(left.is_none(), format!("{why:?}")))
    })
    .await
    .unwrap();
}
