//! A memory cgroup for one process, like a container's, if the machine allows one (root, with a writable hierarchy).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the memory controller of version 1 is, and the file that holds its limit.
const VERSION_1: (&str, &str) = ("/sys/fs/cgroup/memory", "memory.limit_in_bytes");
/// The same for version 2.
const VERSION_2: (&str, &str) = ("/sys/fs/cgroup", "memory.max");

/// A cgroup of its own. It is removed when this is dropped, after the process in it has ended.
#[derive(Debug)]
pub(crate) struct MemoryCgroup {
    folder: PathBuf,
}

impl MemoryCgroup {
    /// A cgroup of this name with the limit `limit` in bytes; none if this process may not make one.
    pub(crate) fn new(name: &str, limit: u64) -> Option<Self> {
        [VERSION_1, VERSION_2].iter().find_map(|(root, file)| Self::below(Path::new(root), file, name, limit))
    }

    fn below(root: &Path, file: &str, name: &str, limit: u64) -> Option<Self> {
        let folder = root.join(format!("sluice-test-{}-{name}", std::process::id()));
        // A folder elsewhere than in a mounted hierarchy is no cgroup.
        if !root.join("cgroup.procs").exists() {
            return None;
        }
        // The cgroup of a process with the same name that was killed a moment ago is reused.
        fs::create_dir(&folder).or_else(|_| if folder.is_dir() { Ok(()) } else { Err(()) }).ok()?;
        let made = Self { folder };
        fs::write(made.folder.join(file), limit.to_string()).ok()?;
        Some(made)
    }

    /// Whether this process may make a cgroup.
    pub(crate) fn can_be_made() -> bool {
        Self::new("probe", 32 << 20).is_some()
    }

    /// A process that writes its id here is in the cgroup.
    pub(crate) fn processes(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.folder)
            && error.kind() != io::ErrorKind::NotFound
        {
            eprintln!("{}: {error}", self.folder.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_that_takes_more_than_the_limit_is_killed() {
        let Some(cgroup) = MemoryCgroup::new("unit", 32 << 20) else { return };
        let take = |mebibytes: u32| {
            let script =
                format!("echo $$ > \"$0\" && head -c {mebibytes}m /dev/zero | tail -c {mebibytes}m | wc -c");
            let output = Command::new("sh").args(["-c", &script]).arg(cgroup.processes()).output();
            String::from_utf8(output.map(|output| output.stdout).unwrap_or_default()).unwrap_or_default()
        };
        assert_eq!(take(1).trim(), (1 << 20).to_string());
        assert_ne!(take(128).trim(), (128 << 20).to_string());
    }
}
