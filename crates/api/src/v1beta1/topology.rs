//! Topology: the levels cannot be changed in this version (docs/reference/01-api.md 1.8).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::custom_resource;
use crate::v1beta2::TopologyLevel;

custom_resource! {
    /// Topology names the levels of a data centre's hierarchy, from the widest to the narrowest.
    pub struct Topology("v1beta1", "topologies", ClusterResourceScope) {
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
    /// From the widest to the narrowest.
    #[schemars(
        length(min = 1, max = 16),
        extend(
            "x-kubernetes-list-type" = "atomic",
            "x-kubernetes-validations" = [
                {"rule": "self == oldSelf", "message": "field is immutable"},
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
