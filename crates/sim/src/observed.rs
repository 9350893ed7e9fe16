//! Run times of ended jobs: the basis of forecasts for jobs of the same queue.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use serde_json::Value;
use sluice_engine::Kind;

use crate::json::text;
use crate::pods::queue_of;
use crate::random::Stream;

/// Fewer than this say nothing.
const LEAST: usize = 5;

/// One job that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Its namespace.
    pub namespace: String,
    /// Its LocalQueue.
    pub queue: String,
    /// From its start to its end.
    pub took: SignedDuration,
}

impl Observed {
    /// The run time of a job, if it succeeded and has a start time.
    pub fn of(kind: Kind, value: &Value) -> Option<Self> {
        let Kind::Job(job) = kind else { return None };
        let (started, ended) = sluice_jobs::ran(job, value)?;
        let queue = queue_of(value);
        let took = ended.duration_since(started);
        (took.is_positive() && !queue.is_empty()).then(|| Self {
            namespace: text(&value["metadata"]["namespace"]).to_owned(),
            queue: queue.to_owned(),
            took,
        })
    }
}

/// Run times by LocalQueue.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunTimes(Arc<BTreeMap<(String, String), Vec<SignedDuration>>>);

impl RunTimes {
    /// The run times of these jobs.
    pub fn new<'a>(observed: impl IntoIterator<Item = &'a Observed>) -> Self {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for job in observed {
            all.entry((job.namespace.clone(), job.queue.clone())).or_default().push(job.took);
        }
        all.retain(|_, took| took.len() >= LEAST);
        for took in all.values_mut() {
            took.sort_unstable();
        }
        Self(Arc::new(all))
    }

    /// Whether enough is known of a queue.
    pub fn knows(&self, namespace: &str, queue: &str) -> bool {
        self.of(namespace, queue).is_some()
    }

    fn of(&self, namespace: &str, queue: &str) -> Option<&[SignedDuration]> {
        // The map is small, and empty outside live clusters.
        let found = self.0.iter().find(|((n, q), _)| n == namespace && q == queue);
        found.map(|(_, took)| took.as_slice())
    }

    /// Draws a run time from the distribution of the queue's jobs: anywhere between two neighbouring observed ones.
    pub fn draw(&self, namespace: &str, queue: &str, stream: &mut Stream) -> Option<SignedDuration> {
        let took = self.of(namespace, queue)?;
        #[expect(clippy::cast_precision_loss, reason = "a number of jobs")]
        let place = stream.unit() * (took.len() - 1) as f64;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the number of jobs"
        )]
        let below = libm::floor(place) as usize;
        let (low, high) = (took[below], took[(below + 1).min(took.len() - 1)]);
        let part = place - libm::floor(place);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of a run time")]
        let between = high.saturating_sub(low).as_millis() as f64 * part;
        #[expect(clippy::cast_possible_truncation, reason = "less than a run time")]
        let millis = libm::round(between) as i64;
        Some(low.saturating_add(SignedDuration::from_millis(millis)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use sluice_api::job::JobKind;

    #[test]
    fn only_jobs_that_succeeded_in_a_queue_count() {
        let mut job = json!({
            "metadata": {"namespace": "a", "labels": {"kueue.x-k8s.io/queue-name": "main"}},
            "status": {
                "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:30Z",
                "conditions": [{"type": "Complete", "status": "True"}],
            },
        });
        let observed = Observed::of(Kind::Job(JobKind::JOB), &job).unwrap();
        assert_eq!((observed.queue.as_str(), observed.took.as_secs()), ("main", 90));
        job["status"]["conditions"][0]["type"] = json!("Failed");
        assert_eq!(Observed::of(Kind::Job(JobKind::JOB), &job), None);
    }

    #[test]
    fn draws_stay_between_what_was_seen_and_few_say_nothing() {
        let job = |seconds| Observed {
            namespace: "a".to_owned(),
            queue: "main".to_owned(),
            took: SignedDuration::from_secs(seconds),
        };
        let few: Vec<_> = [10, 20].map(job).into();
        assert!(!RunTimes::new(&few).knows("a", "main"));
        let times = RunTimes::new(&[50, 10, 20, 40, 30].map(job));
        let mut stream = Stream::new(1, "x");
        let drawn: Vec<_> =
            (0..100).map(|_| times.draw("a", "main", &mut stream).unwrap().as_secs_f64()).collect();
        assert!(drawn.iter().all(|s| (10.0..=50.0).contains(s)), "{drawn:?}");
        let below = drawn.iter().filter(|s| **s < 30.0).count();
        assert!((30..70).contains(&below), "{below} of 100 below the median");
        assert_eq!(times.draw("b", "main", &mut stream), None);
    }
}
