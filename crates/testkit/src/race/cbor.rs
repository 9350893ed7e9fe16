//! JSON as CBOR (RFC 8949): as much of it as requests to an API server need.

use serde_json::Value;

/// The tag of a document that says of itself that it is CBOR: the API server wants it on whole objects.
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

/// A whole object.
pub(super) fn document(value: &Value) -> Vec<u8> {
    let mut bytes = SELF_DESCRIBED.to_vec();
    add(value, &mut bytes);
    bytes
}

/// A value by itself, such as a patch.
pub(super) fn encode(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    add(value, &mut bytes);
    bytes
}

fn length(items: usize) -> u64 {
    u64::try_from(items).unwrap_or(u64::MAX)
}

/// The head of an item: its type, and its length or number in as few bytes as possible.
fn head(major: u8, number: u64, bytes: &mut Vec<u8>) {
    let major = major << 5;
    if let Ok(number @ 0..24) = u8::try_from(number) {
        bytes.push(major | number);
    } else if let Ok(number) = u8::try_from(number) {
        bytes.extend([major | 0x18, number]);
    } else if let Ok(number) = u16::try_from(number) {
        bytes.push(major | 0x19);
        bytes.extend(number.to_be_bytes());
    } else if let Ok(number) = u32::try_from(number) {
        bytes.push(major | 0x1a);
        bytes.extend(number.to_be_bytes());
    } else {
        bytes.push(major | 0x1b);
        bytes.extend(number.to_be_bytes());
    }
}

fn text(text: &str, bytes: &mut Vec<u8>) {
    head(3, length(text.len()), bytes);
    bytes.extend(text.as_bytes());
}

fn add(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => bytes.push(0xf6),
        Value::Bool(value) => bytes.push(0xf4 | u8::from(*value)),
        Value::Number(number) => {
            if let Some(number) = number.as_u64() {
                head(0, number, bytes);
            } else if let Some(number) = number.as_i64() {
                // It is negative: -1 is 0.
                head(1, number.unsigned_abs() - 1, bytes);
            } else {
                bytes.push(0xfb);
                bytes.extend(number.as_f64().unwrap_or(f64::NAN).to_be_bytes());
            }
        }
        Value::String(value) => text(value, bytes),
        Value::Array(list) => {
            head(4, length(list.len()), bytes);
            for value in list {
                add(value, bytes);
            }
        }
        Value::Object(fields) => {
            head(5, length(fields.len()), bytes);
            for (name, value) in fields {
                text(name, bytes);
                add(value, bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Examples of RFC 8949, appendix A.
    #[test]
    fn values_are_written_as_the_standard_has_them() {
        for (value, hex) in [
            (json!(0), "00"),
            (json!(23), "17"),
            (json!(24), "1818"),
            (json!(1000), "1903e8"),
            (json!(1_000_000), "1a000f4240"),
            (json!(1_000_000_000_000_u64), "1b000000e8d4a51000"),
            (json!(-1), "20"),
            (json!(-100), "3863"),
            (json!(1.1), "fb3ff199999999999a"),
            (json!(false), "f4"),
            (json!(true), "f5"),
            (json!(null), "f6"),
            (json!("IETF"), "6449455446"),
            (json!([1, [2, 3]]), "8201820203"),
            (json!({"a": 1, "b": [2, 3]}), "a26161016162820203"),
        ] {
            let bytes: Vec<_> = encode(&value).iter().map(|byte| format!("{byte:02x}")).collect();
            let written = bytes.concat();
            assert_eq!(written, hex, "{value}");
        }
        assert_eq!(document(&json!(0)), [0xd9, 0xd9, 0xf7, 0x00]);
    }
}
