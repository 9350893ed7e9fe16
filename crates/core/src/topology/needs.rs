//! How many pods fit into what a place has free.

use smallvec::SmallVec;

use crate::Name;
use crate::intern::{Names, PODS, ResourceId};
use crate::topology::columns::PODS_COLUMN;
use crate::topology::ledger::Ledger;

/// The highest number of pods that one place can hold.
const MOST: i64 = 2_147_483_647;

/// The usage of one resource by each pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Need {
    /// The resource's name.
    pub(crate) name: Name,
    /// Its column; beyond all columns if no node ever offered it.
    column: usize,
    /// How much of it, more than 0.
    amount: i64,
}

/// The usage of each pod, `pods` included, in the order of the names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Needs(SmallVec<[Need; 4]>);

impl Needs {
    /// The usage of each pod besides one of `pods`. Amounts of 0 or less do not count.
    pub(crate) fn new(ledger: &Ledger, names: &Names, per_pod: &[(ResourceId, i64)]) -> Needs {
        let mut needs: SmallVec<[Need; 4]> = per_pod
            .iter()
            .filter(|(_, amount)| *amount > 0)
            .map(|&(resource, amount)| Need {
                name: names.resource_name(resource).clone(),
                column: ledger.column(resource).unwrap_or(usize::MAX),
                amount,
            })
            .collect();
        needs.push(Need { name: Name::from(PODS), column: PODS_COLUMN, amount: 1 });
        needs.sort_by(|a, b| a.name.cmp(&b.name));
        Needs(needs)
    }

    /// The needs, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Need> {
        self.0.iter()
    }

    /// How many pods fit into a row, or the first need because of which none fits.
    #[inline]
    pub(crate) fn count(&self, row: &[i64]) -> Result<i64, usize> {
        let mut count = MOST;
        for (at, need) in self.0.iter().enumerate() {
            let free = row.get(need.column).copied().unwrap_or(0);
            if free < need.amount {
                return Err(at);
            }
            count = count.min(quotient(free, need.amount));
        }
        Ok(count)
    }

    /// Subtracts one pod from a row.
    pub(crate) fn subtract(&self, row: &mut [i64]) {
        for need in &self.0 {
            if let Some(free) = row.get_mut(need.column) {
                *free = free.saturating_sub(need.amount);
            }
        }
    }
}

/// `free / amount` for positive numbers; most are small, and small ones divide faster.
#[inline]
fn quotient(free: i64, amount: i64) -> i64 {
    match (u32::try_from(free), u32::try_from(amount)) {
        (Ok(free), Ok(amount)) => i64::from(free / amount),
        _ => free / amount,
    }
}
