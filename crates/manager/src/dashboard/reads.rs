//! Reads from the API server for the view of one Workload, with the rights of this program: no more often than it changes, and with a limit per user.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_api::journal::WorkloadLine;
use sluice_api::slim;

use super::lately::Lately;
use super::source::Source;
use crate::access::{Rate, TurnsByUser};
use crate::visibility::status::Refusal;

/// Views of Workloads, by one user and by all: a page reads again at most every second and a half.
const EACH: Rate = Rate { burst: 60, per_second: 10 };
const ALL: Rate = Rate { burst: 300, per_second: 60 };
/// How long the objects that were read are used.
const KEEP: Duration = Duration::from_secs(1);
/// Objects and lists of events that are kept, and the largest of these lists, in bytes.
const MOST: usize = 64;
const LARGEST: usize = 128 << 10;

/// How long the lines of the journal are used (what is new is in the Workload itself), and for how many Workloads.
const KEEP_PAST: Duration = Duration::from_secs(30);
const MOST_PASTS: usize = 16;

/// The events about one Workload.
type Events = Option<Arc<Vec<Value>>>;

/// Recent reads.
#[derive(Debug)]
pub struct Reads {
    turns: Mutex<TurnsByUser>,
    objects: Lately<(String, String), Result<Arc<slim::Workload>, Refusal>>,
    events: Lately<(String, String), Events>,
    pasts: Lately<String, Arc<Vec<WorkloadLine>>>,
}

impl Default for Reads {
    fn default() -> Self {
        Self {
            turns: Mutex::new(TurnsByUser::new(EACH, ALL, Instant::now())),
            objects: Lately::new(KEEP, MOST),
            events: Lately::new(KEEP, MOST),
            pasts: Lately::new(KEEP_PAST, MOST_PASTS),
        }
    }
}

impl Reads {
    /// A Workload, by namespace and name, for a user.
    ///
    /// # Errors
    ///
    /// If this user or all users together have recently read too many Workloads, if there is no such Workload, or if the API server cannot be reached
    /// or does not let this program read it.
    pub async fn object(
        &self,
        source: &dyn Source,
        user: &str,
        of: (String, String),
    ) -> Result<Arc<slim::Workload>, Refusal> {
        let has_turn = self.turns.lock().unwrap_or_else(PoisonError::into_inner).take(user, Instant::now());
        if !has_turn {
            return Err(Refusal::TooMany(
                "you look at too many Workloads at a time: try again later".to_owned(),
            ));
        }
        let (namespace, name) = of.clone();
        let read = async { source.workload(&namespace, &name).await.map(Arc::new) };
        self.objects.get(of, read).await
    }

    /// The journal's lines about a Workload.
    pub async fn past(&self, source: &dyn Source, of: &slim::Workload) -> Arc<Vec<WorkloadLine>> {
        let made = of.metadata.creation_timestamp.as_ref().map(|time| time.0);
        let Some((uid, made)) = of.metadata.uid.as_deref().zip(made) else { return Arc::default() };
        let read = async { Arc::new(source.past(uid, made).await) };
        self.pasts.get(uid.to_owned(), read).await
    }

    /// The events about the object of this UID.
    pub async fn events(&self, source: &dyn Source, namespace: String, uid: &str) -> Events {
        let key = (namespace.clone(), uid.to_owned());
        let read = async { source.events(&namespace, uid).await.map(Arc::new) };
        let events = self.events.get(key.clone(), read).await;
        // Large answers are not kept.
        let bytes = events.iter().flat_map(|events| events.iter()).map(|event| event.to_string().len());
        if bytes.sum::<usize>() > LARGEST {
            self.events.forget(&key);
        }
        events
    }
}
