//! Taints and tolerations.

/// A node's taint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taint<'a> {
    /// Its key.
    pub key: &'a str,
    /// Its value, maybe empty.
    pub value: &'a str,
    /// Its effect, as Kubernetes writes it.
    pub effect: &'a str,
}

/// What pods put up with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Toleration<'a> {
    /// The taint's key; empty: any.
    pub key: &'a str,
    /// `Equal` (also if empty) or `Exists`.
    pub operator: &'a str,
    /// The taint's value for `Equal`.
    pub value: &'a str,
    /// The taint's effect; empty: any.
    pub effect: &'a str,
}

impl Toleration<'_> {
    /// Whether it tolerates a taint. One with an operator that does not exist tolerates none.
    pub fn tolerates(&self, taint: &Taint<'_>) -> bool {
        let value = match self.operator {
            "" | "Equal" => self.value == taint.value,
            "Exists" => true,
            _ => false,
        };
        value
            && (self.key.is_empty() || self.key == taint.key)
            && (self.effect.is_empty() || self.effect == taint.effect)
    }
}

/// Whether taints with this effect keep pods off a node that do not tolerate them.
pub fn keeps_away(effect: &str) -> bool {
    matches!(effect, "NoSchedule" | "NoExecute")
}

/// Whether pods with these tolerations may come to a node with this taint. `asked` says whether they ask for an extended resource of a name: the
/// admission plugin `ExtendedResourceToleration`, which GKE's API servers run, gives to such pods a toleration of `NoSchedule` taints of that
/// name, which their templates do not have.
pub fn puts_up_with<'a>(
    taint: &Taint<'_>,
    tolerations: impl IntoIterator<Item = Toleration<'a>>,
    asked: impl FnOnce(&str) -> bool,
) -> bool {
    !keeps_away(taint.effect)
        || taint.effect == "NoSchedule" && asked(taint.key)
        || tolerations.into_iter().any(|one| one.tolerates(taint))
}
