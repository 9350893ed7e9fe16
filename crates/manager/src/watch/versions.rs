//! Which version of a resource to use if the API server may serve several.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_engine::input::Kind;

/// The older version of ProvisioningRequest.
pub const OLDER: &str = "v1beta1";

/// The known versions. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Versions(Arc<AtomicBool>);

impl Versions {
    /// Only the older version of ProvisioningRequest is served, or not only.
    pub fn only_older(&self, only: bool) {
        self.0.store(only, Ordering::Relaxed);
    }

    /// The version to write a kind in.
    pub fn of(&self, kind: Kind) -> &'static str {
        if kind == Kind::ProvisioningRequest && self.0.load(Ordering::Relaxed) {
            OLDER
        } else {
            kind.version()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_differ_does() {
        let versions = Versions::default();
        assert_eq!(versions.of(Kind::ProvisioningRequest), "v1");
        versions.clone().only_older(true);
        assert_eq!(versions.of(Kind::ProvisioningRequest), "v1beta1");
        assert_eq!(versions.of(Kind::Node), "v1");
        assert_eq!(versions.of(Kind::Workload), "v1beta2");
    }
}
