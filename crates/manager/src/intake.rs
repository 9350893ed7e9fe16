//! How much may wait for the engine: if too much waits, watches stop reading and writes keep their answers. Nothing is dropped.
//!
//! The manager's own messages (leadership, completed lists, questions) are small, rare, and never wait.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How much may wait, in kilobytes of the undecoded text.
const ROOM: u32 = 8 << 10;
/// The size that the smallest input counts for, which limits their number.
const LEAST: u32 = 4;

/// The room for what waits. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Intake(Arc<Semaphore>);

/// A place in it, until it is dropped; the default takes none.
#[derive(Debug, Default)]
pub struct Slot(#[expect(dead_code, reason = "held, not read")] Option<OwnedSemaphorePermit>);

impl Default for Intake {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM as usize)))
    }
}

impl Intake {
    /// Waits for room for an input of this size.
    pub async fn place(&self, bytes: usize) -> Slot {
        let wanted = u32::try_from(bytes >> 10).unwrap_or(ROOM).clamp(LEAST, ROOM);
        // The semaphore is never closed.
        Slot(Arc::clone(&self.0).acquire_many_owned(wanted).await.ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    // Without a runtime, which would make it yield now and then.
    #[test]
    fn what_waits_is_bounded_in_bytes_and_in_number() {
        let intake = Intake::default();
        let mut places = Vec::new();
        while let Some(place) = intake.place(0).now_or_never() {
            places.push(place);
        }
        assert_eq!(places.len(), 2048);
        places.clear();
        while let Some(place) = intake.place(1 << 20).now_or_never() {
            places.push(place);
        }
        assert_eq!(places.len(), 8);
        places.pop();
        assert!(intake.place(1 << 20).now_or_never().is_some(), "room that is free is given out again");
    }

    #[tokio::test]
    async fn what_is_larger_than_all_room_waits_for_all_of_it() {
        let intake = Intake::default();
        let small = intake.place(1).await;
        assert!(intake.place(usize::MAX).now_or_never().is_none());
        drop(small);
        assert!(intake.place(usize::MAX).now_or_never().is_some());
    }
}
