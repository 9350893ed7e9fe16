//! Jobs that another job's controller made: which they are, and what they carry.

use std::collections::BTreeMap;

use crate::job::{JobPodSet, JobView, PodSetInfo};
use crate::labels;

/// What controllers add to the templates of the jobs that they make, and of those that they look after.
const GENERATED: [&str; 3] = ["jobset.sigs.k8s.io/", "alpha.jobset.sigs.k8s.io/", "batch.kubernetes.io/"];
/// The same, of a time before prefixes.
const GENERATED_OF_OLD: [&str; 2] = ["job-name", "controller-uid"];

fn is_generated(key: &str) -> bool {
    GENERATED.iter().any(|prefix| key.starts_with(prefix)) || GENERATED_OF_OLD.contains(&key)
}

impl JobView {
    /// The pod set that another job plays, if it may be one that this one's controller made, by kind and name. An owner reference alone
    /// proves nothing: users write them, too.
    pub fn made(&self, child: &Self) -> Option<&JobPodSet> {
        if self.job.kind.parts() != Some(child.job.kind) {
            return None;
        }
        // `<JobSet>-<replicated job>-<index>`.
        let rest = child.job.name.strip_prefix(&*self.job.name)?.strip_prefix('-')?;
        let (replicated_job, index) = rest.rsplit_once('-')?;
        let set = self.pod_sets.iter().find(|set| set.name == replicated_job)?;
        let index = i64::from(index.parse::<u32>().ok()?);
        (index < i64::from(set.count)).then_some(set)
    }

    /// Whether the template of this job, which a controller made of the pod set `set`, has anything that comes neither from there nor from
    /// what admission adds, nor from controllers.
    pub fn has_more_than(&self, set: &JobPodSet, adds: &PodSetInfo) -> bool {
        let (base, adds) = (&set.scheduling, &adds.scheduling);
        // An annotation says which nodes a JobSet's pods are to prefer.
        let prefers = adds.affinity.as_ref().is_some_and(|affinity| affinity.node_affinity.is_some());
        let more = |own: &BTreeMap<String, String>, base: &BTreeMap<_, _>, adds: &BTreeMap<_, _>| {
            own.keys().any(|key| {
                let expected = base.contains_key(key) || adds.contains_key(key) || is_generated(key);
                let told = prefers && key == labels::NODE_AFFINITY;
                !(expected || told)
            })
        };
        self.pod_sets.iter().map(|set| &set.scheduling).any(|own| {
            more(&own.labels, &base.labels, &adds.labels)
                || more(&own.annotations, &base.annotations, &adds.annotations)
                || more(&own.node_selector, &base.node_selector, &adds.node_selector)
                || own.tolerations.iter().any(|own| {
                    let generated = own.key.as_deref().is_some_and(is_generated);
                    !generated && !base.tolerations.contains(own) && !adds.tolerations.contains(own)
                })
                || own
                    .scheduling_gates
                    .iter()
                    .any(|own| !base.scheduling_gates.contains(own) && !adds.scheduling_gates.contains(own))
        })
    }
}
