//! A cache of decoded templates. A Workload is received several times with the same template, and Workloads of similar jobs have equal ones: decoding
//! and hashing templates is most of the work on a Workload, and they are most of its memory.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::pod::PodTemplate;

/// The most bytes of text that are cached, and the longest template text that is.
const MOST_BYTES: usize = 4 << 20;
const LONGEST: usize = 64 << 10;
/// The most longer templates that are found again: they are decoded each time.
const LONG: usize = 4096;

/// Templates by their text. These are long and begin alike: they are hashed once, not compared along a path.
#[derive(Default)]
struct Memo {
    known: HashMap<Box<str>, Arc<PodTemplate>>,
    bytes: usize,
    /// Longer templates, as long as a Workload has them, by what they hash to: one object may have thousands of Workloads.
    long: HashMap<u64, Weak<PodTemplate>>,
}

impl Memo {
    /// Caches a template, unless another thread did meanwhile; returns the cached one.
    fn add(&mut self, text: &str, template: Arc<PodTemplate>) -> Arc<PodTemplate> {
        if text.len() > LONGEST {
            return self.add_long(template);
        }
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        // Templates in use are soon cached again.
        if self.bytes + text.len() > MOST_BYTES {
            (self.known, self.bytes) = (HashMap::new(), 0);
        }
        self.bytes += text.len();
        self.known.insert(text.into(), Arc::clone(&template));
        template
    }

    /// Returns the template that is known and equal to a long one; otherwise it is known from now on.
    fn add_long(&mut self, template: Arc<PodTemplate>) -> Arc<PodTemplate> {
        let known = self.long.get(&template.template_hash).and_then(Weak::upgrade);
        if let Some(known) = known.filter(|known| **known == *template) {
            return known;
        }
        if self.long.len() >= LONG {
            self.long.retain(|_, known| known.strong_count() > 0);
        }
        if self.long.len() < LONG {
            self.long.insert(template.template_hash, Arc::downgrade(&template));
        }
        template
    }
}

/// One for all threads: each would decode a template of its own.
static MEMO: LazyLock<Mutex<Memo>> = LazyLock::new(Mutex::default);

fn memo() -> MutexGuard<'static, Memo> {
    MEMO.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Decodes a template, or returns the cached one for equal text.
pub(super) fn template<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<PodTemplate>, D::Error> {
    let text = Box::<RawValue>::deserialize(deserializer)?;
    let text = text.get();
    if let Some(known) = memo().known.get(text) {
        return Ok(Arc::clone(known));
    }
    let template = Arc::new(serde_json::from_str::<PodTemplate>(text).map_err(D::Error::custom)?);
    Ok(memo().add(text, template))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slim::PodSet;

    fn read(text: &str) -> serde_json::Result<PodSet> {
        serde_json::from_str(text)
    }

    fn of_cpus(cpus: u32) -> String {
        format!(
            "{{\"template\": {{\"spec\": {{\"containers\": [{{\"name\": \"c\", \"resources\": {{\"requests\": {{\"cpu\": \"{cpus}\"}}}}}}]}}}}}}"
        )
    }

    #[test]
    fn equal_templates_are_one_and_others_are_not() {
        let [one, same, other] =
            [of_cpus(1), of_cpus(1), of_cpus(2)].map(|text| read(&text).unwrap().template);
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert_eq!(other.containers[0].resources.requests["cpu"].0, "2");
        // The same from a value, which has no text.
        let value: serde_json::Value = serde_json::from_str(&of_cpus(2)).unwrap();
        assert_eq!(PodSet::deserialize(&value).unwrap().template, other);
        assert_eq!(serde_json::from_value::<PodSet>(value).unwrap().template, other);
    }

    #[test]
    fn threads_share_equal_templates() {
        let text = of_cpus(7);
        let other = text.clone();
        let other = std::thread::spawn(move || read(&other).unwrap().template).join().unwrap();
        assert!(Arc::ptr_eq(&read(&text).unwrap().template, &other));
        let mut memo = Memo::default();
        let (first, second) = (memo.add(&text, Arc::default()), memo.add(&text, Arc::default()));
        assert!(Arc::ptr_eq(&first, &second), "decoded at the same time");
        assert_eq!(memo.bytes, text.len());
    }

    #[test]
    fn what_cannot_be_read_fails_each_time() {
        for _ in 0..2 {
            assert!(read(r#"{"template": {"spec": {"containers": "none"}}}"#).is_err());
            assert!(read(r#"{"template": 7}"#).is_err());
        }
        assert_eq!(*read("{}").unwrap().template, PodTemplate::default());
    }

    #[test]
    fn long_templates_are_one_while_they_are_in_use() {
        let long = |value: u32| {
            let selector = format!("{{\"k\": \"{}{value}\"}}", "x".repeat(LONGEST));
            format!("{{\"template\": {{\"spec\": {{\"containers\": [], \"nodeSelector\": {selector}}}}}}}")
        };
        let [one, same, other] = [long(1), long(1), long(2)].map(|text| read(&text).unwrap().template);
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        let (mut memo, text) = (Memo::default(), " ".repeat(LONGEST + 1));
        for template_hash in 0..10_000 {
            memo.add(&text, Arc::new(PodTemplate { template_hash, ..PodTemplate::default() }));
            assert!(memo.long.len() <= LONG);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut memo = Memo::default();
        for number in 0..1_000 {
            memo.add(&format!("{number:>20000}"), Arc::default());
            assert!(memo.bytes <= MOST_BYTES && memo.bytes == memo.known.len() * 20_000);
        }
        memo.add(&" ".repeat(LONGEST + 1), Arc::default());
        assert!(memo.known.keys().all(|text| text.len() <= LONGEST));
    }
}
