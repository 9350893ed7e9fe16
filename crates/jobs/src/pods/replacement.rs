//! The condition `WaitingForReplacementPods` (docs/reference/03-conditions-events.md 3.1).

/// The new condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// Whether it is true.
    pub status: bool,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// The new condition; `None` if it stays. `now` is the current one, `evicted` are reason and message of the Workload's eviction while there is one.
pub fn replacement(
    now: Option<&Replacement>,
    absent: i32,
    evicted: Option<(&str, &str)>,
) -> Option<Replacement> {
    let says = |status: bool| now.is_some_and(|condition| condition.status == status);
    let (status, reason, message) = match evicted {
        _ if absent <= 0 && (now.is_none() || says(false)) => return None,
        _ if absent <= 0 => (false, "PodsReady", "No pods need replacement"),
        Some((reason, message)) => (true, reason, message),
        None if says(true) => return None,
        None => (true, "PodsFailed", "Some Failed pods need replacement"),
    };
    let next = Replacement { status, reason: reason.to_owned(), message: message.to_owned() };
    (now != Some(&next)).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(status: bool, reason: &str, message: &str) -> Replacement {
        Replacement { status, reason: reason.to_owned(), message: message.to_owned() }
    }

    #[test]
    fn the_condition_follows_the_pods() {
        let failed = || Some(says(true, "PodsFailed", "Some Failed pods need replacement"));
        let ready = || Some(says(false, "PodsReady", "No pods need replacement"));
        let evicted = || Some(says(true, "Preempted", "for another"));
        let eviction = Some(("Preempted", "for another"));
        for (now, absent, eviction, expected) in [
            (None, 0, None, None),
            (None, 0, eviction, None),
            (None, 2, None, failed()),
            (failed(), 1, None, None),
            (failed(), 0, None, ready()),
            (ready(), 0, None, None),
            (ready(), 0, eviction, None),
            (ready(), 1, None, failed()),
            (None, 1, eviction, evicted()),
            (failed(), 1, eviction, evicted()),
            (evicted(), 1, eviction, None),
            // After the eviction it has the reason why the pods were deleted, until they exist again.
            (evicted(), 1, None, None),
            (evicted(), 0, None, ready()),
        ] {
            assert_eq!(
                replacement(now.as_ref(), absent, eviction),
                expected,
                "{now:?} {absent} {eviction:?}"
            );
        }
    }
}
