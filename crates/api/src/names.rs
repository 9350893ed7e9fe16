//! Names of Workloads (docs/reference/06-algorithm.md 6.20), the identity of their pod templates, and the syntax of names.

mod containers;
mod role;
mod syntax;
mod templates;

use sha1::{Digest, Sha1};

pub use containers::{containers_hash, dedupe_env, requests_hash};
pub use role::role_hash;
pub use syntax::{
    dns1123_label_error, dns1123_subdomain_error, domain_path_error, label_value_error, qualified_name_error,
};
pub use templates::{scheduling_hash, template_hash};

/// Longest name of a Workload.
pub const MAX_WORKLOAD_NAME: usize = 253;
/// Longest name of a Workload with gate ShortWorkloadNames: it is then also a legal label value.
pub const MAX_SHORT_WORKLOAD_NAME: usize = 63;

/// Hexadecimal digits of the hash at the end of a name.
const HASH_LENGTH: usize = 5;

/// The name of a job's Workload: `<kind>-<name>-<hash>`, at most `max` bytes long.
///
/// The hash covers kind, group, name and UID (and `extra`, the generation of an elastic job), but not the version. Source:
/// docs/reference/06-algorithm.md 6.20.
pub fn workload_name(
    kind: &str,
    group: &str,
    owner_name: &str,
    owner_uid: &str,
    extra: Option<&str>,
    max: usize,
) -> String {
    let mut name = format!("{}-{owner_name}", kind.to_ascii_lowercase());
    truncate(&mut name, max.saturating_sub(HASH_LENGTH + 1));
    let mut hash = Sha1::new();
    hash.update(kind);
    for part in [Some(group), Some(owner_name), Some(owner_uid), extra].into_iter().flatten() {
        hash.update(b"\n");
        hash.update(part);
    }
    let digest = hash.finalize();
    let hex = format!("{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2]);
    name.push('-');
    name.push_str(&hex[..HASH_LENGTH]);
    name
}

/// Cuts a name that is longer than 247 characters there, and adds `-` and five digits of the SHA-1 of the whole
/// (docs/reference/06-algorithm.md 6.23).
pub fn limited_name(name: &str) -> String {
    const LONGEST: usize = 253 - HASH_LENGTH - 1;
    if name.len() <= LONGEST {
        return name.to_owned();
    }
    let digest = Sha1::digest(name);
    let hex = format!("{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2]);
    let mut cut = name.to_owned();
    truncate(&mut cut, LONGEST);
    format!("{cut}-{}", &hex[..HASH_LENGTH])
}

/// Cuts a text to at most `max` bytes without cutting a character in two.
fn truncate(text: &mut String, max: usize) {
    if text.len() > max {
        let mut end = max;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The hashes were computed with `printf 'Job\nbatch\n…' | sha1sum`, not with this code.

    #[test]
    fn name_ends_in_five_digits_of_the_sha1() {
        let uid = "0b6a2f5c-1d1c-4f0f-9d9e-2f6f0c1a7b11";
        let name = workload_name("Job", "batch", "my-job", uid, None, MAX_WORKLOAD_NAME);
        assert_eq!(name, "job-my-job-ab097");
        let uid = "6d0f2a3e-8c44-4b8e-8f7e-0d9a4c1b2e3f";
        let name =
            workload_name("JobSet", "jobset.x-k8s.io", "multislice-1slice", uid, None, MAX_WORKLOAD_NAME);
        assert_eq!(name, "jobset-multislice-1slice-83164");
    }

    #[test]
    fn extra_changes_the_hash_only() {
        let uid = "0b6a2f5c-1d1c-4f0f-9d9e-2f6f0c1a7b11";
        let name = workload_name("Job", "batch", "my-job", uid, Some("3"), MAX_WORKLOAD_NAME);
        assert_eq!(name, "job-my-job-1dbd1");
    }

    #[test]
    fn long_names_are_cut_before_the_hash() {
        let owner = "a".repeat(63);
        let name = workload_name("Job", "batch", &owner, "uid-1", None, MAX_SHORT_WORKLOAD_NAME);
        assert_eq!(name, format!("job-{}-7788f", "a".repeat(53)));
        assert_eq!(name.len(), MAX_SHORT_WORKLOAD_NAME);
        let owner = "b".repeat(253);
        assert_eq!(workload_name("Job", "batch", &owner, "u", None, MAX_WORKLOAD_NAME).len(), 253);
    }

    #[test]
    fn characters_of_several_bytes_are_not_cut_in_two() {
        let name = workload_name("Job", "batch", &"ä".repeat(40), "u", None, 14);
        assert!(name.starts_with("job-ää-"), "{name}");
    }
}
