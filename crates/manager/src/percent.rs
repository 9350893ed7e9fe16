//! Percent-encoded text (RFC 3986), as in paths, queries and header names.

use std::fmt::Write as _;

/// The decoded text; `None` if an escape is broken, or the result is not UTF-8.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// A text as a part of a path or query.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing into a String does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_broken_ones_refused() {
        assert_eq!(decoded("a%2Fb%20c").as_deref(), Some("a/b c"));
        assert_eq!(decoded("%C3%BC").as_deref(), Some("ü"));
        assert_eq!(encoded("a/b c?ü"), "a%2Fb%20c%3F%C3%BC");
        for broken in ["%", "%2", "%zz", "%C3", "%+1"] {
            assert_eq!(decoded(broken), None, "{broken}");
        }
    }
}
