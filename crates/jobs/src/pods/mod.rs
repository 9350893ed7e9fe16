//! Plain pods and pod groups (docs/reference/07-integrations.md 7.3): the second shape of a job.
//!
//! A job of the other kinds is one object, which is suspended and patched. A [`Group`] has members: its pod sets are counted from them, a start or a
//! stop is a write for each, and a stop deletes. A pod without a group is a job of one [`Member`]. [`Composite`] defines the differences between
//! kinds with members.
//!
//! Invariants: the state of a group is updated as members are created, changed and deleted, never by a pass over all of them; the order of these
//! events changes nothing.

mod adapter;
mod changes;
mod compose;
mod composite;
#[cfg(rustfmt)]
mod descriptor;
mod group;
mod member;
mod order;
mod owners;
mod parent;
mod replacement;
mod view;

pub(crate) use adapter::Pod;
pub use changes::{STOP_MANAGER, StopReason, finalize, release, start, termination};
pub use compose::{Against, ComposeError, Composition, RoleCount};
pub use composite::{Composite, GatheredPods, Granted, MemberStop, PlainPods, Whole};
pub use group::Group;
pub use member::{Member, Phase, TotalCount, group_name};
pub(crate) use member::{prebuilt_name, total_count};
pub use owners::{MAX_OWNER_BYTES, is_group_workload, owner_bytes, owner_reference};
pub use parent::Parent;
pub use replacement::{Replacement, replacement};
pub use view::{of_group, of_parent, of_pod};

#[cfg(test)]
mod tests;
