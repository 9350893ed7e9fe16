//! What a job is told about itself.

use sluice_api::job::JobView;

use crate::effect::{EventType, Level};
use crate::engine::Engine;
use crate::outbox::event;
use crate::world::JobKey;

impl Engine {
    /// Reports something about a job, once.
    pub(crate) fn report_job(
        &mut self,
        key: &JobKey,
        view: &JobView,
        type_: EventType,
        why: &str,
        note: &str,
    ) {
        let reported = format!("{why}: {note}");
        let Some(entry) = self.world.jobs.get_mut(key) else { return };
        if entry.reported.as_ref() == Some(&reported) {
            return;
        }
        entry.reported = Some(reported);
        self.outbox.push(event(self.about_job(key, view), type_, why, note));
        self.outbox.push(self.log(Level::Warn, "job left alone", &[("job", &key.object()), ("why", &note)]));
    }
}
