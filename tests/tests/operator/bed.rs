//! The plane that the tests of this binary share, with a manager as set up by the chart.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::json;
use sluice_api::job::JobKind;
use sluice_testkit::assets::Tool;
use sluice_testkit::{ControlPlane, Manager, Setup, assets, chart, controllers, crds, nodes, shared};
use tokio::sync::OnceCell;

use crate::{declared, external, gated, kubeflow, shipped};

/// The plane and its manager live as long as the test process; the watchdog stops them with it.
pub struct Bed {
    /// Complete, with the JobSet controller and nodes for every pod that asks for processors.
    pub plane: &'static ControlPlane,
    /// No test stops it.
    pub manager: Manager,
}

static BED: OnceCell<Bed> = OnceCell::const_new();

/// The bed, made when the first test asks for it. Each test has a namespace, flavors and queues with names of its own.
pub async fn bed() -> &'static Bed {
    // On the heap: a test's stack is too small for all of it in a debug build.
    BED.get_or_init(|| Box::pin(make())).await
}

/// The frameworks whose kinds are served.
async fn frameworks(client: &Client) -> Vec<&'static str> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let crds = crds.list_metadata(&ListParams::default()).await.unwrap();
    let names: Vec<_> = crds.into_iter().filter_map(|crd| crd.metadata.name).collect();
    let is_served = |kind: &JobKind| {
        kind.integration().built_into_kubernetes
            || names.contains(&format!("{}.{}", kind.plural(), kind.group()))
    };
    JobKind::ALL.into_iter().filter(is_served).map(JobKind::framework).collect()
}

async fn make() -> Bed {
    let plane = shared().await.unwrap();
    let client = plane.client().await.unwrap();
    nodes::pool("plain", 4).make(&client).await.unwrap();
    // The stories of the others are left out.
    for tool in controllers::TOOLS.into_iter().filter(|tool| assets::is_there(*tool)) {
        controllers::install_crds(&client, tool).await.unwrap();
    }
    let frameworks = frameworks(&client).await;
    let mut own = vec![declared::crd(), external::crd(), gated::crd()];
    own.extend(shipped::crds());
    let mut declarations = vec![declared::declaration(), gated::declaration()];
    declarations.extend(shipped::declarations());
    if assets::is_there(Tool::KubeflowControllers) {
        own.push(kubeflow::crd_of_other_group().await);
        declarations.push(kubeflow::declaration_of_other_group());
    }
    Box::pin(crds::apply(&client, &own)).await.unwrap();
    let setup = Setup::new(plane).unwrap().lasting_leases().with(&json!({
        "integrations": {
            "frameworks": frameworks,
            "declared": declarations,
            "externalFrameworks": [external::ENTRY],
        },
        "featureGates": {"SparkApplicationIntegration": true},
    }));
    let plurals = json!({"managerConfig": {"externalPlurals": {external::ENTRY: external::PLURAL}}});
    let setup = chart::install(plane, setup, &plurals).await.unwrap();
    chart::wait_long_for_webhooks(plane).await.unwrap();
    let manager = Manager::start(plane, setup).await.unwrap();
    manager.must_not_end();
    crds::wait_until_converting(&client).await.unwrap();
    Bed { plane, manager }
}
