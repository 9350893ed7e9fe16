//! What Prometheus expects of every process, read from /proc.

use std::time::{Duration, SystemTime};

use super::Metric;
use super::registry::{Definition, Sample};

const MEMORY: Metric<0> =
    Metric::gauge("process_resident_memory_bytes", [], "Resident memory size in bytes.");
const FILES: Metric<0> = Metric::gauge("process_open_fds", [], "Number of open file descriptors.");
const CPU: Metric<0> =
    Metric::counter("process_cpu_seconds_total", [], "Total user and system CPU time spent in seconds.");
const START: Metric<0> =
    Metric::gauge("process_start_time_seconds", [], "Start time of the process since unix epoch in seconds.");

const ALL: [Metric<0>; 4] = [MEMORY, FILES, CPU, START];

/// The names, all set at each scrape.
pub const NAMES: [&str; 4] = [MEMORY.name, FILES.name, CPU.name, START.name];

/// Their definitions.
pub fn definitions() -> Vec<Definition> {
    ALL.iter().map(Metric::definition).collect()
}

/// Their current values; those that this system does not have are left out.
pub fn samples(started: SystemTime) -> Vec<Sample> {
    let started = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let files = std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let values = [
        resident_bytes(&status),
        files.and_then(|n| u32::try_from(n).ok()).map(f64::from),
        cpu_time(&stat).map(|time| time.as_secs_f64()),
        Some(started.as_secs_f64()),
    ];
    ALL.iter().zip(values).filter_map(|(metric, value)| Some(metric.sample([], value?))).collect()
}

fn resident_bytes(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u32 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(f64::from(kib) * 1024.0)
}

/// Fields 14 and 15 of /proc/self/stat, in ticks of 10 ms (Linux' USER_HZ is 100 on every platform).
fn cpu_time(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_understood() {
        assert_eq!(resident_bytes("VmSize:\t 9 kB\nVmRSS:\t   1024 kB\n"), Some(1_048_576.0));
        let stat = "1 (a b) c) S 0 1 1 0 -1 4194560 1 2 3 4 150 50 0 0 20 0 8 0 9 10 11";
        assert_eq!(cpu_time(stat), Some(Duration::from_secs(2)));
        assert_eq!(cpu_time(""), None);
    }

    #[test]
    fn this_process_has_memory_files_and_a_start() {
        let samples = samples(SystemTime::now());
        assert_eq!(samples.len(), 4);
        assert!(samples.iter().filter(|s| s.metric != CPU.name).all(|s| s.value > 0.0));
    }
}
