//! Whether the parameters of a check exist, and the check's condition `Active` (docs/reference/03-conditions-events.md 3.2;
//! docs/reference/06-algorithm.md 6.23).

use sluice_api::labels;
use sluice_api::v1beta2::{AdmissionCheck, ProvisioningRequestConfigSpec};

use crate::engine::Engine;

/// The kind of the parameters.
const KIND: &str = "ProvisioningRequestConfig";
const GROUP: &str = "kueue.x-k8s.io";

impl Engine {
    /// Whether a check is this controller's, as far as it runs.
    pub(crate) fn provisions(&self, check: &str) -> bool {
        self.config.provisioning && self.world.checks.get(check).is_some_and(|c| is_ours(c))
    }

    /// The parameters of a check.
    pub(crate) fn provisioning_config(&self, check: &str) -> Option<&ProvisioningRequestConfigSpec> {
        let check = self.world.checks.get(check)?;
        let name = parameters_of(check).ok()?;
        self.world.provisioning_configs.get(name).map(|c| &c.spec)
    }

    /// The new condition `Active` of a check of ours: status, reason, message.
    pub(crate) fn check_active(&self, check: &AdmissionCheck) -> Option<(bool, &'static str, String)> {
        if !self.config.provisioning || !is_ours(check) {
            return None;
        }
        let missing = |name: &str| format!("{KIND}.{GROUP} {name:?} not found");
        let trouble = match parameters_of(check) {
            Ok(name) if self.world.provisioning_configs.contains_key(name) => None,
            Ok(name) => Some(missing(name)),
            Err(trouble) => Some(trouble),
        };
        Some(match trouble {
            None => (true, "Active", "The admission check is active".to_owned()),
            Some(trouble) => (false, "BadParametersRef", trouble),
        })
    }
}

fn is_ours(check: &AdmissionCheck) -> bool {
    check.spec.controller_name == labels::PROVISIONING_REQUEST_CONTROLLER_NAME
}

/// The name of the ProvisioningRequestConfig that a check names, or what is wrong with the reference.
pub(super) fn parameters_of(check: &AdmissionCheck) -> Result<&str, String> {
    let Some(reference) = &check.spec.parameters else {
        return Err("missing parameters reference".to_owned());
    };
    if reference.api_group != GROUP {
        return Err(format!("wrong group {:?}, expecting {GROUP:?}", reference.api_group));
    }
    if reference.kind != KIND {
        return Err(format!("wrong kind {:?}, expecting {KIND:?}", reference.kind));
    }
    Ok(&reference.name)
}
