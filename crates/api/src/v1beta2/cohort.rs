//! Cohort (docs/reference/01-api.md 1.7).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{FairSharing, FairSharingStatus, ResourceGroup};
use crate::kind::custom_resource;
use crate::schema::SUBDOMAIN;

custom_resource! {
    /// Cohort is a node of the tree in which queues share unused quota.
    pub struct Cohort("v1beta2", "cohorts", ClusterResourceScope) {
        always {
            /// What the administrator wants.
            #[serde(default)]
            spec: CohortSpec,
        }
        if_some {
            /// What was observed and decided.
            status: CohortStatus,
        }
    }
}

/// A node of the tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CohortSpec {
    /// The cohort above; absent = this is a root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub parent_name: Option<String>,
    /// Quota on top of the children's, shared by all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "atomic"))]
    pub resource_groups: Vec<ResourceGroup>,
    /// The cohort's part in fair sharing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharing>,
}

/// What a Cohort holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CohortStatus {
    /// The share, where fair sharing is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fair_sharing: Option<FairSharingStatus>,
}
