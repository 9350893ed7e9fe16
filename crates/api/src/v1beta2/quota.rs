//! Quotas, as ClusterQueues and Cohorts declare them (docs/reference/01-api.md 1.2).

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::SUBDOMAIN;

/// Resources that share a list of flavors: a pod set takes all of them from one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
    "message": "flavors must have the same number of resources as the coveredResources",
}]))]
pub struct ResourceGroup {
    /// The resources of this group. Left out, the webhook fills it from what the flavors' resources name.
    #[schemars(length(min = 1, max = 64), extend("x-kubernetes-list-type" = "atomic"))]
    pub covered_resources: Vec<String>,
    /// The flavors in the order in which they are tried.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors: Vec<FlavorQuotas>,
}

/// The quotas of one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FlavorQuotas {
    /// Name of the ResourceFlavor.
    #[schemars(length(max = 253), regex(pattern = SUBDOMAIN))]
    pub name: String,
    /// One quota for each covered resource, in the same order.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub resources: Vec<ResourceQuota>,
}

/// The quota of one resource in one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceQuota {
    /// Name of the resource.
    pub name: String,
    /// What belongs to the queue; on a Cohort, what it adds to its children's.
    pub nominal_quota: Quantity,
    /// How much may be borrowed from the cohort; absent = without limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub borrowing_limit: Option<Quantity>,
    /// How much of the unused nominal quota the cohort may borrow; absent = all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lending_limit: Option<Quantity>,
}

/// Stops the admission of a queue's workloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum StopPolicy {
    /// Not stopped.
    #[default]
    None,
    /// Nothing more is admitted; what runs, and what holds a reservation, continues.
    Hold,
    /// Nothing more is admitted, what is admitted is evicted, reservations are cancelled.
    HoldAndDrain,
}
