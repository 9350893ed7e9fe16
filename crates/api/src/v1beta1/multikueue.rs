//! MultiKueueConfig and MultiKueueCluster (docs/reference/01-api.md 1.10).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::custom_resource;
use crate::v1beta2::{ClusterProfileReference, LocationType};

custom_resource! {
    /// MultiKueueConfig lists the worker clusters of a MultiKueue admission check.
    pub struct MultiKueueConfig("v1beta1", "multikueueconfigs", ClusterResourceScope) {
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
    /// Names of MultiKueueClusters.
    #[schemars(length(min = 1, max = 20), extend("x-kubernetes-list-type" = "set"))]
    pub clusters: Vec<String>,
}

custom_resource! {
    /// MultiKueueCluster is a worker cluster.
    pub struct MultiKueueCluster("v1beta1", "multikueueclusters", ClusterResourceScope) {
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
    /// A kubeconfig.
    pub kube_config: KubeConfig,
    /// Kept so that an object of v1beta2 survives the way back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_profile_ref: Option<ClusterProfileReference>,
}

/// Where a kubeconfig is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KubeConfig {
    /// Name of a Secret in the manager's namespace (key `kubeconfig`), or a path.
    pub location: String,
    /// What `location` is.
    #[schemars(extend("x-default" = "Secret"))]
    pub location_type: LocationType,
}

/// Whether the worker cluster is reached.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiKueueClusterStatus {
    /// `Active`, and why not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::conditions_unbounded")]
    pub conditions: Vec<Condition>,
}
