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

/// The operators of tolerations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum TolerationOperator {
    /// The taint has this value.
    #[default]
    Equal,
    /// The taint has any value.
    Exists,
    /// The taint's value is an integer below this one.
    Lt,
    /// The taint's value is an integer above this one.
    Gt,
}

impl TolerationOperator {
    /// The operator with this name, if there is one; the default is `Equal`. API servers refuse `Lt` and `Gt` while their gate
    /// `TaintTolerationComparisonOperators` is off.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "" | "Equal" => Some(Self::Equal),
            "Exists" => Some(Self::Exists),
            "Lt" => Some(Self::Lt),
            "Gt" => Some(Self::Gt),
            _ => None,
        }
    }

    /// Whether a taint's value matches a toleration with this value. A text that is not an integer is neither above nor below.
    fn holds(self, taint: &str, wanted: &str) -> bool {
        let numbers = || Some((taint.parse::<i64>().ok()?, wanted.parse::<i64>().ok()?));
        match self {
            Self::Equal => taint == wanted,
            Self::Exists => true,
            Self::Lt => numbers().is_some_and(|(taint, wanted)| taint < wanted),
            Self::Gt => numbers().is_some_and(|(taint, wanted)| taint > wanted),
        }
    }
}

/// A toleration of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Toleration<'a> {
    /// The taint's key; empty: any.
    pub key: &'a str,
    /// The comparison of the taint's value; `None` for an operator that does not exist.
    pub operator: Option<TolerationOperator>,
    /// The value that the taint's value is compared with.
    pub value: &'a str,
    /// The taint's effect; empty: any.
    pub effect: &'a str,
}

impl Toleration<'_> {
    /// Whether this toleration tolerates a taint. With an operator that does not exist it tolerates none.
    pub fn tolerates(&self, taint: &Taint<'_>) -> bool {
        self.operator.is_some_and(|operator| operator.holds(taint.value, self.value))
            && (self.key.is_empty() || self.key == taint.key)
            && (self.effect.is_empty() || self.effect == taint.effect)
    }
}

/// Whether taints with this effect keep pods off a node that do not tolerate them.
pub fn keeps_away(effect: &str) -> bool {
    matches!(effect, "NoSchedule" | "NoExecute")
}

/// Whether a node with this taint accepts pods with these tolerations. `asked` returns whether they request an extended resource of a name: the
/// admission plugin `ExtendedResourceToleration`, which GKE's API servers run, adds to such pods a toleration of `NoSchedule` taints of that name,
/// which their templates do not have.
pub fn is_tolerated<'a>(
    taint: &Taint<'_>,
    tolerations: impl IntoIterator<Item = Toleration<'a>>,
    asked: impl FnOnce(&str) -> bool,
) -> bool {
    !keeps_away(taint.effect)
        || taint.effect == "NoSchedule" && asked(taint.key)
        || tolerations.into_iter().any(|one| one.tolerates(taint))
}
