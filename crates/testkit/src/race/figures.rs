//! The results of a race: counts by the API server, times, and each program's usage.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;

use super::load::Load;
use super::plan::{Race, Work};
use crate::wait::{eventually, progress};

/// How long the last events may take.
const QUIET: Duration = Duration::from_mins(10);

/// Requests that the API server has answered, by verb, resource and code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests(BTreeMap<(String, String, String), u64>);

impl Requests {
    /// As `apiserver_request_total` says now.
    ///
    /// # Errors
    ///
    /// If the API server cannot be reached, or does not let `client` read its metrics.
    pub async fn read(client: &Client) -> Result<Self> {
        let request = http::Request::get("/metrics").body(Vec::new()).context("making the scrape")?;
        let text = client.request_text(request).await.context("scraping the API server")?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut counts = BTreeMap::new();
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("apiserver_request_total{") else { continue };
            let Some((labels, value)) = rest.split_once("} ") else { continue };
            let label = |name: &str| {
                let mut all = labels.split(',');
                let found = all.find_map(|label| label.strip_prefix(name)?.strip_prefix("=\""));
                found.unwrap_or_default().trim_end_matches('"').to_owned()
            };
            let (resource, sub) = (label("resource"), label("subresource"));
            let resource = if sub.is_empty() { resource } else { format!("{resource}/{sub}") };
            *counts.entry((label("verb"), resource, label("code"))).or_default() += count(value);
        }
        Self(counts)
    }

    /// The difference to earlier figures.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let more = |(key, count): (&(String, String, String), &u64)| {
            let more = count - before.0.get(key).copied().unwrap_or(0).min(*count);
            (more > 0).then(|| (key.clone(), more))
        };
        Self(self.0.iter().filter_map(more).collect())
    }

    fn is_write((verb, _, _): &(String, String, String)) -> bool {
        ["APPLY", "PATCH", "POST", "PUT", "DELETE"].contains(&verb.as_str())
    }

    /// Writes on resources that were carried out.
    fn writes(&self, resources: &[&str]) -> u64 {
        let wanted = |(key, _): &(&(String, String, String), &u64)| {
            Self::is_write(key) && key.2.starts_with('2') && resources.contains(&key.1.as_str())
        };
        self.0.iter().filter(wanted).map(|(_, count)| count).sum()
    }

    fn conflicts(&self) -> u64 {
        let conflict = |(key, _): &(&(String, String, String), &u64)| Self::is_write(key) && key.2 == "409";
        self.0.iter().filter(conflict).map(|(_, count)| count).sum()
    }
}

/// A count as Prometheus writes it: a floating-point number, from a million on with an exponent. All counts up to 2^53 are exact.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and counts are whole"
)]
fn count(value: &str) -> u64 {
    value.trim().parse::<f64>().map_or(0, |count| count.round() as u64)
}

/// The requests once no more events come.
pub async fn when_quiet(client: &Client) -> Result<Requests> {
    let last = std::sync::Mutex::new((Requests::default(), 0_u32));
    eventually("the last events", QUIET, || async {
        let now = Requests::read(client).await?;
        let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let same = now.writes(&["events"]) == last.0.writes(&["events"]);
        *last = (now, if same { last.1 + 1 } else { 0 });
        Ok(progress(last.1 >= 10, last.0.writes(&["events"])))
    })
    .await?;
    Ok(last.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).0)
}

/// The usage of a program.
#[derive(Clone, Debug)]
pub struct Usage {
    /// Its name.
    pub name: String,
    /// CPU time.
    pub cpu: Duration,
    /// The most memory that was resident.
    pub peak_mib: u64,
}

/// The name of a process.
pub fn name_of(id: u32) -> String {
    std::fs::read_to_string(format!("/proc/{id}/comm")).unwrap_or_default().trim().to_owned()
}

fn cpu(id: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name may have spaces; the times are the 12th and 13th field after it, in hundredths of a second.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = rest.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum::<u64>();
    Duration::from_millis(ticks * 10)
}

/// CPU time so far.
pub fn cpu_of(programs: &BTreeMap<String, u32>) -> BTreeMap<String, Duration> {
    programs.iter().map(|(name, id)| (name.clone(), cpu(*id))).collect()
}

/// The usage of programs since `before`.
pub fn usage_of(programs: &BTreeMap<String, u32>, before: &BTreeMap<String, Duration>) -> Vec<Usage> {
    let usage = |(name, id): (&String, &u32)| {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|peak| peak.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
        let before = before.get(name).copied().unwrap_or_default();
        Usage { name: name.clone(), cpu: cpu(*id).saturating_sub(before), peak_mib: kib >> 10 }
    };
    programs.iter().map(usage).collect()
}

/// Mean, median, and what 99 of 100 stay below.
fn spread(mut times: Vec<Duration>) -> [Duration; 3] {
    times.sort_unstable();
    let of_hundred = |part: usize| times.get((times.len() * part / 100).min(times.len().saturating_sub(1)));
    let [median, most] = [50, 99].map(|part| of_hundred(part).copied().unwrap_or_default());
    let count = u32::try_from(times.len().max(1)).unwrap_or(u32::MAX);
    [times.iter().sum::<Duration>() / count, median, most]
}

/// The figures of a race.
#[derive(Clone, Debug)]
pub struct Figures {
    /// How many Workloads or Jobs were made.
    pub workloads: usize,
    /// In how many queues.
    pub queues: usize,
    /// Status writes of Workloads by the manager that were carried out.
    pub status_writes: u64,
    /// Status writes of queues and Cohorts.
    pub queue_writes: u64,
    /// Events, made and updated.
    pub events: u64,
    /// Writes of the manager that were refused as conflicts.
    pub conflicts: u64,
    /// How often a Workload was evicted, as its watch shows.
    pub evictions: u64,
    /// From the first Workload to the end of the last.
    pub wall: Duration,
    /// Quota x run time: less is impossible.
    pub bound: Duration,
    /// The time of one Workload's writes by a loop without decisions that runs as many at a time as is fastest.
    pub bare: Duration,
    /// The time to the first admission, or of Jobs to their start, by class: its mean, its median, and what 99 of 100 stay below.
    pub waited: Vec<(&'static str, [Duration; 3])>,
    /// From the end of one in a queue with waiting ones to the next admission or start there: as above.
    pub next: [Duration; 3],
    /// Of Jobs none of which was evicted: from such an end, as it is written, until the API server receives the next start.
    pub sent: Option<[Duration; 3]>,
    /// Writes of the manager on Workloads themselves and on Jobs.
    pub object_writes: u64,
    /// The usage of each program.
    pub used: Vec<Usage>,
    /// All requests by verb, resource and code.
    pub requests: Requests,
}

impl Figures {
    pub(super) fn new(
        race: &Race,
        load: &Load,
        (wall, bare): (Duration, Duration),
        sent: Option<Vec<Duration>>,
        used: Vec<Usage>,
        requests: &Requests,
    ) -> Self {
        let own = load.status_writes - load.conflicts;
        let queue_statuses = ["clusterqueues/status", "localqueues/status", "cohorts/status"];
        let made = u64::try_from(load.made).unwrap_or(u64::MAX);
        let of_workloads = requests.writes(&["workloads/status"]);
        Self {
            workloads: load.made,
            queues: race.queues().count(),
            status_writes: match race.work {
                Work::Workloads => of_workloads.saturating_sub(own),
                Work::Jobs => of_workloads,
            },
            object_writes: requests.writes(&["workloads", "jobs"]).saturating_sub(made),
            queue_writes: requests.writes(&queue_statuses),
            events: requests.writes(&["events"]),
            conflicts: requests.conflicts().saturating_sub(load.conflicts),
            evictions: load.evictions,
            wall,
            bound: race.bound(),
            bare,
            waited: race
                .classes
                .iter()
                .map(|class| (class.name, spread(load.waited.get(class.name).cloned().unwrap_or_default())))
                .collect(),
            next: spread(load.next.clone()),
            sent: sent.map(spread),
            used,
            requests: requests.clone(),
        }
    }

    /// All writes of the manager but events.
    pub fn own_writes(&self) -> u64 {
        self.status_writes + self.object_writes + self.queue_writes
    }

    /// A count per Workload.
    #[expect(clippy::cast_precision_loss, reason = "for a figure with two digits")]
    pub fn per_workload(&self, count: u64) -> f64 {
        count as f64 / self.workloads.max(1) as f64
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let utilisation = 100.0 * self.bound.as_secs_f64() / self.wall.as_secs_f64();
        let count = u32::try_from(self.workloads.max(1)).unwrap_or(u32::MAX);
        writeln!(f, "{} Workloads in {} queues", self.workloads, self.queues)?;
        writeln!(
            f,
            "wall {:.1} s; quota x run time {:.1} s ({utilisation:.0} %); the bare writes {:.1} s ({:.1} ms each)",
            self.wall.as_secs_f64(),
            self.bound.as_secs_f64(),
            (self.bare * count).as_secs_f64(),
            self.bare.as_secs_f64() * 1e3,
        )?;
        for (what, count) in [
            ("status writes of Workloads by the manager", self.status_writes),
            ("its writes on Workloads and Jobs", self.object_writes),
            ("status writes of queues", self.queue_writes),
            ("all of these", self.own_writes()),
            ("events", self.events),
            ("conflicts", self.conflicts),
            ("evictions", self.evictions),
        ] {
            writeln!(f, "{what:<42} {count:>8} {:>7.2} per Workload", self.per_workload(count))?;
        }
        for (class, [mean, median, most]) in &self.waited {
            let [mean, median, most] = [mean, median, most].map(Duration::as_secs_f64);
            writeln!(
                f,
                "time to admission, {class:<12} mean {mean:>8.2} s, p50 {median:>8.2} s, p99 {most:>8.2} s"
            )?;
        }
        let seen = ("from an end to the next start seen", Some(self.next));
        for (what, times) in [seen, ("from an end to the next start sent", self.sent)] {
            let Some(times) = times else { continue };
            let [mean, median, most] = times.map(|time| time.as_secs_f64() * 1e3);
            writeln!(f, "{what} mean {mean:>8.0} ms, p50 {median:>7.0} ms, p99 {most:>7.0} ms")?;
        }
        for Usage { name, cpu, peak_mib } in &self.used {
            let ms = cpu.as_secs_f64() * 1e3 / f64::from(count);
            writeln!(
                f,
                "{name:<18} CPU {:>7.1} s, {ms:>6.2} ms per Workload; peak memory {peak_mib} MiB",
                cpu.as_secs_f64()
            )?;
        }
        for ((verb, resource, code), count) in &self.requests.0 {
            if ["APPLY", "PATCH", "POST", "PUT", "DELETE"].contains(&verb.as_str()) {
                writeln!(f, "  {count:>8} {verb} {resource} {code}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE apiserver_request_total counter\n\
        apiserver_request_total{code=\"200\",component=\"apiserver\",group=\"kueue.x-k8s.io\",resource=\"workloads\",subresource=\"status\",verb=\"APPLY\"} 30\n\
        apiserver_request_total{code=\"409\",component=\"apiserver\",group=\"kueue.x-k8s.io\",resource=\"workloads\",subresource=\"status\",verb=\"PATCH\"} 2\n\
        apiserver_request_total{code=\"201\",component=\"apiserver\",group=\"\",resource=\"events\",subresource=\"\",verb=\"POST\"} 5\n\
        apiserver_request_total{code=\"200\",component=\"apiserver\",group=\"\",resource=\"events\",subresource=\"\",verb=\"GET\"} 9\n";

    #[test]
    fn a_spread_has_mean_median_and_the_last_hundredth() {
        let times = (1..=200).rev().map(Duration::from_millis).collect();
        let [mean, median, most] = spread(times);
        assert_eq!((mean.as_micros(), median.as_millis(), most.as_millis()), (100_500, 101, 199));
        assert_eq!(spread(Vec::new()), [Duration::ZERO; 3]);
    }

    #[test]
    fn counts_are_read_however_large_they_are() {
        for (text, expected) in [
            ("0", 0),
            ("30", 30),
            ("999999", 999_999),
            ("1e+06", 1_000_000),
            ("1.234567e+06", 1_234_567),
            ("1.0000000123e+10", 10_000_000_123),
            ("NaN", 0),
            ("", 0),
        ] {
            assert_eq!(count(text), expected, "{text}");
        }
        let million = TEXT.replace("} 30\n", "} 1.234567e+06\n");
        assert_eq!(Requests::parse(&million).writes(&["workloads/status"]), 1_234_567);
    }

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        let all = Requests::parse(TEXT);
        assert_eq!((all.writes(&["workloads/status"]), all.writes(&["events"]), all.conflicts()), (30, 5, 2));
        assert_eq!(all.since(&all), Requests::default());
        assert_eq!(all.since(&Requests::default()), all);
    }
}
