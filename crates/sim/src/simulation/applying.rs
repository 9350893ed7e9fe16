//! Applies objects as `kubectl apply` and `kubectl patch` do, through the webhooks.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde_json::{Value, json};
use sluice_api::job::JobKind;
use sluice_api::labels::PROVISIONING_REQUEST_CONTROLLER_NAME;
use sluice_api::{conditions, labels};
use sluice_engine::{Kind, ObjectRef};
use sluice_jobs::Patch;
use sluice_jobs::webhook::{
    Context, Operation, PodSelectors, mutate, mutate_plain_pod, validate, validate_plain_pod,
};

use super::{SimError, Simulation, pod_updates};
use crate::agenda::{Action, after};
use crate::json::{self, text};
use crate::left_out::is_stored;
use crate::manifest::{Manifest, ManifestError};
use crate::object::{FieldError, keep_suspension};
use crate::pods::SUBMIT_AFTER_SECONDS;
use crate::setup::manifest_error;

impl Simulation {
    /// # Errors
    /// When the caller wants it to give up.
    pub(crate) fn check_cancelled(&self) -> Result<(), SimError> {
        if self.options.cancel.is_cancelled() { Err(SimError::Cancelled { at: self.now }) } else { Ok(()) }
    }

    /// Notes something that was refused.
    pub(crate) fn note_refused(&mut self, who: &str, why: &str) {
        let now = self.now;
        self.record.refused(now, who, why);
    }

    /// Makes a namespace that no manifest declares.
    pub(super) fn namespace(&mut self, name: &str) {
        if name.is_empty() || self.world.get(&ObjectRef::cluster(Kind::Namespace, name)).is_some() {
            return;
        }
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let gates = self.options.configuration.gates;
        self.world.put(Kind::Namespace, object, gates).expect("a namespace that has a name is taken");
    }

    /// Applies a manifest now, as `kubectl apply` would; a manifest with a later time is put on the agenda.
    ///
    /// # Errors
    ///
    /// If an API server or the webhooks of jobs would refuse the object, or it has too many pods to simulate. An object with a later time is not
    /// checked here.
    pub fn apply(&mut self, manifest: &Manifest) -> Result<(), SimError> {
        self.take(manifest.clone())
    }

    /// Takes one of the first objects of a simulation, and returns its error. An object from a cluster is kept in spite of errors: if it cannot be
    /// simulated it is left out, as a manager's engine ignores it.
    pub(crate) fn take_first(&mut self, manifest: Manifest) -> Option<ManifestError> {
        let (source, stored) = (manifest.source.clone(), is_stored(&manifest.object));
        self.read_nodes |= stored && manifest.kind == Kind::Node;
        let wrong = manifest_error(&source, self.take(manifest).err()?);
        if !stored {
            return Some(wrong);
        }
        self.left_out.add(wrong);
        None
    }

    /// As [`Self::apply`], for a manifest that is not needed any more: its document becomes the object.
    pub(crate) fn take(&mut self, manifest: Manifest) -> Result<(), SimError> {
        let later = text(&manifest.object["metadata"]["annotations"][SUBMIT_AFTER_SECONDS]);
        // An object that was read from a cluster exists already.
        let waits = |seconds: &i64| *seconds > 0 && !is_stored(&manifest.object);
        if let Some(seconds) = later.parse::<i64>().ok().filter(waits) {
            let at = after(self.options.start, SignedDuration::from_secs(seconds));
            if at > self.now {
                self.agenda.put(at, Action::Submit(Box::new(manifest)));
                return Ok(());
            }
        }
        self.put(manifest.kind, manifest.object).map(|_| ())
    }

    /// Creates or replaces an object now.
    pub(crate) fn put(&mut self, kind: Kind, mut value: Value) -> Result<ObjectRef, SimError> {
        let refused = |value: &Value, wrong: FieldError| {
            SimError::refused(kind.as_str(), text(&value["metadata"]["name"]), wrong)
        };
        if kind.namespaced() {
            let namespace = text(&value["metadata"]["namespace"]);
            let namespace = if namespace.is_empty() { "default" } else { namespace }.to_owned();
            value["metadata"]["namespace"] = json!(namespace);
            self.namespace(&namespace);
        }
        let pod_bytes = match kind {
            Kind::Job(job) => self.admit_job(job, &mut value).map_err(|wrong| refused(&value, wrong))?,
            _ => 0,
        };
        let foreign = value["spec"]["controllerName"] != PROVISIONING_REQUEST_CONTROLLER_NAME;
        if kind == Kind::AdmissionCheck && foreign {
            // Its controller is simulated here, so it is active.
            value["status"]["conditions"] = json!([{
                "type": conditions::ACTIVE, "status": "True", "reason": "Active", "message": "",
                "lastTransitionTime": crate::world::seconds(self.now),
            }]);
        }
        let shown = value.clone();
        let gates = self.options.configuration.gates;
        let reference = self.world.put(kind, value, gates).map_err(|wrong| refused(&shown, wrong))?;
        self.serving.take(&reference, pod_bytes);
        self.last_event = self.now;
        Ok(reference)
    }

    /// Runs the webhooks of jobs on a new object; returns the memory of the pods that are made of it.
    fn admit_job(&self, kind: JobKind, value: &mut Value) -> Result<usize, FieldError> {
        let namespace = text(&value["metadata"]["namespace"]).to_owned();
        let reference = crate::object::reference(Kind::Job(kind), value);
        let old = self.world.get(&reference);
        let pod_bytes = self.serving.check((&reference, value), self.options.pod_memory)?;
        // An object that was read from a cluster has passed its webhooks; it may break newer rules.
        if old.is_none() && is_stored(value) {
            return Ok(pod_bytes);
        }
        let namespace_labels = self.labels_of_namespace(&namespace);
        let context = self.context(&namespace, &namespace_labels);
        let of_pods = kind.integration().of_pods;
        let changed = || {
            if of_pods {
                self.queued_pod(value, &context)
            } else {
                mutate(kind, Operation::Create, value, &context)
            }
        };
        if old.is_none()
            && let Patch::Json(operations) = changed()
        {
            json::apply(value, &operations).map_err(|why| FieldError::new("", why))?;
        }
        if let Some(old) = old {
            keep_suspension(kind, old, value);
        }
        judged(kind, value, old, &context)?;
        Ok(pod_bytes)
    }

    fn labels_of_namespace(&self, namespace: &str) -> BTreeMap<String, String> {
        let known = self.world.get(&ObjectRef::cluster(Kind::Namespace, namespace));
        let map = known.and_then(|namespace| namespace["metadata"]["labels"].as_object());
        map.into_iter().flatten().map(|(k, v)| (k.clone(), text(v).to_owned())).collect()
    }

    /// The namespace and its labels, as input for the webhooks of jobs.
    fn context<'a>(&'a self, namespace: &str, namespace_labels: &'a BTreeMap<String, String>) -> Context<'a> {
        let default_queue = ObjectRef::namespaced(Kind::LocalQueue, namespace, labels::DEFAULT_LOCAL_QUEUE);
        let default_class =
            ObjectRef::cluster(Kind::WorkloadPriorityClass, labels::DEFAULT_WORKLOAD_PRIORITY_CLASS);
        let configuration = &self.options.configuration;
        Context {
            manage_jobs_without_queue_name: configuration.manage_jobs_without_queue_name,
            managed_jobs_namespace_selector: &configuration.managed_jobs_namespace_selector,
            namespace_labels,
            default_local_queue: self.world.get(&default_queue).is_some(),
            default_priority_class: self.world.get(&default_class).is_some(),
            managed_owner: false,
            gatherer: None,
            gates: configuration.gates,
        }
    }

    /// Why the webhooks, or the API server's own rules of pods, refuse that a merge patch changes a job, if they do.
    pub(crate) fn refuses_change(&self, kind: JobKind, old: &Value, merge: &Value) -> Option<String> {
        let mut new = old.clone();
        json_patch::merge(&mut new, merge);
        let namespace = text(&old["metadata"]["namespace"]);
        let labels = self.labels_of_namespace(namespace);
        let denied = judged(kind, &new, Some(old), &self.context(namespace, &labels)).err();
        let fixed = kind.integration().of_pods.then(|| pod_updates::refused(&old["spec"], &new["spec"]));
        denied.map(|denied| denied.message).or_else(|| fixed.flatten())
    }

    /// The patch of the pod webhook for a new pod.
    fn queued_pod(&self, pod: &Value, context: &Context<'_>) -> Patch {
        let integrations = &self.options.configuration.integrations;
        let selectors = PodSelectors {
            namespaces: integrations.pod_options.namespace_selector.as_ref(),
            pods: integrations.pod_options.pod_selector.as_ref(),
            implied: integrations.implies_pods(),
        };
        mutate_plain_pod(pod, context, &selectors)
    }

    /// Changes an object now, as `kubectl patch --type=merge` would.
    ///
    /// # Errors
    ///
    /// If the kind is not simulated, the object does not exist, an API server or the webhooks of jobs would refuse the result, or it has too many pods to
    /// simulate then.
    pub fn patch(
        &mut self,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        merge: &Value,
    ) -> Result<(), SimError> {
        let refused = |wrong: FieldError| SimError::refused(kind, name, wrong);
        let reference = crate::play::reference(kind, namespace, name)
            .ok_or_else(|| refused(FieldError::new("", "expected a simulated kind")))?;
        self.patch_object(&reference, merge).map_err(refused)
    }

    /// The same for an object reference.
    pub(crate) fn patch_object(&mut self, reference: &ObjectRef, merge: &Value) -> Result<(), FieldError> {
        if let (Kind::Job(kind), Some(old)) = (reference.kind, self.world.get(reference))
            && let Some(why) = self.refuses_change(kind, old, merge)
        {
            return Err(FieldError::new("", why));
        }
        self.patch_judged(reference, merge)
    }

    /// The same if the webhooks of jobs have been asked already.
    pub(crate) fn patch_judged(&mut self, reference: &ObjectRef, merge: &Value) -> Result<(), FieldError> {
        self.last_event = self.now;
        let makes = matches!(reference.kind, Kind::Job(kind) if kind.integration().suspends_pods);
        let new = self.world.get(reference).filter(|_| makes).map(|old| {
            let mut new = old.clone();
            json_patch::merge(&mut new, merge);
            new
        });
        let memory = self.options.pod_memory;
        let pod_bytes = new.map_or(Ok(0), |new| self.serving.check((reference, &new), memory))?;
        self.world.patch(reference, merge, self.options.configuration.gates)?;
        self.serving.take(reference, pod_bytes);
        Ok(())
    }
}

/// The answer of the job webhooks to a new or changed object.
fn judged(
    kind: JobKind,
    value: &Value,
    old: Option<&Value>,
    context: &Context<'_>,
) -> Result<(), FieldError> {
    let judged = if kind.integration().of_pods {
        validate_plain_pod(value, old, context)
    } else {
        validate(kind, value, old, context)
    };
    judged.map_err(|denied| FieldError::new("", denied.to_string()))
}
