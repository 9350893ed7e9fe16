//! ProvisioningRequestConfig (docs/reference/01-api.md 1.9).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::kind::custom_resource;
use crate::schema::{QUALIFIED_NAME, SUBDOMAIN};

custom_resource! {
    /// ProvisioningRequestConfig says how nodes are asked for before a workload is admitted.
    pub struct ProvisioningRequestConfig("v1beta2", "provisioningrequestconfigs", ClusterResourceScope) {
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
    #[schemars(length(min = 1, max = 253), regex(pattern = SUBDOMAIN))]
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

/// What happens after a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestRetryStrategy {
    /// How often to try again.
    #[serde(default = "backoff_limit_count")]
    #[schemars(extend("x-default" = 3))]
    pub backoff_limit_count: i32,
    /// The first pause in seconds; each further one is twice as long.
    #[serde(default = "backoff_base_seconds")]
    #[schemars(extend("x-default" = 60))]
    pub backoff_base_seconds: i32,
    /// The longest pause in seconds.
    #[serde(default = "backoff_max_seconds")]
    #[schemars(extend("x-default" = 1800))]
    pub backoff_max_seconds: i32,
}

/// What admitted pods get.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdates {
    /// Node selectors whose values come from the class's details.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"])
    )]
    pub node_selector: Vec<ProvisioningRequestPodSetUpdatesNodeSelector>,
}

/// One node selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProvisioningRequestPodSetUpdatesNodeSelector {
    /// The label.
    #[schemars(length(min = 1, max = 317), regex(pattern = QUALIFIED_NAME))]
    pub key: String,
    /// The detail of the ProvisioningRequest's status whose value is taken.
    #[schemars(length(min = 1, max = 32768))]
    pub value_from_provisioning_class_detail: String,
}

/// Which pod sets are asked for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum ProvisioningRequestPodSetMergePolicy {
    /// Those with equal templates.
    IdenticalPodTemplates,
    /// Those that are equal to the scheduler.
    IdenticalWorkloadSchedulingRequirements,
}

impl Default for ProvisioningRequestRetryStrategy {
    fn default() -> Self {
        Self {
            backoff_limit_count: backoff_limit_count(),
            backoff_base_seconds: backoff_base_seconds(),
            backoff_max_seconds: backoff_max_seconds(),
        }
    }
}

const fn backoff_limit_count() -> i32 {
    3
}

const fn backoff_base_seconds() -> i32 {
    60
}

const fn backoff_max_seconds() -> i32 {
    1800
}
