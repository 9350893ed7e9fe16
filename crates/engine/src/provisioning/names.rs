//! The names of ProvisioningRequests and their PodTemplates (docs/reference/06-algorithm.md 6.23).

use sluice_api::names::limited_name;

/// Attempts that are looked for behind a name that was cut.
const MOST_ATTEMPTS: i32 = 100;

/// The name of an attempt: `<workload>-<check>-<attempt>`.
pub(crate) fn request_name(workload: &str, check: &str, attempt: i32) -> String {
    limited_name(&format!("{workload}-{check}-{attempt}"))
}

/// The name of the PodTemplate of a pod set: `ppt-<request>-<pod set>`.
pub(crate) fn template_name(request: &str, pod_set: &str) -> String {
    limited_name(&format!("ppt-{request}-{pod_set}"))
}

/// The attempt that a name stands for, if it belongs to this Workload and check.
pub(crate) fn attempt_of(name: &str, workload: &str, check: &str) -> Option<i32> {
    let parsed = name
        .strip_prefix(workload)
        .and_then(|rest| rest.strip_prefix('-'))
        .and_then(|rest| rest.strip_prefix(check))
        .and_then(|rest| rest.strip_prefix('-'))
        .filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))
        .and_then(|digits| digits.parse().ok())
        .filter(|attempt| *attempt > 0);
    parsed.or_else(|| (1..=MOST_ATTEMPTS).find(|attempt| request_name(workload, check, *attempt) == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_is_read_back_from_its_name() {
        assert_eq!(request_name("job-a-12345", "prov", 3), "job-a-12345-prov-3");
        assert_eq!(attempt_of("job-a-12345-prov-3", "job-a-12345", "prov"), Some(3));
        assert_eq!(attempt_of("job-a-12345-other-3", "job-a-12345", "prov"), None);
        assert_eq!(attempt_of("job-a-12345-prov-2-3", "job-a-12345", "prov"), None);
        assert_eq!(attempt_of("job-a-12345-prov-2-3", "job-a-12345", "prov-2"), Some(3));
        assert_eq!(attempt_of("job-a-12345-prov-+3", "job-a-12345", "prov"), None);
    }

    #[test]
    fn long_names_are_cut_and_distinguished_by_their_hash() {
        let workload = "w".repeat(250);
        let (one, two) = (request_name(&workload, "prov", 1), request_name(&workload, "prov", 2));
        assert_eq!(one.len(), 253);
        assert_ne!(one, two);
        assert_eq!(attempt_of(&two, &workload, "prov"), Some(2));
        // `printf 'w…w-prov-1' | sha1sum`, not this code.
        assert!(one.ends_with("-2a7a6"), "{one}");
    }
}
