//! Values that labels, annotations and flags hold as text, read as Kueue reads them.

/// A boolean in one of the spellings of Go's `strconv.ParseBool`.
pub fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// The entries of a list that commas separate, without the space around them. A blank text has none; between two commas is an empty one.
pub fn listed(text: &str) -> impl Iterator<Item = &str> {
    let text = Some(text).filter(|text| !text.trim().is_empty());
    text.into_iter().flat_map(|text| text.split(',').map(str::trim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_boolean_has_twelve_spellings() {
        for (value, spellings) in [
            (true, ["1", "t", "T", "TRUE", "true", "True"]),
            (false, ["0", "f", "F", "FALSE", "false", "False"]),
        ] {
            assert!(spellings.iter().all(|text| boolean(text) == Some(value)), "{value}");
        }
        for odd in ["", "yes", "tRUE", " true", "2"] {
            assert_eq!(boolean(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn space_around_the_entries_of_a_list_is_none_of_them() {
        for (text, entries) in [
            ("a", &["a"][..]),
            ("a,b", &["a", "b"]),
            (" a ,\tb ", &["a", "b"]),
            ("a, ,b", &["a", "", "b"]),
            ("a,", &["a", ""]),
            ("", &[]),
            (" \t", &[]),
        ] {
            assert_eq!(listed(text).collect::<Vec<_>>(), entries, "{text:?}");
        }
    }
}
