//! What an earlier admission left in the jobs that a job's controller made.
//!
//! JobSet's controller merges templates into the jobs that it made and removes nothing from them: node selectors of the previous flavor would keep
//! their pods pending for good. Such jobs are deleted before the start; the controller makes them again.
//!
//! MPIJob's controller makes the launcher while the job waits and does not change it later; it would make the launcher again with the same template.
//! The templates of such parts are updated before the start. If the controller makes a part too late for that, from what it saw before the start, the
//! part is stopped, and resumed with the right template.
//!
//! RayService's controller leaves its clusters alone when the job is stopped, until another cluster serves: they are stopped here. A part of the job
//! that waits, because it was stopped here or because it was made before its name was known, is deleted once the job runs: the controller makes its
//! replacement from the job as it is then.

use std::sync::Arc;

use sluice_api::job::{JobPodSet, JobView, PodSetInfo};

use super::workload::later;
use crate::effect::{Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::world::JobKey;

/// For how many seconds after a stop the controller of a part is waited for that has not seen the stop.
const CATCH_UP_SECONDS: i64 = 10;

impl Engine {
    /// Deletes the suspended jobs of a job that will start with these infos, if they carry more; returns whether the start must wait.
    pub(super) fn sweep_children(&mut self, key: &JobKey, view: &JobView, infos: &[PodSetInfo]) -> bool {
        let children = self.world.children.get(&view.job.uid).into_iter().flatten();
        let children: Vec<_> = children.filter(|child| child.namespace == key.namespace).cloned().collect();
        let mut waits = false;
        for child in children {
            let Some(entry) = self.world.jobs.get(&child) else { continue };
            let made = &entry.view;
            let Some(sets) = self.made(view, made).filter(|_| made.finished.is_none()) else { continue };
            // What is not known in full is read first.
            if made.deleting || made.slim || entry.open.is_some() {
                waits = true;
                continue;
            }
            if view.job.kind.is_played_by(made.job.kind) {
                waits |= if self.exceeds_admitted(view, made) {
                    self.replace_part(key, &child)
                } else {
                    self.sweep_below(key, &child, view, infos)
                };
                continue;
            }
            // A part that runs several pod sets is made again for each start.
            let [set] = sets else { continue };
            let Some(info) = infos.iter().find(|info| info.name == set.name) else { continue };
            if view.job.kind.integration().resumes_parts_as_made {
                waits |= self.bring_up_to_date(&child, key, set, info);
                continue;
            }
            waits |= self.sweep(key, &child, set, info);
        }
        waits
    }

    /// Deletes a job that was made of a pod set, if it is of a former admission and carries more than that; says whether the start of the job
    /// `key` must wait for it.
    fn sweep(&mut self, key: &JobKey, child: &JobKey, set: &JobPodSet, info: &PodSetInfo) -> bool {
        let Some(entry) = self.world.jobs.get(child) else { return false };
        let made = &entry.view;
        // A part without a change is as its controller made it: if it were deleted, the controller would make the same.
        if made.generation <= 1 || !made.has_more_than(set, info) {
            return false;
        }
        if !made.suspended {
            // Its controller suspends it, or it is stopped by us.
            return true;
        }
        if let Some(until) = entry.retry.until().filter(|until| *until > self.now) {
            self.wake_at(until, Alarm::Job(key.clone()));
            return true;
        }
        let uid = Arc::clone(&made.job.uid);
        let then = vec![self.log(
            Level::Info,
            "job of a former admission deleted",
            &[("job", &child.object()), ("owner", &key.object())],
        )];
        let write = Write::Delete { uid: Some(uid), grace_period_seconds: None, foreground: false };
        self.write_job(child, Purpose::DeleteChild, write, then);
        true
    }

    /// The same for the jobs below a part that runs all pod sets of the job `key`. They are made from that job's templates: the part may still have
    /// what an earlier admission added, until its own controller has seen the stop.
    fn sweep_below(&mut self, key: &JobKey, part: &JobKey, view: &JobView, infos: &[PodSetInfo]) -> bool {
        let Some(entry) = self.world.jobs.get(part) else { return false };
        let played = Arc::clone(&entry.view);
        let of = |name: &str| {
            let set = view.pod_sets.iter().find(|set| set.name == name)?;
            Some((set, infos.iter().find(|info| info.name == name)?))
        };
        let is_stale = |own: &JobPodSet| {
            of(&own.name).is_some_and(|(set, info)| {
                let (base, adds) = (&set.scheduling.node_selector, &info.scheduling.node_selector);
                own.scheduling
                    .node_selector
                    .keys()
                    .any(|key| !(base.contains_key(key) || adds.contains_key(key)))
            })
        };
        let since = entry.seen.suspended_from.filter(|_| played.pod_sets.iter().any(is_stale));
        if let Some(until) =
            since.map(|since| later(since, CATCH_UP_SECONDS)).filter(|until| *until > self.now)
        {
            self.wake_at(later(self.now, 1).min(until), Alarm::Job(key.clone()));
            return true;
        }
        let children = self.world.children.get(&played.job.uid).into_iter().flatten();
        let children: Vec<_> = children.filter(|child| child.namespace == key.namespace).cloned().collect();
        let mut waits = false;
        for child in children {
            let Some(entry) = self.world.jobs.get(&child) else { continue };
            let Some([own]) = self.made(&played, &entry.view) else { continue };
            let Some((set, info)) = of(&own.name).filter(|_| entry.view.finished.is_none()) else { continue };
            if entry.view.deleting || entry.view.slim || entry.open.is_some() {
                waits = true;
                continue;
            }
            waits |= self.sweep(key, &child, set, info);
        }
        waits
    }

    /// Stops the parts of a stopped job, and deletes waiting parts of a started one, if the controller does neither.
    pub(super) fn tend_parts(&mut self, key: &JobKey, view: &JobView) {
        let leaves_parts = view.job.kind.integration().leaves_parts;
        let skipped = if view.suspended { !leaves_parts } else { !view.job.kind.names_parts() };
        if skipped || view.deleting || view.finished.is_some() {
            return;
        }
        let children = self.world.children.get(&view.job.uid).into_iter().flatten();
        let children: Vec<_> = children.filter(|child| child.namespace == key.namespace).cloned().collect();
        for child in children {
            let Some(entry) = self.world.jobs.get(&child) else { continue };
            let part = Arc::clone(&entry.view);
            let over = part.deleting || part.finished.is_some() || entry.open.is_some();
            if over || part.suspended == view.suspended || self.made(view, &part).is_none() {
                continue;
            }
            // It waits for that part, and would be made again.
            if part.suspended && self.runs_before(view, &part).is_some() {
                continue;
            }
            if let Some(until) = entry.retry.until().filter(|until| *until > self.now) {
                self.wake_at(until, Alarm::Job(key.clone()));
                continue;
            }
            let about: [(&'static str, &dyn ToString); 2] =
                [("job", &child.object()), ("owner", &key.object())];
            if view.suspended {
                if self.delete_unstoppable(&child, &part) {
                    continue;
                }
                let then = vec![self.log(Level::Info, "job of a stopped one is stopped", &about)];
                let write = Write::SuspendJob { view: part };
                self.write_job(&child, Purpose::SuspendJob, write, then);
            } else {
                let then = vec![self.log(Level::Info, "job of a former admission deleted", &about)];
                let uid = Some(Arc::clone(&part.job.uid));
                let write = Write::Delete { uid, grace_period_seconds: None, foreground: false };
                self.write_job(&child, Purpose::DeleteChild, write, then);
            }
        }
    }

    /// Gives a part of the job `above`, made from this pod set, its template; returns whether it does not have it yet.
    fn bring_up_to_date(
        &mut self,
        part: &JobKey,
        above: &JobKey,
        set: &JobPodSet,
        info: &PodSetInfo,
    ) -> bool {
        let Some(entry) = self.world.jobs.get(part) else { return false };
        let view = Arc::clone(&entry.view);
        let wrong = view.lacks(info) || view.has_more_than(set, info);
        if view.ending || !(view.stopping || wrong) {
            return false;
        }
        if let Some(until) = entry.retry.until().filter(|until| *until > self.now) {
            self.wake_at(until, Alarm::Job(above.clone()));
            return true;
        }
        if view.stop_waits {
            return true;
        }
        let infos = view.brought_up_to_date(set, info);
        let then = if view.stopping {
            Vec::new()
        } else {
            let about: [(&'static str, &dyn ToString); 2] =
                [("job", &part.object()), ("owner", &above.object())];
            vec![self.log(Level::Info, "job made before the start is brought up to date", &about)]
        };
        self.write_job(part, Purpose::UpdateChild, Write::StopJob { view, infos }, then);
        true
    }
}
