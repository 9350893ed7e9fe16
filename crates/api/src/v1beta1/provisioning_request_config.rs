//! ProvisioningRequestConfig (docs/reference/01-api.md 1.9).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::custom_resource;
use crate::schema::SUBDOMAIN;
use crate::v1beta2::{
    ProvisioningRequestPodSetMergePolicy, ProvisioningRequestPodSetUpdatesNodeSelector,
    ProvisioningRequestRetryStrategy,
};

custom_resource! {
    /// ProvisioningRequestConfig says how nodes are asked for before a workload is admitted.
    pub struct ProvisioningRequestConfig("v1beta1", "provisioningrequestconfigs", ClusterResourceScope) {
        always {
            /// What the administrator wants.
            #[serde(default)]
            spec: ProvisioningRequestConfigSpec,
        }
        if_some {}
    }
}

/// How nodes are asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestConfigSpec {
    /// The class of the ProvisioningRequests.
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub provisioning_class_name: String,
    /// Handed over to the class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 100, "additionalProperties" = {"type": "string", "maxLength": 255}))]
    pub parameters: BTreeMap<String, String>,
    /// Ask only for pod sets that request one of these; empty = for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100), extend("x-kubernetes-list-type" = "set"))]
    pub managed_resources: Vec<String>,
    /// What happens after a failure.
    #[serde(default)]
    #[schemars(extend("x-default" = {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}))]
    pub retry_strategy: ProvisioningRequestRetryStrategy,
    /// What admitted pods get from the ProvisioningRequest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_updates: Option<ProvisioningRequestPodSetUpdates>,
    /// Which pod sets are asked for together; absent = none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_set_merge_policy: Option<ProvisioningRequestPodSetMergePolicy>,
}

/// What admitted pods get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdates {
    /// Node selectors whose values come from the class's details.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub node_selector: Vec<ProvisioningRequestPodSetUpdatesNodeSelector>,
}
