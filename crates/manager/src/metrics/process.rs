//! What Prometheus expects of every process, read from /proc.

use std::time::{Duration, SystemTime};

use super::registry::{Definition, Sample, Shape};

const MEMORY: &str = "process_resident_memory_bytes";
const FILES: &str = "process_open_fds";
const CPU: &str = "process_cpu_seconds_total";
const START: &str = "process_start_time_seconds";

/// The names, all set at each scrape.
pub const NAMES: [&str; 4] = [MEMORY, FILES, CPU, START];

/// Their definitions.
pub fn definitions() -> Vec<Definition> {
    let helps = [
        "Resident memory size in bytes.",
        "Number of open file descriptors.",
        "Total user and system CPU time spent in seconds.",
        "Start time of the process since unix epoch in seconds.",
    ];
    let define = |(name, help): (&'static str, &str)| Definition {
        name,
        help: help.to_owned(),
        shape: if name == CPU { Shape::Counter } else { Shape::Gauge },
        labels: Vec::new(),
        custom: Vec::new(),
        role: false,
    };
    NAMES.into_iter().zip(helps).map(define).collect()
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
    NAMES
        .into_iter()
        .zip(values)
        .filter_map(|(metric, value)| Some(Sample { metric, labels: Vec::new(), value: value? }))
        .collect()
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
        assert!(samples.iter().filter(|s| s.metric != CPU).all(|s| s.value > 0.0));
    }
}
