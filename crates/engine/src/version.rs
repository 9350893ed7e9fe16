//! Versions of objects: which of two is the newer.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// How a seen version relates to the known one. Versions are opaque, but grow if they are numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Seen before.
    Older,
    /// The known one.
    Same,
    /// Not seen before.
    Newer,
}

/// How a seen version relates to the known one.
pub(crate) fn compare(known: Option<&str>, seen: Option<&str>) -> Seen {
    let (Some(known), Some(seen)) = (known, seen) else { return Seen::Newer };
    if known == seen {
        return Seen::Same;
    }
    match (known.parse::<u64>(), seen.parse::<u64>()) {
        (Ok(known), Ok(seen)) if seen < known => Seen::Older,
        _ => Seen::Newer,
    }
}

/// Whether a version has nothing new.
pub(crate) fn is_stale(known: Option<&str>, seen: Option<&str>) -> bool {
    compare(known, seen) != Seen::Newer
}

/// Whether an answer about an object is older than what is known of it: a watch has shown a newer state.
pub(crate) fn is_overtaken(known: Option<&ObjectMeta>, answer: &ObjectMeta) -> bool {
    let known = known.and_then(|metadata| metadata.resource_version.as_deref());
    compare(known, answer.resource_version.as_deref()) == Seen::Older
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_grow_where_they_are_numbers() {
        assert_eq!(compare(Some("9"), Some("10")), Seen::Newer);
        assert_eq!(compare(Some("10"), Some("9")), Seen::Older);
        assert_eq!(compare(Some("a"), Some("b")), Seen::Newer);
        assert_eq!(compare(Some("a"), Some("a")), Seen::Same);
    }
}
