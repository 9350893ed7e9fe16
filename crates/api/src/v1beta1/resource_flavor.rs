//! ResourceFlavor: the same in both versions (docs/reference/01-api.md 1.1).

use crate::kind::custom_resource;
use crate::v1beta2::ResourceFlavorSpec;

custom_resource! {
    /// ResourceFlavor names a kind of nodes.
    pub struct ResourceFlavor("v1beta1", "resourceflavors", ClusterResourceScope) {
        always {
            /// What the administrator wants.
            #[serde(default)]
            spec: ResourceFlavorSpec,
        }
        if_some {}
    }
}
