//! What fits into topologies, as the engine reported it a short while ago: the engine is asked seldom, however many users look.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::views::topology::Fits;

/// The shortest time between two requests to the engine, and their timeout.
const SELDOM: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_secs(5);

/// The engine's last answer, and its time; `None` if it did not answer.
type Said = Option<(Instant, Option<Fits>)>;

/// The engine's last answer.
#[derive(Debug, Default)]
pub struct LatelyFit {
    said: Mutex<Said>,
    asking: tokio::sync::Mutex<()>,
}

impl LatelyFit {
    /// What fits; `ask` requests it from the engine. `None` if the engine does not answer in time.
    pub async fn get(&self, ask: impl Future<Output = Option<Fits>>) -> Option<Fits> {
        self.get_at(Instant::now(), ask).await
    }

    async fn get_at(&self, now: Instant, ask: impl Future<Output = Option<Fits>>) -> Option<Fits> {
        // While a request is in progress, others get the last answer. Only a caller without one waits.
        let _asking = match (self.asking.try_lock(), self.said()) {
            (Ok(asking), _) => asking,
            (Err(_), Some((_, before))) => return before,
            (Err(_), None) => self.asking.lock().await,
        };
        if let Some((at, fits)) = self.said()
            && now.saturating_duration_since(at) < SELDOM
        {
            return fits;
        }
        let fits = tokio::time::timeout(TIMEOUT, ask).await.ok().flatten();
        self.put((Instant::now(), fits.clone()));
        fits
    }

    fn said(&self) -> Said {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn put(&self, said: (Instant, Option<Fits>)) {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::future::{pending, ready};

    fn fits(flavor: &str) -> Fits {
        vec![(flavor.into(), sluice_engine::LargestFits::default())]
    }

    #[tokio::test]
    async fn an_engine_that_does_not_answer_is_not_asked_again_at_once() {
        let (lately, now) = (LatelyFit::default(), Instant::now());
        assert_eq!(lately.get_at(now, ready(None)).await, None);
        assert_eq!(lately.get_at(now, ready(Some(fits("a")))).await, None, "it was asked a moment ago");
    }

    #[tokio::test]
    async fn while_the_engine_is_asked_others_have_what_it_said_before() {
        let (lately, now) = (LatelyFit::default(), Instant::now());
        let old = now.checked_sub(2 * SELDOM).unwrap();
        lately.put((old, Some(fits("before"))));
        let mut asks = Box::pin(lately.get_at(now, pending()));
        assert!(asks.as_mut().now_or_never().is_none());
        assert_eq!(lately.get_at(now, pending()).now_or_never(), Some(Some(fits("before"))));
        drop(asks);
        assert_eq!(lately.get_at(now, ready(Some(fits("now")))).await, Some(fits("now")));
        assert_eq!(lately.get_at(now, pending()).now_or_never(), Some(Some(fits("now"))));
    }
}
