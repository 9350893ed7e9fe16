//! A value that is computed at most once in a while: requests that come meanwhile wait for the same answer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

#[derive(Debug)]
struct RecentAnswer<V> {
    since: Instant,
    answer: Arc<OnceCell<V>>,
}

/// Answers by what was asked.
#[derive(Debug)]
pub struct Lately<K, V> {
    keep: Duration,
    most: usize,
    slots: Mutex<BTreeMap<K, RecentAnswer<V>>>,
}

impl<K: Ord + Clone, V: Clone> Lately<K, V> {
    /// Keeps each answer for this time, and at most this number of them.
    pub fn new(keep: Duration, most: usize) -> Self {
        Self { keep, most, slots: Mutex::default() }
    }

    fn slot(&self, key: &K, now: Instant) -> Arc<OnceCell<V>> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let keep = self.keep;
        slots.retain(|_, slot| now.saturating_duration_since(slot.since) < keep);
        if slots.len() >= self.most && !slots.contains_key(key) {
            let oldest = slots.iter().min_by_key(|(_, slot)| slot.since).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                slots.remove(&oldest);
            }
        }
        let new = || RecentAnswer { since: now, answer: Arc::default() };
        Arc::clone(&slots.entry(key.clone()).or_insert_with(new).answer)
    }

    /// The next call asks again.
    pub fn forget(&self, key: &K) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }

    /// The answer, which `ask` computes if there is no recent one.
    pub async fn get(&self, key: K, ask: impl Future<Output = V>) -> V {
        self.slot(&key, Instant::now()).get_or_init(|| ask).await.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn those_who_ask_at_the_same_time_have_one_answer() {
        let (lately, asked) = (Lately::new(Duration::from_hours(1), 2), AtomicUsize::new(0));
        let ask = |key: u8| {
            lately.get(key, async {
                tokio::task::yield_now().await;
                asked.fetch_add(1, Ordering::Relaxed)
            })
        };
        assert_eq!(futures::future::join_all([ask(1), ask(1), ask(1)]).await, [0, 0, 0]);
        assert_eq!((ask(1).await, ask(2).await), (0, 1));
        // The oldest goes when there is no more room.
        assert_eq!((ask(3).await, ask(1).await), (2, 3));
        assert_eq!(lately.slots.lock().unwrap().len(), 2);
    }

    #[test]
    fn an_answer_is_kept_for_its_time_only() {
        let (lately, now) = (Lately::<u8, u8>::new(Duration::from_secs(2), 8), Instant::now());
        let first = lately.slot(&1, now);
        assert!(Arc::ptr_eq(&first, &lately.slot(&1, now + Duration::from_secs(1))));
        assert!(!Arc::ptr_eq(&first, &lately.slot(&1, now + Duration::from_secs(2))));
    }
}
