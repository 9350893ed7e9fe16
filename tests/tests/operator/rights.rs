//! A manager whose configuration needs more rights than it has ends, and says which are missing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use kube::Client;
use kube::api::{Api, ListParams, PostParams};
use serde_json::{Value, json};
use sluice_testkit::wait::{eventually, progress};
use sluice_testkit::{ControlPlane, Manager, Setup, chart, crds};
use sluice_tests::place::{DEADLINE, Place};

use crate::{declared, external};

/// The log of a manager that does not stay, with these integrations, and the rights of the chart without them.
async fn log_of_the_end(plane: &ControlPlane, setup: &Setup, integrations: Value) -> String {
    let setup = setup.clone().with(&json!({"integrations": integrations}));
    let manager = std::cell::RefCell::new(Manager::launch(plane, setup).await.unwrap());
    eventually("the manager to end", DEADLINE, || async {
        let ended = manager.borrow_mut().ended();
        Ok(progress(ended.is_some_and(|status| !status.success()), format!("{ended:?}")))
    })
    .await
    .unwrap();
    manager.borrow().log().unwrap()
}

#[tokio::test]
async fn a_framework_without_its_rights_is_an_error_at_start() {
    // Its own: the manager has rights and frameworks that are changed, and does not start.
    let plane = ControlPlane::builder().start().await.unwrap();
    let client = plane.client().await.unwrap();
    let setup = Setup::new(&plane).unwrap().with(&json!({"integrations": {"frameworks": ["batch/job"]}}));
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    // Its CRD does not have to be there.
    let frameworks = json!({"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]});
    let log = log_of_the_end(&plane, &setup, frameworks).await;
    // A line of the log is JSON.
    let log = log.replace('\\', "");
    let wanted = "integrations.frameworks \"jobset.x-k8s.io/jobset\" needs: delete jobsets.jobset.x-k8s.io, \
                  get jobsets.jobset.x-k8s.io, list jobsets.jobset.x-k8s.io";
    assert!(log.contains(wanted), "{log}");
    assert!(
        log.contains("managerConfig.controllerManagerConfigYaml") && !log.contains("list jobs.batch"),
        "{log}"
    );

    // A declared kind has no rights either but those that the chart's value gives.
    let declared = json!({"frameworks": ["batch/job"], "declared": [declared::declaration()]});
    let log = log_of_the_end(&plane, &setup, declared).await.replace('\\', "");
    let group = declared::GROUP;
    let wanted = format!(
        "integrations.declared \"{group}/errand\" needs: delete errands.{group}, get errands.{group}, list errands.{group}"
    );
    assert!(log.contains(&wanted) && log.contains("managerConfig.declaredKinds"), "{log}");

    // A kind that others manage is waited for. From the moment that it is there, it must be seen.
    let integrations = json!({"externalFrameworks": [external::ENTRY]});
    let with = setup.clone().with(&json!({"integrations": integrations}));
    let manager = Manager::start(&plane, with).await.unwrap();
    assert!(manager.log().unwrap().contains("it is looked for"), "{}", manager.log_tail(40));
    let manager = std::cell::RefCell::new(manager);
    Box::pin(crds::apply(&client, &[external::crd()])).await.unwrap();
    eventually("the manager to end", DEADLINE, || async {
        let ended = manager.borrow_mut().ended();
        Ok(progress(ended.is_some_and(|status| !status.success()), format!("{ended:?}")))
    })
    .await
    .unwrap();
    let log = manager.borrow().log().unwrap();
    assert!(log.contains("list voyages.external.sluice.dev, watch voyages.external.sluice.dev"), "{log}");
    assert!(log.contains("managerConfig.externalPlurals"), "{log}");

    // With the chart of that configuration it runs.
    let setup = setup.with(&json!({"integrations": integrations}));
    let plurals = json!({"managerConfig": {"externalPlurals": {external::ENTRY: external::PLURAL}}});
    let setup = chart::install(&plane, setup, &plurals).await.unwrap();
    let manager = Manager::start(&plane, setup).await.unwrap();
    assert!(manager.log().unwrap().contains("the CRD is there"), "{}", manager.log_tail(40));
    plane.stop();
}

/// Removes the right to keep owners from being deleted from the manager's role.
async fn revoke_finalizers(client: &Client) {
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let is_of_finalizers =
        |rule: &PolicyRule| rule.resources.iter().flatten().any(|resource| resource.ends_with("/finalizers"));
    for mut role in roles.list(&ListParams::default()).await.unwrap() {
        let of_kubernetes = role.metadata.name.as_ref().unwrap().starts_with("system:");
        let granted = role.rules.get_or_insert_default();
        if !of_kubernetes && granted.iter().any(is_of_finalizers) {
            granted.retain(|rule| !is_of_finalizers(rule));
            role.metadata.managed_fields = None;
            let name = role.metadata.name.clone().unwrap();
            roles.replace(&name, &PostParams::default(), &role).await.unwrap();
        }
    }
}

#[tokio::test]
async fn workloads_name_their_jobs_as_owners_where_the_api_server_asks_for_the_right_to_block_them() {
    // Its own: the API server has another admission plugin.
    let plugin = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement";
    let plane = ControlPlane::builder().api_server_flag(plugin).start().await.unwrap();
    let client = plane.client().await.unwrap();
    let integrations = json!({"frameworks": ["batch/job"], "declared": [declared::declaration()]});
    Box::pin(crds::apply(&client, &[declared::crd()])).await.unwrap();
    let setup = Setup::new(&plane).unwrap().with(&json!({"integrations": integrations}));
    let setup = chart::install(&plane, setup, &json!({})).await.unwrap();
    let manager = Manager::start(&plane, setup).await.unwrap();
    crds::wait_until_converting(&client).await.unwrap();
    let owners = Place::new(&plane, "owners", 4).await.unwrap();
    owners.job("job", "lq", 1).await.unwrap();
    declared::make(&owners, "errand").await;
    for name in ["job", "errand"] {
        let workload = owners.workload(name).await.unwrap();
        let owner = &workload["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["name"], &owner["blockOwnerDeletion"]), (&json!(name), &json!(true)));
    }
    // It is that right of the chart's which lets them.
    revoke_finalizers(&client).await;
    declared::make(&owners, "late").await;
    eventually("the Workload to be refused", DEADLINE, || async {
        let log = manager.log()?;
        Ok(progress(log.contains("cannot set blockOwnerDeletion"), manager.log_tail(5)))
    })
    .await
    .unwrap();
    drop(manager);
    plane.stop();
}
