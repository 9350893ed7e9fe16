//! How long quota of deleted jobs takes to be back. Their pods need it until they are gone; then others wait for it.

use std::collections::BTreeMap;
use std::time::Duration;

/// By Workload: since when the job is deleted whose quota it holds; and how long those took that hold none any more.
#[derive(Debug, Default)]
pub(super) struct Returns {
    since: BTreeMap<String, Duration>,
    took: Vec<Duration>,
}

/// How long quota of deleted jobs took to be back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaReturns {
    /// How many times it was given back.
    pub times: usize,
    /// Half of them took no longer.
    pub median: Duration,
    /// Nine in ten took no longer.
    pub p90: Duration,
    /// None took longer.
    pub longest: Duration,
}

impl Returns {
    /// The job of a Workload that holds quota is being deleted, or gone.
    pub fn job_goes(&mut self, workload: &str, now: Duration) {
        self.since.entry(workload.to_owned()).or_insert(now);
    }

    /// A Workload holds no quota.
    pub fn holds_none(&mut self, workload: &str, now: Duration) {
        if let Some(since) = self.since.remove(workload) {
            self.took.push(now.saturating_sub(since));
        }
    }

    pub fn figures(&self) -> QuotaReturns {
        let mut took = self.took.clone();
        took.sort_unstable();
        let at = |percent: usize| {
            took.get((took.len() * percent).div_ceil(100).max(1) - 1).copied().unwrap_or_default()
        };
        QuotaReturns { times: took.len(), median: at(50), p90: at(90), longest: at(100) }
    }
}

impl std::fmt::Display for QuotaReturns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { times, median, p90, longest } = self;
        let seconds = |time: &Duration| time.as_secs_f64();
        write!(
            f,
            "quota of deleted jobs back {times} times, after {:.1} s in the median, {:.1} s in nine of ten, {:.1} s at most",
            seconds(median),
            seconds(p90),
            seconds(longest)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_of_what_took_how_long() {
        let mut returns = Returns::default();
        assert_eq!(returns.figures(), QuotaReturns::default());
        for second in 1..=20 {
            let workload = second.to_string();
            returns.job_goes(&workload, Duration::from_secs(100));
            returns.job_goes(&workload, Duration::from_secs(101));
            returns.holds_none(&workload, Duration::from_secs(100 + second));
            returns.holds_none(&workload, Duration::from_secs(500));
        }
        returns.job_goes("it holds quota", Duration::from_secs(1));
        let text = returns.figures().to_string();
        assert_eq!(
            text,
            "quota of deleted jobs back 20 times, after 10.0 s in the median, 18.0 s in nine of ten, 20.0 s at most"
        );
    }
}
