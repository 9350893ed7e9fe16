//! MultiKueueConfig and MultiKueueCluster (docs/reference/01-api.md 1.10).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::custom_resource;

custom_resource! {
    /// MultiKueueConfig lists the worker clusters of a MultiKueue admission check.
    pub struct MultiKueueConfig("v1beta2", "multikueueconfigs", ClusterResourceScope) {
        always {
            /// What the administrator wants.
            #[serde(default)]
            spec: MultiKueueConfigSpec,
        }
        if_some {}
    }
}

/// The worker clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueConfigSpec {
    /// Names of MultiKueueClusters; the incremental dispatcher goes by their order.
    #[schemars(
        length(min = 1, max = 20),
        inner(length(max = 256)),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = [{
                "rule": "self.all(a, size(self.filter(b, b == a)) == 1)",
                "message": "must be unique",
            }]
        )
    )]
    pub clusters: Vec<String>,
    /// How the manager's quotas are set (gate MultiKueueManagerQuotaAutomation); absent = by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_management: Option<QuotaManagement>,
}

/// Who sets the manager's quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum QuotaManagement {
    /// The administrator.
    Manual,
    /// They follow the workers' quotas.
    Automated,
}

custom_resource! {
    /// MultiKueueCluster is a worker cluster.
    pub struct MultiKueueCluster("v1beta2", "multikueueclusters", ClusterResourceScope) {
        always {
            /// What the administrator wants.
            #[serde(default)]
            spec: MultiKueueClusterSpec,
        }
        if_some {
            /// What was observed and decided.
            status: MultiKueueClusterStatus,
        }
    }
}

/// How to reach a worker cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterSpec {
    /// Where the credentials are.
    pub cluster_source: ClusterSource,
}

/// Where the credentials are: exactly one of the two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "has(self.kubeConfig) != has(self.clusterProfileRef)",
    "message": "exactly one of the fields in [kubeConfig clusterProfileRef] must be set",
}]))]
pub struct ClusterSource {
    /// A kubeconfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_config: Option<KubeConfig>,
    /// A ClusterProfile (gate MultiKueueClusterProfile).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,
}

/// Where a kubeconfig is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// Name of a Secret in the manager's namespace (key `kubeconfig`), or a path.
    #[schemars(length(min = 1, max = 256))]
    pub location: String,
    /// What `location` is.
    #[serde(default)]
    #[schemars(extend("x-default" = "Secret"))]
    pub location_type: LocationType,
}

/// What a location is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum LocationType {
    /// A Secret's name.
    #[default]
    Secret,
    /// A path in the manager's file system.
    Path,
}

/// A ClusterProfile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileReference {
    /// Its name, in the manager's namespace.
    #[schemars(length(min = 1, max = 256))]
    pub name: String,
}

/// Whether the worker cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterStatus {
    /// `Active`, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions")]
    pub conditions: Vec<Condition>,
}
