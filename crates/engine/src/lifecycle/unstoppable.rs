//! Parts of other jobs that the API server refuses to suspend: they are deleted, and their controllers make them again as they should be.

use std::sync::Arc;

use sluice_api::job::JobView;

use super::unheeded::STOP_ENFORCED;
use crate::effect::{Level, Purpose, Write};
use crate::engine::{Alarm, Engine};
use crate::input::WriteError;
use crate::outbox::warning;
use crate::retry::REFUSALS;
use crate::unstoppable::Restores;
use crate::world::{JobEntry, JobKey};

impl JobEntry {
    /// A complete stop was refused. One that begins may be too much for the object, for example because of one more annotation: then the job is only
    /// suspended. One that goes on may restore what its user has made impossible meanwhile: if that is refused for more than a moment, it goes on
    /// with less, so that the job holds no quota for good.
    pub(crate) fn stop_refused(&mut self) {
        let less = if self.view.stopping { self.restores.less() } else { Restores::Nothing };
        let at_once = !self.view.stopping || self.retry.is_refused();
        if !self.view.suspended && at_once && less != self.restores {
            self.restores = less;
            self.retry.end_wait();
        }
    }

    /// Suspending it failed.
    pub(crate) fn suspend_failed(&mut self, error: &WriteError) {
        if matches!(error, WriteError::Refused(_)) {
            let unstoppable = &mut self.trouble.get_or_insert_default().unstoppable;
            unstoppable.refused = unstoppable.refused.saturating_add(1);
        }
    }

    /// It is suspended, may run, or has to be suspended again: earlier refusals do not count any more.
    pub(crate) fn suspend_is_not_refused(&mut self) {
        if let Some(trouble) = &mut self.trouble {
            trouble.unstoppable.refused = 0;
        }
    }
}

impl Engine {
    /// The job that made a job: named by the controlling owner reference with UID, kind and name in its own namespace, and of a kind that makes such
    /// jobs. Users write owner references, too: an object that only claims to be a part is not deleted.
    fn maker(&self, key: &JobKey, view: &JobView) -> Option<&JobKey> {
        let owner = view.controller.as_ref()?;
        let above = self.parent(view)?;
        let is_named = above.kind.is_named_by(&owner.api_version, &owner.kind)
            && *above.name == *owner.name
            && above.namespace == key.namespace;
        let made = &self.world.jobs.get(above).filter(|_| is_named)?.view;
        (self.made(made, view).is_some() || self.is_wrapped(made, view)).then_some(above)
    }

    /// Deletes a job that another job made, that may not run, and that the API server refuses to suspend, for example because its user made it as
    /// large as etcd stores: its controller makes it again as it should be. If the controller makes the same again, it is deleted with a growing
    /// delay. Returns whether it is deleted now.
    pub(super) fn delete_unstoppable(&mut self, key: &JobKey, view: &JobView) -> bool {
        let entry = self.world.jobs.get(key).and_then(|entry| entry.trouble.as_ref());
        let above = self.maker(key, view).cloned();
        let (true, Some(above)) =
            (entry.is_some_and(|trouble| trouble.unstoppable.refused >= u32::from(REFUSALS)), above)
        else {
            return false;
        };
        let now = self.now;
        let maker = self.world.jobs.get_mut(&above);
        if let Some(until) = maker
            .and_then(|maker| maker.trouble.get_or_insert_default().unstoppable.delete(view.created, now))
        {
            self.wake_at(until, Alarm::Job(key.clone()));
            return false;
        }
        let note = format!(
            "{} {:?} may not run and cannot be suspended, so it was deleted",
            key.kind.kind(),
            key.name
        );
        let then = vec![
            warning(self.about_job(key, view), STOP_ENFORCED, note),
            self.log(
                Level::Warn,
                "job that may not run and cannot be suspended deleted",
                &[("job", &key.object()), ("owner", &above.object())],
            ),
        ];
        let uid = Some(Arc::clone(&view.job.uid));
        // Its maker has to wait until its pods are gone.
        let write = Write::Delete { uid, grace_period_seconds: None, foreground: true };
        self.write_job(key, Purpose::DeleteChild, write, then);
        true
    }
}
