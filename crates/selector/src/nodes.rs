//! Node selectors and node affinity.

use crate::{Operator, Values};

/// The only field of nodes that a term may name.
pub const NAME_FIELD: &str = "metadata.name";

/// A term's requirement for one label or field. An operator that does not exist (`None`) matches no node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requirement<'a, V> {
    /// The label's or field's key.
    pub key: &'a str,
    /// How it is compared.
    pub operator: Option<Operator>,
    /// The values of the comparison.
    pub values: V,
}

impl<'a, V: Values<'a>> Requirement<'a, V> {
    /// Whether a label or field with this value, if it exists, matches.
    pub fn holds(self, value: Option<&str>) -> bool {
        self.operator.is_some_and(|operator| operator.holds(value, self.values))
    }
}

/// A term of a node selector: all of its requirements must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term<E, F> {
    /// `matchExpressions`.
    pub labels: E,
    /// `matchFields`.
    pub fields: F,
}

impl<'a, E, F, V, W> Term<E, F>
where
    E: IntoIterator<Item = Requirement<'a, V>>,
    F: IntoIterator<Item = Requirement<'a, W>>,
    V: Values<'a>,
    W: Values<'a>,
{
    /// Whether a node with this name and these labels is as the term wants it. A term without any requirement selects no node.
    pub fn holds<'n>(self, name: Option<&str>, label: impl Fn(&str) -> Option<&'n str>) -> bool {
        let mut labels = self.labels.into_iter().peekable();
        let mut fields = self.fields.into_iter().peekable();
        if labels.peek().is_none() && fields.peek().is_none() {
            return false;
        }
        labels.all(|one| {
            let value = label(one.key);
            one.holds(value)
        }) && fields.all(|one| one.key == NAME_FIELD && one.holds(name))
    }
}

/// Whether a required node affinity matches: one of its terms does, or it has none.
pub fn any_term_holds<T>(terms: impl IntoIterator<Item = T>, holds: impl FnMut(T) -> bool) -> bool {
    let mut terms = terms.into_iter().peekable();
    terms.peek().is_none() || terms.any(holds)
}

/// Whether a node has all labels of a node selector.
pub fn labels_hold<'a, 'n>(
    wanted: impl IntoIterator<Item = (&'a str, &'a str)>,
    label: impl Fn(&str) -> Option<&'n str>,
) -> bool {
    wanted.into_iter().all(|(key, value)| label(key) == Some(value))
}
