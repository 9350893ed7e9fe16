//! Complete control planes: one per test binary, which its tests share with their own namespaces and names, and others for tests that need one
//! exclusively.

use std::ops::Deref;
use std::sync::LazyLock;

use anyhow::Result;
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

use crate::jobset::Controller;
use crate::plane::{Builder, ControlPlane};

/// A plane with controllers, scheduler, kwok and the JobSet controller, without nodes. Everything is stopped when it is dropped.
#[derive(Debug)]
pub struct Complete {
    // Stopped before the API server that it calls.
    _jobset: Controller,
    plane: ControlPlane,
}

impl Complete {
    /// Starts all of it and waits until JobSets can be made.
    ///
    /// # Errors
    ///
    /// When a program cannot be built, or does not serve in time.
    pub async fn start() -> Result<Self> {
        Self::with(ControlPlane::builder()).await
    }

    /// The same on a plane with these additional flags.
    ///
    /// # Errors
    ///
    /// As [`Complete::start`].
    pub async fn with(builder: Builder) -> Result<Self> {
        let plane = builder.complete().start().await?;
        let jobset = Controller::start(&plane).await?;
        jobset.must_not_end();
        Ok(Self { _jobset: jobset, plane })
    }
}

impl Deref for Complete {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        &self.plane
    }
}

static SHARED: OnceCell<Complete> = OnceCell::const_new();

/// The plane that all tests of this binary share.
///
/// A `static` is never dropped; the watchdog stops everything when the test process ends.
///
/// # Errors
///
/// As [`Complete::start`].
pub async fn shared() -> Result<&'static ControlPlane> {
    Ok(SHARED.get_or_try_init(Complete::start).await?)
}

/// What runs tasks of what tests share, such as a [`crate::FaultProxy`]: a test's own runtime takes them along when it ends.
static LASTING: LazyLock<Runtime> = LazyLock::new(|| {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a process may have threads")
});

/// A runtime that lives as long as the test process.
///
/// # Panics
///
/// If the process may not have more threads.
pub fn lasting() -> &'static Runtime {
    &LASTING
}
