//! The plane for tests of the definitions alone.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use sluice_testkit::{ControlPlane, crds};
use tokio::sync::OnceCell;

static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();

/// An API server with Sluice's definitions, without a manager and without controllers. Each test has objects with names of its own.
pub async fn definitions() -> &'static ControlPlane {
    PLANE
        .get_or_init(|| async {
            let plane = ControlPlane::builder().start().await.unwrap();
            crds::install(&plane.client().await.unwrap(), None).await.unwrap();
            plane
        })
        .await
}
