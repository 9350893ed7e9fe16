//! Label selectors, node affinity, taints and tolerations, and when they match: the only implementation in the project.
//!
//! This crate must never contain input/output, or knowledge of any Kubernetes object: the caller passes the texts of the requirement and of the node.
//! Invariant: no input makes a function panic.
#![forbid(unsafe_code)]

mod nodes;
mod taints;
mod values;

pub use nodes::{NAME_FIELD, Requirement, Term, any_term_holds, labels_hold};
pub use taints::{Taint, Toleration, TolerationOperator, is_tolerated, keeps_away};
pub use values::{Sorted, Values, sort};

/// The operators of label selectors and node affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operator {
    /// The label has one of the values.
    In,
    /// The label is absent or has none of the values.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
    /// The label is an integer above the value (node affinity only).
    Gt,
    /// The label is an integer below the value (node affinity only).
    Lt,
}

impl Operator {
    /// The operator with this name in node affinities, if there is one.
    pub fn of_nodes(name: &str) -> Option<Self> {
        match name {
            "In" => Some(Self::In),
            "NotIn" => Some(Self::NotIn),
            "Exists" => Some(Self::Exists),
            "DoesNotExist" => Some(Self::DoesNotExist),
            "Gt" => Some(Self::Gt),
            "Lt" => Some(Self::Lt),
            _ => None,
        }
    }

    /// The operator of this name in a label selector, which does not compare numbers.
    pub fn of_labels(name: &str) -> Option<Self> {
        Self::of_nodes(name).filter(|operator| !matches!(operator, Self::Gt | Self::Lt))
    }

    /// Whether a label with this value, or without one if it does not exist, matches a requirement with these values. Numbers are compared with the
    /// first value; a text that is not an integer is neither above nor below.
    pub fn holds<'a>(self, label: Option<&str>, values: impl Values<'a>) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        match self {
            Self::In => label.is_some_and(|label| values.has(label)),
            Self::NotIn => label.is_none_or(|label| !values.has(label)),
            Self::Exists => label.is_some(),
            Self::DoesNotExist => label.is_none(),
            Self::Gt | Self::Lt => match (label.and_then(number), values.first().and_then(number)) {
                (Some(is), Some(bound)) if self == Self::Gt => is > bound,
                (Some(is), Some(bound)) => is < bound,
                _ => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_hold_as_in_kubernetes() {
        use Operator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
        for (operator, label, values, expected) in [
            (In, Some("a"), &["b", "a"][..], true),
            (In, Some("a"), &["b"], false),
            (In, None, &["a"], false),
            (In, Some("a"), &[], false),
            (NotIn, Some("a"), &["b", "a"], false),
            (NotIn, Some("a"), &["b"], true),
            (NotIn, None, &["a"], true),
            (Exists, Some(""), &[], true),
            (Exists, None, &[], false),
            (DoesNotExist, None, &[], true),
            (DoesNotExist, Some("a"), &[], false),
            (Gt, Some("2"), &["1"], true),
            (Gt, Some("1"), &["1"], false),
            (Gt, Some("x"), &["1"], false),
            (Gt, None, &["1"], false),
            (Lt, Some("-1"), &["0", "-2"], true),
            (Lt, Some("1"), &["x"], false),
            (Lt, Some("1"), &[], false),
        ] {
            let found = operator.holds(label, values.iter().copied());
            assert_eq!(found, expected, "{label:?} {operator:?} {values:?}");
        }
    }

    #[test]
    fn only_node_affinity_compares_numbers() {
        for name in ["In", "NotIn", "Exists", "DoesNotExist"] {
            assert_eq!(Operator::of_labels(name), Operator::of_nodes(name));
            assert!(Operator::of_labels(name).is_some());
        }
        assert_eq!(Operator::of_nodes("Gt"), Some(Operator::Gt));
        assert_eq!(Operator::of_nodes("Lt"), Some(Operator::Lt));
        assert_eq!(Operator::of_labels("Gt"), None);
        assert_eq!(Operator::of_labels("Lt"), None);
        assert_eq!(Operator::of_nodes("in"), None);
    }
}
