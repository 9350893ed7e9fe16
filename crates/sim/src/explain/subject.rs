//! The job or Workload of the question, as it was read from a cluster.

use serde_json::Value;
use sluice_engine::Whole;

use crate::unread::Unread;

/// What was read of the job or Workload of the question, even if it has ended and is left out of the world.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// Its Workload.
    pub workload: Option<Value>,
    /// The job.
    pub job: Option<Value>,
    /// The whole that the job is a part of, if it has no Workload for that reason; from the engine.
    pub whole: Option<Whole>,
    /// Its pods that are pending, and others of its own.
    pub pods: Vec<Value>,
    /// Whether all of its own that have not failed are among them.
    pub all_pods: bool,
    /// Whether more are pending than were read.
    pub more_pods: bool,
    /// Events about the Workload, or about the job that has none: a bounded number.
    pub events: Vec<Value>,
    /// Whether these could not be read.
    pub no_events: bool,
    /// Kinds of objects that could not be read completely, each once.
    pub unread: Vec<Unread>,
}

impl Subject {
    /// Notes why objects of a kind were not read, if so.
    pub(crate) fn misses(&mut self, what: &'static str, why: Option<String>) {
        if let Some(why) = why.filter(|_| self.unread.iter().all(|unread| unread.what != what)) {
            self.unread.push(Unread { what, why });
        }
    }
}
