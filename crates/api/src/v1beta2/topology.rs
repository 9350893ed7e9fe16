//! Topology (docs/reference/01-api.md 1.8).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::custom_resource;
use crate::schema::QUALIFIED_NAME;

custom_resource! {
    /// Topology names the levels of a data centre's hierarchy, from the widest to the narrowest.
    pub struct Topology("v1beta2", "topologies", ClusterResourceScope) {
        always {
            /// What the administrator wants.
            #[serde(default)]
            spec: TopologySpec,
        }
        if_some {}
    }
}

/// The hierarchy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologySpec {
    /// From the widest to the narrowest. May change only while both the old and the new list end in the host name.
    #[schemars(
        length(min = 1, max = 16),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = [
                {
                    "rule": "self == oldSelf || (self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname' && oldSelf[size(oldSelf) - 1].nodeLabel == 'kubernetes.io/hostname')",
                    "message": "levels are mutable only when kubernetes.io/hostname is the lowest level both before and after the change",
                },
                {
                    "rule": "self.all(a, size(self.filter(b, b.nodeLabel == a.nodeLabel)) == 1)",
                    "message": "must be unique",
                },
                {
                    "rule": "size(self.filter(l, l.nodeLabel == 'kubernetes.io/hostname')) == 0 || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
                    "message": "the kubernetes.io/hostname label can only be used at the lowest level of topology",
                },
            ]
        )
    )]
    pub levels: Vec<TopologyLevel>,
}

/// One level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopologyLevel {
    /// The label whose value names a node's domain at this level.
    #[schemars(length(min = 1, max = 316), regex(pattern = QUALIFIED_NAME))]
    pub node_label: String,
}
