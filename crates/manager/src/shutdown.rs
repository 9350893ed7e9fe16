//! A stop signal that any number of tasks can wait for.

use tokio::sync::watch;

/// Waits for the signal. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Stop(watch::Receiver<bool>);

/// Gives the signal.
#[derive(Debug)]
pub struct Stopper(watch::Sender<bool>);

/// Makes a connected pair.
pub fn pair() -> (Stopper, Stop) {
    let (sender, receiver) = watch::channel(false);
    (Stopper(sender), Stop(receiver))
}

impl Stopper {
    /// Gives the signal; later calls change nothing.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Another waiter.
    pub fn subscribe(&self) -> Stop {
        Stop(self.0.subscribe())
    }
}

impl Stop {
    /// Waits until the signal is given (or its giver is gone).
    pub async fn stopped(&mut self) {
        // An error means that the sender is gone: nothing could stop us later, so stop now.
        let _ = self.0.wait_for(|stop| *stop).await;
    }

    /// Whether the signal was given.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Sleeps, but not beyond the signal; true if the whole time passed.
    pub async fn sleep(&mut self, duration: std::time::Duration) -> bool {
        tokio::select! {
            () = self.stopped() => false,
            () = tokio::time::sleep(duration) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn a_sleeper_wakes_when_the_signal_is_given() {
        let (stopper, mut stop) = pair();
        let sleeper = async move { stop.sleep(Duration::from_hours(1)).await };
        stopper.stop();
        assert!(!sleeper.await);
        assert!(stopper.subscribe().is_stopped());
    }

    #[tokio::test]
    async fn a_lost_sender_counts_as_the_signal() {
        let (stopper, mut stop) = pair();
        drop(stopper);
        stop.stopped().await;
    }
}
