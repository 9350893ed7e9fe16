//! The values of requirements.

/// The values of a requirement: texts in any order, or [`Sorted`].
pub trait Values<'a> {
    /// Whether a text is one of the values.
    fn has(self, text: &str) -> bool;
    /// The first of them.
    fn first(self) -> Option<&'a str>;
}

impl<'a, I: IntoIterator<Item = &'a str>> Values<'a> for I {
    fn has(self, text: &str) -> bool {
        self.into_iter().any(|value| value == text)
    }

    fn first(self) -> Option<&'a str> {
        self.into_iter().next()
    }
}

/// Values that [`sort`] put into order: thousands of them are compared with a label as fast as a few.
#[derive(Debug, PartialEq, Eq)]
pub struct Sorted<'a, T>(pub &'a [T]);

impl<T> Clone for Sorted<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Sorted<'_, T> {}

impl<'a, T: AsRef<str>> Values<'a> for Sorted<'a, T> {
    fn has(self, text: &str) -> bool {
        self.0.binary_search_by(|value| value.as_ref().cmp(text)).is_ok()
    }

    fn first(self) -> Option<&'a str> {
        self.0.first().map(AsRef::as_ref)
    }
}

/// Puts values into order, each once.
pub fn sort<T: AsRef<str>>(values: &mut Vec<T>) {
    values.sort_unstable_by(|a, b| a.as_ref().cmp(b.as_ref()));
    values.dedup_by(|a, b| a.as_ref() == b.as_ref());
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::Operator;

    thread_local! {
        static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
    }

    /// A value that counts how often it is looked at.
    struct Counted(String);

    impl AsRef<str> for Counted {
        fn as_ref(&self) -> &str {
            LOOKED_AT.set(LOOKED_AT.get() + 1);
            &self.0
        }
    }

    #[test]
    fn a_label_is_compared_with_few_of_many_sorted_values() {
        let mut values: Vec<_> =
            (0..4_096).rev().flat_map(|at| [at, at]).map(|at| Counted(format!("n{at}"))).collect();
        sort(&mut values);
        assert_eq!(values.len(), 4_096);
        for (label, there) in [("n0", true), ("n4095", true), ("n4096", false), ("", false), ("z", false)] {
            for (operator, expected) in [(Operator::In, there), (Operator::NotIn, !there)] {
                LOOKED_AT.set(0);
                assert_eq!(operator.holds(Some(label), Sorted(&values)), expected, "{operator:?} {label}");
                assert!(LOOKED_AT.get() <= 14, "{} values are compared with {label}", LOOKED_AT.get());
            }
        }
    }

    #[test]
    fn sorted_values_hold_as_any_others() {
        let mut values = ["b", "a", "b", "10"].to_vec();
        sort(&mut values);
        assert_eq!(values, ["10", "a", "b"]);
        for label in ["a", "b", "c", "10"] {
            assert_eq!(Sorted(&values).has(label), values.iter().copied().has(label), "{label}");
        }
        assert_eq!(Sorted(&values).first(), Some("10"));
        assert_eq!(Sorted::<&str>(&[]).first(), None);
    }
}
