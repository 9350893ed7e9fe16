//! Processes a write that arrives.

use sluice_engine::{Input, Kind, Object, Write, WriteError, WriteRequest};

use super::Simulation;

impl Simulation {
    /// Sends a write, and its answer back.
    pub(super) fn carry_out(&mut self, request: &WriteRequest) {
        let result = self.perform(request);
        self.feed(Input::Written { id: request.id, result });
        self.sync_written(request);
    }

    /// Processes a write as the API server does.
    pub(super) fn perform(&mut self, request: &WriteRequest) -> Result<Option<Object>, WriteError> {
        self.writes += 1;
        let result = self.world.perform(request);
        if let Ok(Some(Object::Workload(workload))) = &result {
            self.workload_changed(&request.object, workload);
        }
        result
    }

    /// Lets the job's controller see what a write did to a job.
    pub(super) fn sync_written(&mut self, request: &WriteRequest) {
        let on_job = matches!(
            request.write,
            Write::StartJob { .. }
                | Write::StopJob { .. }
                | Write::SuspendJob { .. }
                | Write::AskController { .. }
                | Write::Pod(_)
        );
        if on_job && let Kind::Job(kind) = request.object.kind {
            self.sync_job(&request.object, kind);
        }
    }
}
