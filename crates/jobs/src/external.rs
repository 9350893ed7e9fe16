//! Kinds that other controllers manage: their objects have no pods, and nothing is written to them.

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use serde_json::Value;
use sluice_api::job::{JobFinished, JobKind, JobView, PodSetInfo};

use crate::adapter::{Adapter, State};
use crate::object;
use crate::patch::Patch;
use crate::scheduling::StartError;

/// The requested kinds. The configuration bounds their number.
static KNOWN: RwLock<BTreeMap<JobKind, &'static External>> = RwLock::new(BTreeMap::new());

/// A kind that others manage.
struct External(JobKind);

/// The adapter of an external kind.
pub(crate) fn of(kind: JobKind) -> &'static dyn Adapter {
    if let Some(known) = KNOWN.read().unwrap_or_else(PoisonError::into_inner).get(&kind) {
        return *known;
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    *known.entry(kind).or_insert_with(|| Box::leak(Box::new(External(kind))))
}

impl Adapter for External {
    fn kind(&self) -> JobKind {
        self.0
    }

    fn observe(&self, object: &Value) -> JobView {
        object::from_metadata(self.0, object)
    }

    fn start(&self, _view: &JobView, infos: &[PodSetInfo]) -> Result<Patch, StartError> {
        Err(StartError::PodSets {
            admitted: infos.iter().map(|info| info.name.clone()).collect(),
            job: Vec::new(),
        })
    }

    fn status(&self, object: &Value, _state: State) -> Value {
        object["status"].clone()
    }

    fn is_simulated(&self) -> bool {
        false
    }

    fn is_suspended(&self, _object: &Value) -> bool {
        false
    }

    fn finished(&self, _object: &Value) -> Option<JobFinished> {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_that_others_manage_has_no_pods_and_gets_no_writes() {
        // One of the two is built in, too, and is external if the configuration says so.
        for entry in ["Errand.v1.pods.example.com", "MPIJob.v1.kubeflow.org"] {
            let kind = JobKind::external(entry).unwrap();
            let object = json!({
                "metadata": {"name": "x", "namespace": "n", "uid": "u"},
                "spec": {"suspend": true, "template": {"spec": {"containers": [{"name": "main"}]}}},
                "status": {"conditions": [{"type": "Succeeded", "status": "True"}]},
            });
            let view = crate::observe(kind, &object);
            assert!(view.pod_sets.is_empty() && view.finished.is_none() && !view.active);
            assert!(crate::start(&view, &[]).is_err());
            assert_eq!(crate::prepare(&view, &[]).unwrap(), None);
            assert!(crate::stop(&view, &[]).is_empty() && !crate::supports_slices(kind));
            assert!(crate::pod_groups(kind, &object).is_empty() && !crate::is_simulated(kind));
        }
    }
}
