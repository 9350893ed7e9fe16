//! Jobs that another job's controller made: how they are recognized, and their pods.

use std::collections::{BTreeMap, BTreeSet};
use std::slice;

use crate::job::{JobKind, JobPodSet, JobView, PartNames, PodSetInfo, Wrapped};
use crate::labels;

/// Whether a controller adds this key to the templates of the jobs that it makes or manages.
fn is_generated(key: &str) -> bool {
    let is = |own: &str| if own.ends_with('/') { key.starts_with(own) } else { key == own };
    JobKind::ALL.iter().flat_map(|kind| kind.integration().generates).any(|own| is(own))
}

impl PartNames {
    /// The pod sets of the job `above` that a part of this name represents, if there is such a part. Each pod set of the job decides whether a name
    /// is its own, and then how many parts it has; the job's status names these parts.
    pub fn played<'a, S>(
        self,
        above: &str,
        (sets, parts): (&'a [S], impl Fn(&S, &str) -> Option<i32>),
        part_names: &[String],
        part: &str,
    ) -> Option<&'a [S]> {
        let rest = part.strip_prefix(above);
        let own = || rest?.strip_prefix('-').filter(|own| !own.is_empty());
        let of = |name: &str| sets.iter().find_map(|set| Some((set, parts(set, name)?)));
        match self {
            Self::Numbered => {
                let (replicated_job, index) = own()?.rsplit_once('-')?;
                let (set, parts) = of(replicated_job)?;
                let index = i64::from(index.parse::<u32>().ok()?);
                (index < i64::from(parts)).then_some(slice::from_ref(set))
            }
            Self::PodSet => of(own()?).map(|(set, _)| slice::from_ref(set)),
            Self::Job(name) => of(name).filter(|_| rest == Some("")).map(|(set, _)| slice::from_ref(set)),
            Self::Same => (rest == Some("")).then_some(sets),
            Self::Generated => part_names.iter().any(|name| *name == *part).then_some(sets),
        }
    }
}

impl JobView {
    /// The pod sets that another job represents, if by kind and name this job's controller may have made it. An owner reference alone proves nothing,
    /// since users can write it.
    pub fn made(&self, child: &Self) -> Option<&[JobPodSet]> {
        let parts = self.job.kind.parts_of(child.job.kind)?;
        let sets =
            (&self.pod_sets[..], |set: &JobPodSet, name: &str| (set.name == name).then_some(set.parts));
        parts.names.played(&self.job.name, sets, &self.part_names, &child.job.name)
    }

    /// Whether a part has more pods than its pod sets in this job, or pods with other requests, or cannot be read. A part that represents all pod
    /// sets unchanged ([`JobKind::is_played_by`]) is compared with the admission elsewhere.
    ///
    /// A part that represents pod sets by their names may have any number of pods if the job's pods are `held_back` until there is quota for them,
    /// and the part's own pods are, too.
    pub fn is_exceeded_by(&self, part: &Self, held_back: bool) -> bool {
        if self.job.kind.parts_of(part.job.kind).is_some_and(|parts| parts.names.is_of_one()) {
            return self.made(part).is_some_and(|sets| {
                let has_more = |set: &JobPodSet| {
                    let pods: i64 = part.pod_sets.iter().map(|own| i64::from(own.count)).sum();
                    let share = i64::from(set.count) / i64::from(set.parts.max(1));
                    pods > share || part.pod_sets.iter().any(|own| own.requests_hash != set.requests_hash)
                };
                part.invalid.is_some() || sets.iter().any(has_more)
            });
        }
        let own = |theirs: &JobPodSet| {
            self.pod_set(&theirs.name).is_some_and(|set| {
                let hashes = set.part_hash.unwrap_or([set.containers_hash, set.requests_hash]);
                let as_many = if held_back { theirs.holds_pods_back() } else { theirs.count <= set.count };
                as_many && [theirs.containers_hash, theirs.requests_hash] == hashes
            })
        };
        let exceeds = part.invalid.is_some() || !part.pod_sets.iter().all(own);
        self.job.kind.names_parts_of(part.job.kind) && exceeds
    }

    fn pod_set(&self, name: &str) -> Option<&JobPodSet> {
        self.pod_sets.iter().find(|set| set.name == name)
    }

    /// Whether an object of this kind may be one that this job wraps, by its name.
    pub fn wraps_object(&self, kind: JobKind, name: &str) -> bool {
        self.wrapped_as(kind, name).next().is_some()
    }

    /// Of how many objects that this job wraps an object of this kind and name may be any, if the API server generates the rest of their names;
    /// nothing if the name is exact, or the object is not wrapped.
    pub fn wraps_by_prefix(&self, kind: JobKind, name: &str) -> Option<usize> {
        let as_it: Vec<_> = self.wrapped_as(kind, name).collect();
        if as_it.is_empty() || as_it.iter().any(|object| !object.generates_name) {
            return None;
        }
        // Several pod sets may belong to one object.
        let of_all = self.pod_sets.iter().filter_map(|set| set.wrapped.as_deref());
        let alike = of_all.filter(|object| {
            let overlaps = |as_it: &&Wrapped| {
                as_it.name.starts_with(&object.name) || object.name.starts_with(&as_it.name)
            };
            object.generates_name
                && kind.is_named_by(&object.api_version, &object.kind)
                && as_it.iter().any(overlaps)
        });
        Some(alike.map(|object| object.index).collect::<BTreeSet<_>>().len())
    }

    /// The objects that this job wraps and that an object of this kind and name may be.
    fn wrapped_as<'a>(&'a self, kind: JobKind, name: &'a str) -> impl Iterator<Item = &'a Wrapped> {
        let wrapped = self.pod_sets.iter().filter_map(|set| set.wrapped.as_deref());
        wrapped.filter(move |object| {
            let named =
                if object.generates_name { name.starts_with(&object.name) } else { *name == *object.name };
            named && kind.is_named_by(&object.api_version, &object.kind)
        })
    }

    /// How another job, an object that this one wraps, exceeds its declaration: more pods, or pods with other requests. Nothing if this job does not
    /// wrap it. The text names the component.
    pub fn exceeded_by_wrapped(&self, child: &Self) -> Option<String> {
        let mut first = None;
        for object in self.wrapped_as(child.job.kind, &child.job.name) {
            // It may be any of the objects whose prefix its name has.
            let beyond = self.beyond(object, child)?;
            let (index, kind) = (object.index, &object.kind);
            first.get_or_insert_with(|| {
                format!("spec.components[{index}]: {kind} {:?} {beyond}", &*child.job.name)
            });
        }
        first
    }

    fn beyond(&self, object: &Wrapped, child: &Self) -> Option<String> {
        if let Some(why) = child.invalid.as_ref().filter(|_| child.pod_sets.is_empty()) {
            return child.template.is_none().then(|| format!("cannot be read: {why}"));
        }
        let declared = |set: &JobPodSet| -> (i64, bool) {
            let Some(sizes) = &object.sizes else { return self.declared_alike(object, set) };
            let size = sizes.iter().find(|size| size.name == set.name);
            size.map_or((0, true), |size| (size.count.into(), size.requests_hash == set.requests_hash))
        };
        // For an object whose pods are in groups, the pod sets are those of one group.
        let groups = child.groups.map_or(1, i64::from);
        child.pod_sets.iter().filter(|set| set.count > 0 && groups > 0).find_map(|set| {
            let of_group = if object.sizes.is_some() { set.count.into() } else { child.alike(set) };
            let pods = of_group.saturating_mul(groups);
            let (name, (most, same)) = (&set.name, declared(set));
            if pods > most {
                Some(format!("has {pods} pods of {name:?}, and {most} were declared"))
            } else if same {
                None
            } else {
                Some(format!("has pods of {name:?} whose requests differ from the declared ones"))
            }
        })
    }

    /// The number of declared pods of a wrapped object with the same requests as those of a pod set.
    fn declared_alike(&self, object: &Wrapped, set: &JobPodSet) -> (i64, bool) {
        let own = |own: &&JobPodSet| own.wrapped.as_ref().is_some_and(|own| own.index == object.index);
        let sets = self.pod_sets.iter().filter(own).filter(|own| own.requests_hash == set.requests_hash);
        (sets.map(|own| i64::from(own.count)).sum(), true)
    }

    /// The number of pods with the same requests as those of a pod set.
    fn alike(&self, set: &JobPodSet) -> i64 {
        let sets = self.pod_sets.iter().filter(|own| own.requests_hash == set.requests_hash);
        sets.map(|own| i64::from(own.count)).sum()
    }

    /// Whether the template of this job, which a controller made of a pod set, lacks anything that admission adds.
    pub fn lacks(&self, adds: &PodSetInfo) -> bool {
        let adds = &adds.scheduling;
        let less = |own: &BTreeMap<String, String>, adds: &BTreeMap<String, String>| {
            adds.iter().any(|(key, value)| own.get(key) != Some(value))
        };
        self.pod_sets.iter().map(|set| &set.scheduling).any(|own| {
            less(&own.labels, &adds.labels)
                || less(&own.annotations, &adds.annotations)
                || less(&own.node_selector, &adds.node_selector)
                || adds.tolerations.iter().any(|toleration| !own.tolerations.contains(toleration))
                || adds.scheduling_gates.iter().any(|gate| !own.scheduling_gates.contains(gate))
        })
    }

    /// The required template of this job, which a controller made of the pod set `set`: the pod set's template with the additions of admission and of
    /// the controller.
    pub fn brought_up_to_date(&self, set: &JobPodSet, adds: &PodSetInfo) -> Vec<PodSetInfo> {
        let generated = |own: &BTreeMap<String, String>, base: &BTreeMap<_, _>, adds: &BTreeMap<_, _>| {
            let kept = own.iter().filter(|(key, _)| is_generated(key));
            let all = kept.chain(base).chain(adds);
            all.map(|(key, value)| (key.clone(), value.clone())).collect::<BTreeMap<String, String>>()
        };
        let (base, adds) = (&set.scheduling, &adds.scheduling);
        let with = |own: &JobPodSet| {
            let mut scheduling = own.scheduling.clone();
            scheduling.labels = generated(&own.scheduling.labels, &base.labels, &adds.labels);
            scheduling.annotations =
                generated(&own.scheduling.annotations, &base.annotations, &adds.annotations);
            scheduling.node_selector = base
                .node_selector
                .iter()
                .chain(&adds.node_selector)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            scheduling.tolerations.clone_from(&base.tolerations);
            let more = adds.tolerations.iter().filter(|one| !base.tolerations.contains(one));
            scheduling.tolerations.extend(more.cloned());
            scheduling.scheduling_gates.clone_from(&base.scheduling_gates);
            let more = adds.scheduling_gates.iter().filter(|one| !base.scheduling_gates.contains(one));
            scheduling.scheduling_gates.extend(more.cloned());
            PodSetInfo { name: own.name.clone(), count: own.count, scheduling }
        };
        self.pod_sets.iter().map(with).collect()
    }

    /// Whether the template of this job, which a controller made of the pod set `set`, has anything that comes neither from there nor from
    /// what admission adds, nor from controllers.
    pub fn has_more_than(&self, set: &JobPodSet, adds: &PodSetInfo) -> bool {
        let (base, adds) = (&set.scheduling, &adds.scheduling);
        // An annotation selects the nodes that a JobSet's pods prefer.
        let prefers = adds.affinity.as_ref().is_some_and(|affinity| affinity.node_affinity.is_some());
        let more = |own: &BTreeMap<String, String>, base: &BTreeMap<_, _>, adds: &BTreeMap<_, _>| {
            own.keys().any(|key| {
                let expected = base.contains_key(key) || adds.contains_key(key) || is_generated(key);
                let reported = prefers && key == labels::NODE_AFFINITY;
                !(expected || reported)
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
