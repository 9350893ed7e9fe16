//! Hotswap on a control plane with the real scheduler, with the manifests of the guide's page: each test has its own namespace, flavor, queue and
//! node pools.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod bed;
mod crash;
mod explained;
mod page;
#[cfg(feature = "bench-hotswap")]
mod recovery;
mod slices;
mod untouched;
mod whole_slices;
