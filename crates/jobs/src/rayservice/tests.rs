//! RayServices: what is read of each state.

use serde_json::json;
use sluice_api::job::JobKind;

use crate::testing::ray::with_status;

#[test]
fn a_service_is_active_while_it_serves() {
    let ready = |status: &str| {
        let condition = json!({"type": "Ready", "status": status});
        with_status(
            JobKind::RAY_SERVICE,
            json!({"conditions": [{"type": "UpgradeInProgress", "status": "True"}, condition]}),
        )
    };
    assert!(ready("True").active && ready("True").pods_ready && ready("True").finished.is_none());
    assert!(!ready("False").active && !ready("False").pods_ready);
}
