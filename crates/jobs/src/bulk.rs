//! How many values pod templates have. Their decoded form takes far more memory than their text: a volume of a few bytes takes a few kilobytes, an
//! entry of a list a hundred bytes, once for each place where it is kept. Nothing in Kubernetes bounds their number.

use serde_json::Value;

/// The highest number of values in the pod templates of one job.
const VALUES: usize = 40_000;
/// The highest number of values in the parts that stay in memory as long as the job exists ([`Bulk::kept`]).
const KEPT: usize = 4_000;
/// Most bytes of those parts. Annotations have a bound of the API server's.
const KEPT_BYTES: usize = 128 << 10;
/// The memory of one of those values besides its text, in bytes.
const VALUE: usize = 128;
/// Templates whose parts take no more bytes are small: any number of jobs may be made of them.
const SMALL: usize = 32 << 10;
/// Most bytes of the parts in all jobs that a job's controller makes of large templates: each of these jobs has its own.
const MADE: usize = 128 << 20;
/// The description of these parts.
const KEPT_PARTS: &str = " that stay in memory (labels, annotations, node selector, affinity, tolerations, scheduling gates, resources)";
/// How many times as much a job may have that was started: what admission adds, at most.
pub(crate) const STARTED: usize = 2;
/// The highest number of values of a selector of pods: each new pod of a namespace is compared with the selectors of all jobs.
const SELECTOR: usize = 256;

/// The message for a larger selector.
pub(crate) const LARGE_SELECTOR: &str = "Too long: may not have more than 256 values";

/// How much pod templates have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bulk {
    /// Values of any kind: texts, numbers, lists, objects.
    values: usize,
    /// The values that decisions need: labels, annotations, node selector, affinity, tolerations, scheduling gates, containers and their requests.
    kept: usize,
    /// The bytes of their texts and names, annotations aside.
    kept_bytes: usize,
    /// The bytes of the annotations.
    annotations: usize,
}

impl Bulk {
    /// The bulk of a pod template, or of a pod.
    pub fn of(template: &Value) -> Self {
        let (metadata, spec) = (&template["metadata"], &template["spec"]);
        let (mut all, mut kept) = (Count::default(), Count::default());
        for part in [&metadata["labels"], &metadata["annotations"], spec] {
            all.add(part);
        }
        kept.add(&metadata["annotations"]);
        let annotations = std::mem::take(&mut kept.bytes);
        kept.add(&metadata["labels"]);
        let fields = ["nodeSelector", "affinity", "tolerations", "schedulingGates", "overhead", "resources"];
        for field in fields {
            kept.add(&spec[field]);
        }
        let containers = ["initContainers", "containers"].iter().filter_map(|field| spec[field].as_array());
        for container in containers.flatten() {
            kept.add(&container["name"]);
            kept.add(&container["resources"]);
        }
        Self { values: all.values, kept: kept.values, kept_bytes: kept.bytes, annotations }
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        Self {
            values: self.values.saturating_add(other.values),
            kept: self.kept.saturating_add(other.kept),
            kept_bytes: self.kept_bytes.saturating_add(other.kept_bytes),
            annotations: self.annotations.saturating_add(other.annotations),
        }
    }

    /// How many bytes stay in memory of so many jobs that are made of the template; none if it is small.
    pub fn made(self, jobs: i32) -> usize {
        let texts = self.kept_bytes.saturating_add(self.annotations);
        let each = self.kept.saturating_mul(VALUE).saturating_add(texts);
        if each > SMALL { each.saturating_mul(usize::try_from(jobs).unwrap_or(0)) } else { 0 }
    }

    /// What exceeds the bounds, multiplied by `times`, and the bulk `before`, if anything does.
    pub fn excess(self, times: usize, before: Self) -> Option<String> {
        let counted = [
            (self.values, before.values, VALUES, ["values", ""]),
            (self.kept, before.kept, KEPT, ["values", KEPT_PARTS]),
            (self.kept_bytes, before.kept_bytes, KEPT_BYTES, ["bytes", KEPT_PARTS]),
        ];
        let mut counted = counted.into_iter().map(|(has, had, most, what)| (has, had, most * times, what));
        let (has, _, most, [what, parts]) = counted.find(|(has, had, most, _)| has > most.max(had))?;
        Some(format!(
            "Too long: the pod templates of a queued job may not have more than {most} {what}{parts}: they have {has}"
        ))
    }
}

/// Why so many bytes in the jobs that are made of a job are too many, if they are: more than the bound, multiplied by `times`, and more than
/// `before`.
pub(crate) fn excess_made(made: usize, times: usize, before: usize) -> Option<String> {
    let most = MADE * times;
    (made > most.max(before)).then(|| {
        format!(
            "Too long: the jobs that are made of a queued job may not take more than {most} bytes{KEPT_PARTS}: they take {made}"
        )
    })
}

/// Whether a selector of pods has too many values to be compared with pods.
pub(crate) fn is_large_selector(selector: &Value) -> bool {
    let mut count = Count::default();
    count.add(selector);
    count.values > SELECTOR
}

/// Values, and the bytes of texts and names.
#[derive(Default)]
struct Count {
    values: usize,
    bytes: usize,
}

impl Count {
    fn add(&mut self, value: &Value) {
        self.values += usize::from(!value.is_null());
        match value {
            Value::String(text) => self.bytes += text.len(),
            Value::Array(list) => list.iter().for_each(|one| self.add(one)),
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.bytes += name.len();
                    self.add(value);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn excess(template: &Value) -> Option<String> {
        Bulk::of(template).excess(1, Bulk::default())
    }

    /// A template with this number of tolerations.
    fn tolerant(number: usize) -> Value {
        json!({"spec": {"tolerations": vec![json!({"key": "k"}); number], "containers": [{"name": "c", "image": "i"}]}})
    }

    #[test]
    fn what_a_template_has_is_counted_by_what_it_takes() {
        let template = json!({
            "metadata": {"labels": {"app": "a"}, "annotations": {"note": "long"}, "managedFields": [{}, {}]},
            "spec": {
                "nodeSelector": {"disk": "ssd"},
                "volumes": [{"name": "v"}],
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
            },
        });
        let kept_bytes = "appa".len() + "diskssd".len() + "crequestscpu1".len();
        let annotations = "notelong".len();
        assert_eq!(Bulk::of(&template), Bulk { values: 17, kept: 10, kept_bytes, annotations });
        assert_eq!(Bulk::of(&Value::Null), Bulk::default());
    }

    #[test]
    fn the_values_of_a_template_are_limited() {
        // The list, and two for each toleration; the name of the container.
        let most = (KEPT - 2) / 2;
        assert_eq!(excess(&tolerant(most)), None);
        let why = excess(&tolerant(most + 1)).unwrap();
        let words = "Too long: the pod templates of a queued job may not have more than 4000 values that stay in memory (labels, ";
        assert!(why.starts_with(words), "{why}");
        let volumes = json!({"spec": {"volumes": vec![json!({"name": "v"}); VALUES / 2]}});
        let why = excess(&volumes).unwrap();
        assert!(why.ends_with("more than 40000 values: they have 40002"), "{why}");
        let long = json!({"spec": {"nodeSelector": {"k": "x".repeat(KEPT_BYTES)}}});
        assert!(excess(&long).unwrap().contains("131072 bytes"));
    }

    #[test]
    fn several_templates_count_together_and_what_was_there_may_stay() {
        let half = Bulk::of(&tolerant(KEPT / 4));
        assert_eq!(half.excess(1, Bulk::default()), None);
        let both = half.and(half);
        assert!(both.excess(1, Bulk::default()).is_some());
        assert_eq!(both.excess(1, both), None);
        assert!(both.and(half).excess(1, both).is_some());
        assert_eq!(both.excess(STARTED, Bulk::default()), None);
    }

    #[test]
    fn selectors_have_few_values() {
        let of = |number: usize| json!({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": vec!["b"; number]}]});
        assert!(!is_large_selector(&of(200)));
        assert!(is_large_selector(&of(SELECTOR)));
    }
}
