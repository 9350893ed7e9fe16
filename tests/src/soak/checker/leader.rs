//! How long a replica of the manager has led: its work may take a certain time, and time without a leader does not count.

use std::time::Duration;

use serde_json::Value;

/// A leader that does not renew its lease for this long may have lost the API server, or be paused. It renews the lease every 500 ms.
const MOST: Duration = Duration::from_secs(1);

/// The content of the lease.
#[derive(Debug, Default)]
pub(super) struct Leader {
    /// None: no lease was seen yet.
    holder: Option<String>,
    renewed: Duration,
    led: Duration,
    /// When it began to lead.
    began: Option<Duration>,
}

impl Leader {
    /// The lease was written. Whether another begins to lead.
    pub fn lease(&mut self, object: Option<&Value>, now: Duration) -> bool {
        let holder = object.and_then(|lease| lease["spec"]["holderIdentity"].as_str()).unwrap_or_default();
        self.led = self.led(now);
        self.renewed = now;
        let before = self.holder.replace(holder.to_owned());
        let begins = !holder.is_empty() && before.as_deref() != Some(holder);
        if begins {
            self.began = Some(now);
        }
        begins
    }

    /// Whether one began to lead no longer than this before.
    pub fn began_within(&self, period: Duration, now: Duration) -> bool {
        self.began.is_some_and(|began| now <= began + period)
    }

    /// How long replicas have led until now; without a lease, all the time.
    pub fn led(&self, now: Duration) -> Duration {
        match &self.holder {
            None => now,
            Some(holder) if holder.is_empty() => self.led,
            Some(_) => self.led + now.saturating_sub(self.renewed).min(MOST),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn time_without_a_leader_does_not_count() {
        let seconds = Duration::from_secs;
        let lease = |holder: &str| json!({"spec": {"holderIdentity": holder}});
        let mut leader = Leader::default();
        assert_eq!(leader.led(seconds(3)), seconds(3));
        assert!(leader.lease(Some(&lease("a")), seconds(3)));
        let half = Duration::from_millis(3_500);
        assert!(!leader.lease(Some(&lease("a")), half));
        assert_eq!(leader.led(seconds(60)), half + MOST, "it is not heard of");
        assert!(leader.lease(Some(&lease("b")), seconds(60)));
        assert!(
            leader.began_within(seconds(5), seconds(65)) && !leader.began_within(seconds(4), seconds(65))
        );
        assert!(!leader.lease(Some(&lease("")), seconds(61)), "it is given back");
        assert_eq!(leader.led(seconds(90)), half + MOST + seconds(1));
        assert!(leader.lease(Some(&lease("b")), seconds(90)));
    }
}
