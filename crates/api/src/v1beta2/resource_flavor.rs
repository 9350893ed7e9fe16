//! ResourceFlavor (docs/reference/01-api.md 1.1). The same in both versions.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Taint, Toleration};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::custom_resource;
use crate::schema::SUBDOMAIN;

custom_resource! {
    /// ResourceFlavor names a kind of nodes.
    pub struct ResourceFlavor("v1beta2", "resourceflavors", ClusterResourceScope) {
        always {
            /// What the administrator wants.
            #[serde(default)]
            spec: ResourceFlavorSpec,
        }
        if_some {}
    }
}

/// The nodes that a flavor stands for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) >= 1)",
        "message": "at least one nodeLabel is required when topology is set",
    },
    {
        "rule": "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
        "message": "topologyName is immutable when topologyName is set",
    },
]))]
pub struct ResourceFlavorSpec {
    /// Labels of the nodes; become the node selector of admitted pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8, "x-kubernetes-map-type" = "atomic"))]
    pub node_labels: BTreeMap<String, String>,
    /// Taints of the nodes; pods must tolerate those of effect NoSchedule and NoExecute to use the flavor.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::taints")]
    pub node_taints: Vec<Taint>,
    /// Tolerations that admitted pods get, and that count when `nodeTaints` are matched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "crate::schema::tolerations")]
    pub tolerations: Vec<Toleration>,
    /// The Topology of the nodes, for topology aware scheduling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub topology_name: Option<String>,
}
