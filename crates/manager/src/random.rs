//! A few random bits from the TLS provider's generator: identities and the jitter of retries.

/// Sixty-four random bits.
pub fn bits() -> u64 {
    let mut bytes = [0; 8];
    match rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes) {
        Ok(()) => u64::from_le_bytes(bytes),
        // Without entropy only uniqueness within a host is left.
        Err(_) => u64::from(std::process::id()),
    }
}

/// A random version-4 UUID.
pub fn uuid() -> String {
    uuid::Builder::from_u128((u128::from(bits()) << 64) | u128::from(bits()))
        .with_variant(uuid::Variant::RFC4122)
        .with_version(uuid::Version::Random)
        .into_uuid()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_the_form_of_version_four_and_differ() {
        let (one, two) = (uuid(), uuid());
        assert_ne!(one, two);
        let lengths: Vec<_> = one.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert!(one.split('-').nth(2).unwrap().starts_with('4'));
        assert!(one.split('-').nth(3).unwrap().starts_with(['8', '9', 'a', 'b']));
    }
}
