//! The importance of writes.

use sluice_engine::effect::Purpose;

/// How important a write is, the most important first. Leases have a client of their own, and events come after all of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A job starts or stops: quota that it does not need any more is given back, too.
    Jobs,
    /// Quota is given, or taken from pods that outlive their job; or admissions wait for it.
    Admissions,
    /// A Workload is made, or follows its job.
    Workloads,
    /// Ended objects are cleaned up.
    Ends,
    /// Why something waits, and how much of a queue is used.
    Reports,
}

impl Class {
    /// All, the most important first.
    pub const ALL: [Self; 5] = [Self::Jobs, Self::Admissions, Self::Workloads, Self::Ends, Self::Reports];

    /// Its place among all.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Admissions => "admissions",
            Self::Workloads => "workloads",
            Self::Ends => "ends",
            Self::Reports => "reports",
        }
    }

    /// The lane of a write.
    pub const fn of(purpose: Purpose) -> Self {
        match purpose {
            Purpose::StartJob
            | Purpose::StopJob
            | Purpose::SuspendJob
            | Purpose::AskController
            | Purpose::DeleteChild
            | Purpose::UpdateChild
            | Purpose::ReplacePart
            | Purpose::FailPod
            | Purpose::DeletePod
            | Purpose::MovePod
            | Purpose::UngatePod
            | Purpose::RemovePod
            | Purpose::Evict
            | Purpose::ReleaseQuota
            | Purpose::Deactivate
            | Purpose::Reclaim => Self::Jobs,
            Purpose::ReserveQuota
            | Purpose::Admit
            | Purpose::Unblock
            | Purpose::Requeue
            | Purpose::SyncChecks
            | Purpose::UnhealthyNodes
            | Purpose::Place
            | Purpose::EndPods
            | Purpose::Read => Self::Admissions,
            Purpose::CreateWorkload
            | Purpose::UpdateWorkload
            | Purpose::DeleteWorkload
            | Purpose::ResizeSlice
            | Purpose::CreateTemplate
            | Purpose::CreateRequest
            | Purpose::MoveTemplate
            | Purpose::DeleteRequest => Self::Workloads,
            Purpose::Finish
            | Purpose::Finalizer
            | Purpose::ReleaseFinished
            | Purpose::ReleasePod
            | Purpose::DeleteJob
            | Purpose::Replacement => Self::Ends,
            Purpose::Pend | Purpose::Bypassed | Purpose::PodsReady | Purpose::QueueStatus => Self::Reports,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::writer::lanes::Lanes;
    use Purpose as P;

    #[test]
    fn what_jobs_wait_for_goes_before_what_only_reports_on_them() {
        let all: [(Class, &[Purpose]); 5] = [
            (
                Class::Jobs,
                &[
                    P::StartJob,
                    P::StopJob,
                    P::SuspendJob,
                    P::AskController,
                    P::DeleteChild,
                    P::UpdateChild,
                    P::ReplacePart,
                    P::FailPod,
                    P::DeletePod,
                    P::MovePod,
                    P::UngatePod,
                    P::RemovePod,
                    P::Evict,
                    P::ReleaseQuota,
                    P::Deactivate,
                    P::Reclaim,
                ],
            ),
            (
                Class::Admissions,
                &[
                    P::ReserveQuota,
                    P::Admit,
                    P::Unblock,
                    P::Requeue,
                    P::SyncChecks,
                    P::UnhealthyNodes,
                    P::Place,
                    P::EndPods,
                    P::Read,
                ],
            ),
            (
                Class::Workloads,
                &[
                    P::CreateWorkload,
                    P::UpdateWorkload,
                    P::DeleteWorkload,
                    P::ResizeSlice,
                    P::CreateTemplate,
                    P::CreateRequest,
                    P::MoveTemplate,
                    P::DeleteRequest,
                ],
            ),
            (
                Class::Ends,
                &[P::Finish, P::Finalizer, P::ReleaseFinished, P::ReleasePod, P::DeleteJob, P::Replacement],
            ),
            (Class::Reports, &[P::Pend, P::Bypassed, P::PodsReady, P::QueueStatus]),
        ];
        assert!(all.iter().map(|(class, _)| *class).eq(Class::ALL), "the most important first");
        for (class, purposes) in all {
            for purpose in purposes {
                assert_eq!(Class::of(*purpose), class, "{purpose:?}");
            }
        }
    }
    /// How long the quota of a deleted job takes to be back: it is looked for the job's pods, and the Workload goes. A leader that begins finds more
    /// to write, and sends twenty writes in a second.
    fn given_back(look: Class, end: Class) -> Duration {
        const PAUSE: Duration = Duration::from_millis(50);
        let mut lanes = Lanes::<usize, Purpose>::default();
        let others = [(400, P::CreateWorkload), (50, P::Finalizer), (300, P::Pend)];
        let others = others.into_iter().flat_map(|(times, purpose)| std::iter::repeat_n(purpose, times));
        for (key, purpose) in others.enumerate() {
            lanes.push(key, Class::of(purpose), purpose);
        }
        lanes.push(1_000, look, P::EndPods);
        let mut now = Duration::ZERO;
        while let Some((key, _, purpose)) = lanes.pop(now, Class::Reports, |_| false) {
            now += PAUSE;
            lanes.done(&key);
            match purpose {
                P::EndPods => lanes.push(1_000, end, P::ReleaseQuota),
                P::ReleaseQuota => return now,
                _ => {}
            }
        }
        unreachable!("both were sent");
    }

    #[test]
    fn an_eviction_waits_for_the_starts_before_it_and_for_one_admission_in_four_writes() {
        let mut lanes = Lanes::<usize, Purpose>::default();
        for (key, purpose) in [P::UngatePod, P::ReserveQuota].into_iter().cycle().take(200).enumerate() {
            lanes.push(key, Class::of(purpose), purpose);
        }
        lanes.push(1_000, Class::of(P::Evict), P::Evict);
        let sent = std::iter::from_fn(|| lanes.pop(Duration::ZERO, Class::Reports, |_| false));
        let before: Vec<_> = sent.map(|(.., purpose)| purpose).take_while(|sent| *sent != P::Evict).collect();
        let admissions = before.iter().filter(|sent| **sent == P::ReserveQuota).count();
        assert_eq!(
            (before.len(), admissions),
            (133, 33),
            "starts before it, and each fourth is an admission"
        );
    }

    #[test]
    fn quota_of_a_deleted_job_is_back_before_a_short_leader_is_gone() {
        assert!(given_back(Class::of(P::EndPods), Class::of(P::ReleaseQuota)) < Duration::from_secs(1));
        assert!(given_back(Class::Ends, Class::Ends) > Duration::from_secs(15), "as anything that is over");
    }
}
