//! The two forms of a topology assignment: v1beta1 lists domains, v1beta2 compresses them by columns (docs/reference/06-algorithm.md 6.21).
//!
//! The order of the domains is kept: ranks and scale-down depend on it.

mod prefix;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::v1beta1::{TopologyAssignment as Rows, TopologyDomainAssignment as Row};
use crate::v1beta2::{
    TopologyAssignment as Columns, TopologyAssignmentSlice as Slice,
    TopologyAssignmentSliceLevelIndividualValues as Individual, TopologyAssignmentSliceLevelValues as Values,
    TopologyAssignmentSlicePodCounts as PodCounts,
};

/// The lowest level of a topology that knows single nodes.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The most domains that a slice may hold.
pub const MAX_DOMAINS_IN_SLICE: usize = 100_000;

/// The most domains that the assignments of one object may stand for. The schema limits only the written form, and a few bytes of it can stand for
/// billions of equal domains. A domain has at least one pod, and no cluster has more pods than this.
pub const MAX_DOMAINS: usize = 100_000;

/// Why a topology assignment cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// The assignment does not match the schema.
    #[error("malformed: {0}")]
    Malformed(String),
    /// A domain has too few or too many values.
    #[error("domain {domain} has {values} values for {levels} levels")]
    Values {
        /// Which domain.
        domain: usize,
        /// How many values it has.
        values: usize,
        /// How many levels there are.
        levels: usize,
    },
    /// A slice contradicts itself.
    #[error("slice {slice}: {problem}")]
    Slice {
        /// Which slice.
        slice: usize,
        /// The problem.
        problem: &'static str,
    },
    /// The assignment has more domains than any cluster.
    #[error("the assignments of the object have more than {MAX_DOMAINS} domains")]
    TooLarge,
}

/// Compresses an assignment. `by_hostname_prefix` is the gate TASAssignmentsEncodingByHostnamePrefix: consecutive nodes of one pool, whose names have
/// the same prefix, become separate slices if that is shorter.
///
/// # Errors
///
/// If a domain has a value too few or too many for the levels.
pub fn encode(rows: &Rows, by_hostname_prefix: bool) -> Result<Columns, TopologyError> {
    let levels = rows.levels.len();
    for (domain, row) in rows.domains.iter().enumerate() {
        if row.values.len() != levels {
            return Err(TopologyError::Values { domain, values: row.values.len(), levels });
        }
    }
    let domains = rows.domains.as_slice();
    let whole = || slices(&rows.levels, domains.chunks(MAX_DOMAINS_IN_SLICE));
    let hostname_lowest = rows.levels.last().is_some_and(|level| level == HOSTNAME);
    if !by_hostname_prefix || domains.len() < 2 || !hostname_lowest {
        return Ok(whole());
    }
    let by_prefix = slices(&rows.levels, prefix::runs(domains).into_iter());
    if by_prefix.slices.len() <= 1 || domains.len() > MAX_DOMAINS_IN_SLICE {
        return Ok(by_prefix);
    }
    let whole = whole();
    Ok(if size(&whole) < size(&by_prefix) { whole } else { by_prefix })
}

/// Bytes on the wire.
fn size(columns: &Columns) -> usize {
    serde_json::to_vec(columns).map_or(usize::MAX, |bytes| bytes.len())
}

fn slices<'a>(levels: &[String], runs: impl Iterator<Item = &'a [Row]>) -> Columns {
    let slices = runs.map(|run| slice(levels.len(), run)).collect();
    Columns { levels: levels.to_vec(), slices }
}

fn slice(levels: usize, run: &[Row]) -> Slice {
    let counts: Vec<i32> = run.iter().map(|row| row.count).collect();
    let pod_counts = match counts.first() {
        Some(first) if counts.iter().all(|count| count == first) => {
            PodCounts { universal: Some(*first), individual: Vec::new() }
        }
        _ => PodCounts { universal: None, individual: counts },
    };
    Slice {
        domain_count: i32::try_from(run.len()).expect("a run is at most 100,000 domains long"),
        values_per_level: (0..levels).map(|level| column(run, level)).collect(),
        pod_counts,
    }
}

/// The values of one level. The run is never empty, and every row has a value for each level.
fn column(run: &[Row], level: usize) -> Values {
    let values: Vec<&str> = run.iter().map(|row| row.values[level].as_str()).collect();
    let first = values[0];
    if values.iter().all(|value| *value == first) {
        return Values { universal: Some(first.to_owned()), individual: None };
    }
    let prefix = values.iter().fold(first, |prefix, value| common_prefix(prefix, value));
    let rest = |value: &&'_ str| -> String { value[prefix.len()..].to_owned() };
    let rests: Vec<String> = values.iter().map(rest).collect();
    let suffix = rests.iter().fold(rests[0].as_str(), |suffix, rest| common_suffix(suffix, rest));
    let roots = rests.iter().map(|rest| rest[..rest.len() - suffix.len()].to_owned()).collect();
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Values {
        universal: None,
        individual: Some(Individual { prefix: some(prefix), suffix: some(suffix), roots }),
    }
}

/// Compares by characters, so that no character is split.
fn common_prefix<'a>(a: &'a str, b: &str) -> &'a str {
    let same = a.char_indices().zip(b.chars()).find(|((_, x), y)| x != y);
    match same {
        Some(((at, _), _)) => &a[..at],
        None => &a[..a.len().min(b.len())],
    }
}

fn common_suffix<'a>(a: &'a str, b: &str) -> &'a str {
    let mut start = a.len();
    for ((at, x), y) in a.char_indices().rev().zip(b.chars().rev()) {
        if x != y {
            break;
        }
        start = at;
    }
    &a[start..]
}

/// Expands an assignment in any valid form, not only the one of [`encode`].
///
/// # Errors
///
/// If a slice contradicts itself (a negative number of domains, or lists of the wrong length), or all slices have more than 100,000 domains.
pub fn decode(columns: &Columns) -> Result<Rows, TopologyError> {
    let mut left = MAX_DOMAINS;
    count(columns, &mut left)?;
    let domains =
        domains(columns).map(|domain| Row { values: domain.values().collect(), count: domain.pods() });
    Ok(Rows { levels: columns.levels.clone(), domains: domains.collect() })
}

/// Checks that an assignment can be expanded; subtracts its domains from `left`.
pub(super) fn count(columns: &Columns, left: &mut usize) -> Result<(), TopologyError> {
    for (at, slice) in columns.slices.iter().enumerate() {
        let problem = |problem| TopologyError::Slice { slice: at, problem };
        let count = usize::try_from(slice.domain_count).map_err(|_| problem("negative domainCount"))?;
        check(slice, columns.levels.len(), count).map_err(problem)?;
        *left = left.checked_sub(count).ok_or(TopologyError::TooLarge)?;
    }
    Ok(())
}

/// One domain of a slice.
struct Domain<'a> {
    slice: &'a Slice,
    at: usize,
}

impl Domain<'_> {
    fn values(&self) -> impl Iterator<Item = String> {
        self.slice.values_per_level.iter().map(|values| value_of(values, self.at))
    }

    fn pods(&self) -> i32 {
        let counts = &self.slice.pod_counts;
        counts.universal.or(counts.individual.get(self.at).copied()).unwrap_or_default()
    }
}

fn domains(columns: &Columns) -> impl Iterator<Item = Domain<'_>> {
    columns.slices.iter().flat_map(|slice| {
        let count = usize::try_from(slice.domain_count).unwrap_or_default();
        (0..count).map(move |at| Domain { slice, at })
    })
}

/// Writes an assignment in its expanded form, one domain after the other, so that it is never in memory as a whole.
pub(super) struct Expanded<'a>(pub &'a Columns);

impl Serialize for Expanded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Domains<'a>(&'a Columns);
        impl Serialize for Domains<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(
                    domains(self.0)
                        .map(|domain| Row { values: domain.values().collect(), count: domain.pods() }),
                )
            }
        }
        let mut object = serializer.serialize_struct("TopologyAssignment", 2)?;
        object.serialize_field("domains", &Domains(self.0))?;
        object.serialize_field("levels", &self.0.levels)?;
        object.end()
    }
}

fn check(slice: &Slice, levels: usize, count: usize) -> Result<(), &'static str> {
    if slice.values_per_level.len() != levels {
        return Err("valuesPerLevel must have the same number of items as levels");
    }
    for values in &slice.values_per_level {
        match (&values.universal, &values.individual) {
            (Some(_), None) => {}
            (None, Some(individual)) if individual.roots.len() == count => {}
            (None, Some(_)) => return Err("roots must have as many items as domainCount"),
            _ => return Err("a level has exactly one of universal and individual"),
        }
    }
    match (slice.pod_counts.universal, slice.pod_counts.individual.len()) {
        (Some(_), 0) => Ok(()),
        (None, counts) if counts == count => Ok(()),
        (None, _) => Err("individual pod counts must have as many items as domainCount"),
        (Some(_), _) => Err("pod counts have exactly one of universal and individual"),
    }
}

fn value_of(values: &Values, domain: usize) -> String {
    if let Some(universal) = &values.universal {
        return universal.clone();
    }
    let Some(individual) = &values.individual else { return String::new() };
    let prefix = individual.prefix.as_deref().unwrap_or_default();
    let suffix = individual.suffix.as_deref().unwrap_or_default();
    let root = individual.roots.get(domain).map_or("", String::as_str);
    [prefix, root, suffix].concat()
}
