//! Memory for work on demand: simulations and explanations reserve theirs before they begin.
//!
//! The kernel kills a manager that exceeds its container's memory limit, so the memory that is left is shared: each reservation counts in full until
//! it is dropped, even when part of it is already in use.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What the manager itself may still need, in bytes.
const KEPT_FREE: usize = 64 << 20;
/// The assumed limit if it cannot be read, in bytes: the chart's.
const USUAL_LIMIT: usize = 512 << 20;
const USUAL_USE: usize = 128 << 20;

/// The limit and the use of this process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// The memory limit.
    pub limit: usize,
    /// The memory in use.
    pub used: usize,
}

impl Figures {
    /// The current figures of this process: of its control group, else of the machine.
    pub fn read() -> Self {
        Self::read_in(Path::new("/"))
    }

    fn read_in(root: &Path) -> Self {
        let file = |path: &Path| std::fs::read_to_string(root.join(path.strip_prefix("/").unwrap_or(path)));
        let number = |path: PathBuf| file(&path).ok()?.trim().parse::<usize>().ok();
        let own = file(Path::new("/proc/self/cgroup")).unwrap_or_default();
        let of_group = |line: &str| {
            let path = line.strip_prefix("0::")?.trim_start_matches('/').to_owned();
            number(Path::new("/sys/fs/cgroup").join(path).join("memory.max"))
        };
        let groups = own.lines().find_map(of_group);
        let in_container = || number("/sys/fs/cgroup/memory.max".into());
        let first_version = || number("/sys/fs/cgroup/memory/memory.limit_in_bytes".into());
        let counted = |path: &str, what: &str| kilobytes(&file(Path::new(path)).ok()?, what);
        let machine = counted("/proc/meminfo", "MemTotal:");
        let group = groups.or_else(in_container).or_else(first_version);
        let limit = [group, machine].into_iter().flatten().min().unwrap_or(USUAL_LIMIT);
        Self { limit, used: counted("/proc/self/status", "VmRSS:").unwrap_or(USUAL_USE) }
    }
}

/// The kilobytes of a line, in bytes.
fn kilobytes(text: &str, what: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix(what))?;
    line.split_whitespace().next()?.parse::<usize>().ok()?.checked_mul(1 << 10)
}

/// The free memory of the process, and its reservations. Clones share it.
#[derive(Clone, Debug)]
pub struct Memory {
    figures: fn() -> Figures,
    /// The memory that is kept free, in bytes.
    kept: usize,
    reserved: Arc<Mutex<usize>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self::new(Figures::read)
    }
}

impl Memory {
    /// With these figures, which are read again for each reservation.
    pub fn new(figures: fn() -> Figures) -> Self {
        Self { figures, kept: KEPT_FREE, reserved: Arc::default() }
    }

    /// What is left beside this number of bytes, which are used without a reservation.
    pub fn beside(bytes: usize) -> Self {
        Self { kept: KEPT_FREE.saturating_add(bytes), ..Self::default() }
    }

    /// Reserves the free memory, up to `most` bytes. `None` if that is less than `least`.
    pub fn reserve(&self, least: usize, most: usize) -> Option<Reservation> {
        let Figures { limit, used } = (self.figures)();
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let left = limit.saturating_sub(used).saturating_sub(self.kept).saturating_sub(*reserved);
        let bytes = left.min(most);
        if bytes < least {
            return None;
        }
        *reserved += bytes;
        Some(Reservation { of: Arc::clone(&self.reserved), bytes })
    }
}

/// Memory that is reserved until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    of: Arc<Mutex<usize>>,
    bytes: usize,
}

impl Reservation {
    /// How much it is, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut reserved = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        *reserved = reserved.saturating_sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn what_is_reserved_is_not_given_twice_and_comes_back() {
        let memory = Memory::new(|| Figures { limit: 512 * MIB, used: 148 * MIB });
        let first = memory.reserve(MIB, 200 * MIB).unwrap();
        assert_eq!(first.bytes(), 200 * MIB);
        // The rest, less what the manager itself may need.
        let second = memory.clone().reserve(MIB, 200 * MIB).unwrap();
        assert_eq!(second.bytes(), 100 * MIB);
        assert!(memory.reserve(MIB, MIB).is_none());
        drop(first);
        assert!(memory.reserve(201 * MIB, 300 * MIB).is_none());
        assert_eq!(memory.reserve(MIB, 300 * MIB).unwrap().bytes(), 200 * MIB);
        drop(second);
        assert_eq!(memory.reserve(MIB, usize::MAX).unwrap().bytes(), 300 * MIB);
        let full = Memory::new(|| Figures { limit: 100 * MIB, used: 150 * MIB });
        assert!(full.reserve(1, MIB).is_none());
    }

    fn files(named: &str, files: &[(&str, &str)]) -> Figures {
        let root = std::env::temp_dir().join(format!("sluice-memory-{named}-{}", std::process::id()));
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let figures = Figures::read_in(&root);
        if root.exists() {
            std::fs::remove_dir_all(&root).unwrap();
        }
        figures
    }

    #[test]
    fn the_limit_is_that_of_the_container_if_it_has_one() {
        let machine = ("proc/meminfo", "MemTotal:  2048 kB\nMemFree: 1 kB\n");
        let status = ("proc/self/status", "Name:\tsluice\nVmRSS:\t     80 kB\n");
        let group = ("proc/self/cgroup", "0::/pod/a\n");
        let own = ("sys/fs/cgroup/pod/a/memory.max", "1000000\n");
        let figures = files("own", &[machine, status, group, own]);
        assert_eq!(figures, Figures { limit: 1_000_000, used: 80 << 10 });
        let container = [machine, status, ("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "7")];
        assert_eq!(files("container", &container).limit, 7);
        let unlimited = [machine, ("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "max\n")];
        assert_eq!(files("unlimited", &unlimited), Figures { limit: 2 << 20, used: USUAL_USE });
        let first = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9\n");
        assert_eq!(files("first", &[("proc/self/cgroup", "5:memory:/x\n"), first]).limit, 9);
        assert_eq!(files("nothing", &[]), Figures { limit: USUAL_LIMIT, used: USUAL_USE });
    }
}
