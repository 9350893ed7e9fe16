//! The topology assignment's two forms: v1beta1 lists domains, v1beta2 compresses them by columns (reference 06, 6.21).
//!
//! The order of the domains is kept: ranks and scale-down depend on it.

mod prefix;

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

/// The most bytes of memory that an assignment may expand to. The schema bounds only what is written, and a few bytes of it can
/// stand for billions of equal domains.
const MAX_EXPANDED: usize = 256 << 20;

/// Why a topology assignment cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// It is not of the schema's form.
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
        /// What is wrong.
        problem: &'static str,
    },
    /// It stands for more than anybody has.
    #[error("expands to more than {} MiB", MAX_EXPANDED >> 20)]
    TooLarge,
}

/// Compresses. `by_hostname_prefix` is the gate TASAssignmentsEncodingByHostnamePrefix: runs of nodes of one pool, whose names
/// begin alike, become slices of their own if that is shorter.
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

/// The values of one level. Runs are never empty, and every row has a value for each level.
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

/// By characters, so that a cut never splits one.
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

/// Expands. Any legal form is read, not only the one that [`encode`] chooses.
pub fn decode(columns: &Columns) -> Result<Rows, TopologyError> {
    let levels = columns.levels.len();
    let mut total = 0_usize;
    for (at, slice) in columns.slices.iter().enumerate() {
        let problem = |problem| TopologyError::Slice { slice: at, problem };
        let count = usize::try_from(slice.domain_count).map_err(|_| problem("negative domainCount"))?;
        check(slice, levels, count).map_err(problem)?;
        total = total.saturating_add(expanded(slice, count));
        if total > MAX_EXPANDED {
            return Err(TopologyError::TooLarge);
        }
    }
    let mut domains = Vec::new();
    for slice in &columns.slices {
        let count = usize::try_from(slice.domain_count).expect("checked above");
        for domain in 0..count {
            let values = slice.values_per_level.iter().map(|values| value_of(values, domain)).collect();
            let individual = slice.pod_counts.individual.get(domain);
            let count = slice.pod_counts.universal.or(individual.copied()).unwrap_or_default();
            domains.push(Row { values, count });
        }
    }
    Ok(Rows { levels: columns.levels.clone(), domains })
}

/// The memory that a slice's domains take.
fn expanded(slice: &Slice, count: usize) -> usize {
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let value = |values: &Values| {
        let shared = values.individual.as_ref().map_or(0, |i| length(&i.prefix) + length(&i.suffix));
        size_of::<String>() + length(&values.universal) + shared
    };
    let domain = size_of::<Row>() + slice.values_per_level.iter().map(value).sum::<usize>();
    domain.saturating_mul(count)
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
