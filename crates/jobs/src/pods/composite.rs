//! The second shape of a kind: a job that has members.
//!
//! Most jobs are one object, which one patch starts and another stops. A job of these kinds has members, pods that each wait for admission: a start
//! and a stop are a write for each pod concerned, and a stop deletes. [`Composite`] defines what members make together, which of them a start and a
//! stop concern, and what is written to each; the engine knows which members exist and when to write.

use std::fmt::Debug;

use jiff::Timestamp;
use serde_json::Value;
use sluice_api::job::{JobPodSet, JobRef, JobView, PodSetInfo};

use super::changes::{STOP_MANAGER, StopReason, finalize, start, termination};
use super::group::Group;
use super::member::Member;
use super::view::{of_group, of_parent, of_pod};
use crate::patch::Patch;
use crate::scheduling::StartError;

/// The object that members make together.
#[derive(Clone, Debug)]
pub enum Whole<'a> {
    /// A pod by itself.
    Pod,
    /// A group, with the pod sets that its Workload has, or will have.
    Group(JobRef, Vec<JobPodSet>),
    /// An object, as it was seen last, whose pods they are.
    Object(&'a JobView),
}

/// How many pods of a role a Workload is for.
#[derive(Clone, Copy, Debug)]
pub struct Granted<'a> {
    /// The role.
    pub role: &'a str,
    /// Pods that the Workload was made for.
    pub count: i32,
    /// Pods that it still holds quota for: fewer, where some succeeded.
    pub held: i32,
}

/// The writes that stop a member: its status first, then it is deleted.
#[derive(Clone, Debug, PartialEq)]
pub struct MemberStop {
    /// The field manager of the applied status.
    pub field_manager: &'static str,
    /// The status to apply: why it ends.
    pub status: Value,
}

/// A kind whose jobs have members.
pub trait Composite: Debug + Sync {
    /// Whether the members alone make the job: no object speaks for them.
    fn is_of_members_alone(&self) -> bool;

    /// The job that the members make, as the engine sees it; `None` without members that define it.
    fn view(&self, whole: Whole<'_>, members: &Group) -> Option<JobView> {
        match whole {
            Whole::Pod => members.representative().map(of_pod),
            Whole::Group(job, pod_sets) => of_group(job, members, pod_sets),
            Whole::Object(object) => Some(of_parent(object, members)),
        }
    }

    /// For how many members of a role that wait a start is.
    fn room(&self, granted: Granted<'_>, members: &Group) -> usize;

    /// The members that a stop is for.
    fn to_stop<'a>(&self, reason: StopReason<'_>, members: &'a Group) -> Vec<&'a Member>;

    /// The patch that ungates a member, with the additions of admission; `None` for one that does not wait.
    ///
    /// # Errors
    ///
    /// If an addition of admission has another value in the member.
    fn start(&self, member: &Member, info: &PodSetInfo) -> Result<Option<Patch>, StartError> {
        start(member, info)
    }

    /// The writes that stop a member.
    fn stop(&self, member: &Member, reason: StopReason<'_>, message: &str, at: Timestamp) -> MemberStop {
        MemberStop { field_manager: STOP_MANAGER, status: termination(member, reason, message, at) }
    }

    /// The patch that removes our finalizer from a member that is over; `None` if it has none.
    fn release(&self, member: &Member) -> Option<Patch> {
        finalize(member)
    }
}

/// Pods by themselves, alone or in groups (docs/reference/07-integrations.md 7.3).
#[derive(Debug)]
pub struct PlainPods;

impl Composite for PlainPods {
    fn is_of_members_alone(&self) -> bool {
        true
    }

    /// Pods of a group that succeeded give their quota back; a replacement of such a pod waits for the quota of another.
    fn room(&self, granted: Granted<'_>, members: &Group) -> usize {
        places(granted.held).saturating_sub(members.using(granted.role))
    }

    fn to_stop<'a>(&self, reason: StopReason<'_>, members: &'a Group) -> Vec<&'a Member> {
        members.to_stop(reason)
    }
}

/// The pods of an object that gathers them (docs/reference/07-integrations.md 7.4).
#[derive(Debug)]
pub struct GatheredPods;

impl Composite for GatheredPods {
    fn is_of_members_alone(&self) -> bool {
        false
    }

    /// Its controller replaces ended pods.
    fn room(&self, granted: Granted<'_>, members: &Group) -> usize {
        places(granted.count).saturating_sub(members.ungated(granted.role))
    }

    /// The running pods. Its object would replace waiting ones.
    fn to_stop<'a>(&self, _reason: StopReason<'_>, members: &'a Group) -> Vec<&'a Member> {
        members.free().collect()
    }
}

fn places(count: i32) -> usize {
    usize::try_from(count).unwrap_or(0)
}
