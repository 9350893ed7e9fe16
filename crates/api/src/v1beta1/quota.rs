//! Quotas: as in v1beta2, but the list of resources has no list type (docs/reference/01-api.md 1.2).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::v1beta2::FlavorQuotas;

/// Resources that share a list of flavors: a pod set takes all of them from one flavor.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self.flavors.all(f, size(f.resources) == size(self.coveredResources))",
    "message": "flavors must have the same number of resources as the coveredResources",
}]))]
pub struct ResourceGroup {
    /// The resources of this group. Left out, the webhook fills it from what the flavors' resources name.
    #[schemars(length(min = 1, max = 64))]
    pub covered_resources: Vec<String>,
    /// The flavors in the order in which they are tried.
    #[schemars(
        length(min = 1, max = 64),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub flavors: Vec<FlavorQuotas>,
}
