//! Why no start is expected of a Workload: a person or program has to act first, or the manager refuses it for a reason that cannot be tried here.

use jiff::Timestamp;
use serde_json::Value;
use sluice_engine::{Kind, ObjectRef, WorkloadKey};

use super::finding::{Code, condition, holds};
use super::queues::Names;
use super::view::View;
use super::{decided, deleted, lifecycle, queues};
use crate::json::text;
use crate::manifest::Manifests;

/// The Workloads of a world as they were read.
pub struct AsRead<'a> {
    view: View<'a>,
    now: Timestamp,
}

impl<'a> AsRead<'a> {
    /// At this time.
    pub fn new(manifests: &'a Manifests, now: Timestamp) -> Self {
        Self { view: View::read(manifests), now }
    }

    fn workload(&self, key: &WorkloadKey) -> Option<&'a Value> {
        self.view.get(&ObjectRef::namespaced(Kind::Workload, key.namespace.clone(), key.name.clone()))
    }

    /// Why no start of a Workload is expected, if so. `at_once`: in a virtual cluster it starts at once, so that whatever the manager says of it was
    /// not seen there.
    pub fn why_not(&self, key: &WorkloadKey, at_once: bool) -> Option<String> {
        let Some(workload) = self.workload(key) else {
            return Some("it no longer exists, or is being deleted".to_owned());
        };
        let found = deleted::own(workload).into_iter();
        let local = text(&workload["spec"]["queueName"]);
        let found = found.chain(queues::findings(&self.view, &key.namespace, local, Names::Own).0);
        let state = lifecycle::state(workload);
        let mut found = found.chain(lifecycle::findings(&self.view, workload, state, self.now, false));
        let stands = |code: Code| code.waits_for_action() || code == Code::CheckRejected;
        let barred = found.find(|finding| stands(finding.code)).map(|finding| finding.text);
        barred.or_else(|| self.refused(key).filter(|_| at_once))
    }

    /// Reason and message with which the manager refuses a Workload that has no quota, in words.
    pub fn refused(&self, key: &WorkloadKey) -> Option<String> {
        let workload = self.workload(key).filter(|workload| !holds(workload, "QuotaReserved"))?;
        let written = condition(workload, "QuotaReserved").filter(|c| c["status"] == "False")?;
        let (reason, message) = (text(&written["reason"]), text(&written["message"]));
        decided::refuses(reason, message).then(|| format!("the manager refuses it ({reason}): {message}"))
    }
}
