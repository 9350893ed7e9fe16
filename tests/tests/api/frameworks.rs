//! Job kinds that this build does not queue: refused if a configuration asks for them, and object by object where Kueue's default list does.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::process::Command;

use serde_json::{Value, json};
use sluice_testkit::kubectl::{apply, kubectl, try_kubectl};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, binary, chart, crds};
use sluice_tests::place::DEADLINE;

/// The Configuration that Kueue's chart comes with.
const KUEUES: &str = include_str!("../../../crates/api/tests/data/config/kueue-default.yaml");
const SENTENCE: &str = "Sluice does not queue objects of this kind: it would run without quota.";

/// What `sluice config check` says of a configuration, and with which code it ends.
fn config_check(text: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, text).unwrap();
    let output = Command::new(binary().unwrap()).args(["config", "check"]).arg(&file).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn config_check_refuses_a_framework_that_somebody_asks_for_and_not_kueues_default_list() {
    let (code, said) = config_check(KUEUES);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(
            r#"warning: integrations.frameworks[15]: "leaderworkerset.x-k8s.io/leaderworkerset" is not built"#
        ),
        "{said}"
    );
    let asked = KUEUES.replace("  - deployment\n", "");
    let (code, said) = config_check(&asked);
    assert_ne!(code, Some(0));
    let place =
        r#"integrations.frameworks[14]: unsupported value "leaderworkerset.x-k8s.io/leaderworkerset""#;
    assert!(
        said.contains(place) && said.contains(r#""batch/job", "deployment", "jobset.x-k8s.io/jobset""#),
        "{said}"
    );
}

fn frameworks() -> Value {
    let configuration: Value = serde_saphyr::from_str(KUEUES).unwrap();
    configuration["integrations"]["frameworks"].clone()
}

/// A kind whose definition comes when the manager has long been running.
const LEADER_WORKER_SET: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: leaderworkersets.leaderworkerset.x-k8s.io, annotations: {api-approved.kubernetes.io: unapproved}}
spec:
  group: leaderworkerset.x-k8s.io
  scope: Namespaced
  names: {plural: leaderworkersets, singular: leaderworkerset, kind: LeaderWorkerSet, listKind: LeaderWorkerSetList}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
";

#[tokio::test]
async fn with_kueues_default_list_no_object_that_names_a_queue_runs_without_quota() {
    let plane = ControlPlane::builder().start().await.unwrap();
    let setup = Setup::new(&plane).unwrap().with(&json!({"integrations": {"frameworks": frameworks()}}));
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    let manager = Manager::start(&plane, setup).await.unwrap();
    crds::wait_until_converting(&plane.client().await.unwrap()).await.unwrap();
    plane.make_namespace("team").await.unwrap();
    let queued = json!({"kueue.x-k8s.io/queue-name": "lq"});
    // From the moment that there is such a kind.
    apply(&plane, LEADER_WORKER_SET).await.unwrap();
    let group = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": "group", "namespace": "team", "labels": queued},
    });
    eventually("LeaderWorkerSets to be refused", DEADLINE, || async {
        let output =
            try_kubectl(&plane.kubeconfig_path(), &["apply", "-f", "-"], Some(&group.to_string())).await?;
        Ok(progress(output.stderr.contains(SENTENCE), output.stderr))
    })
    .await
    .unwrap();
    let unqueued = json!({"apiVersion": group["apiVersion"], "kind": group["kind"],
        "metadata": {"name": "group", "namespace": "team"}});
    apply(&plane, &unqueued.to_string()).await.unwrap();
    // Where nothing refuses them, the manager does not run.
    let setup = manager.kill();
    kubectl(&plane, &["delete", "validatingadmissionpolicybinding", "kueue-frameworks-not-built"])
        .await
        .unwrap();
    let manager = std::cell::RefCell::new(Manager::launch(&plane, setup).await.unwrap());
    eventually("the manager to end", DEADLINE, || async {
        let ended = manager.borrow_mut().ended();
        Ok(progress(ended.is_some_and(|status| !status.success()), format!("{ended:?}")))
    })
    .await
    .unwrap();
    let log = manager.borrow().log().unwrap();
    assert!(
        log.contains("the ValidatingAdmissionPolicy kueue-frameworks-not-built or its binding is missing"),
        "{log}"
    );
    plane.stop();
}
