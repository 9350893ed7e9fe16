//! How the manager's lease names its holder: `sluice_POD_UUID`.

use std::fmt::Display;

/// Holder identities of Sluice start with this; any other holder is Kueue (or an unknown program).
pub const IDENTITY_PREFIX: &str = "sluice_";

/// The identity of a manager in a pod.
pub fn identity(pod: &str, uuid: impl Display) -> String {
    format!("{IDENTITY_PREFIX}{pod}_{uuid}")
}

/// The pod that an identity of Sluice names.
pub fn pod_of(identity: &str) -> Option<&str> {
    let (pod, _) = identity.strip_prefix(IDENTITY_PREFIX)?.rsplit_once('_')?;
    Some(pod).filter(|pod| !pod.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_names_its_pod() {
        assert_eq!(pod_of(&identity("a_b-1", "2f3a")), Some("a_b-1"));
        assert_eq!((pod_of("a_2f3a"), pod_of("sluice_2f3a"), pod_of("sluice__2f3a")), (None, None, None));
    }
}
