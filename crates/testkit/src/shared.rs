//! One complete control plane per test binary: suites stay fast because its tests share it, each in namespaces and with
//! names of its own.

use anyhow::Result;
use tokio::sync::OnceCell;

use crate::jobset::StandIn;
use crate::plane::ControlPlane;

struct Shared {
    plane: ControlPlane,
    // Runs on its own thread for as long as the process.
    _jobset: StandIn,
}

static SHARED: OnceCell<Shared> = OnceCell::const_new();

/// The plane that all tests of this binary share: controllers, scheduler, kwok and the JobSet stand-in, without nodes.
///
/// A `static` is never dropped; the watchdog stops everything when the test process ends.
pub async fn shared() -> Result<&'static ControlPlane> {
    let shared = SHARED.get_or_try_init(|| async {
        let plane = ControlPlane::builder().complete().start().await?;
        let jobset = StandIn::start(&plane.kubeconfig_path()).await?;
        anyhow::Ok(Shared { plane, _jobset: jobset })
    });
    Ok(&shared.await?.plane)
}
