//! Which candidates have to be preempted: the first ones that are enough, with the fill-back of docs/reference/06-algorithm.md 6.7.
//!
//! Preemption for quota ([`crate::preemption`]) has a search of its own. Its possible victims depend on earlier ones, as queues stop using more than
//! their nominal quota, so that the number of candidates cannot be doubled each time; and the order of its victims after fill-back is a rule of the
//! reference. Here all candidates are known at the beginning. The search for victims of a slice has the same halving ([`crate::halving`]).

use crate::halving::lowest_enough;

/// Where candidates go and come back.
pub(super) trait Ground {
    /// Identifies a candidate.
    type Key: Copy;
    /// A candidate goes.
    fn release(&mut self, key: Self::Key);
    /// A candidate that went stays after all.
    fn take(&mut self, key: Self::Key);
    /// Whether there is room now.
    fn fits(&mut self) -> bool;
    /// Whether the search may continue.
    fn goes_on(&self) -> bool;
    /// Whether to ask [`Ground::fits`] takes much longer than to let a candidate go.
    fn is_dear(&self) -> bool {
        false
    }
}

/// The result of a search for victims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice<K> {
    /// These go; they are gone from the ground.
    Victims(Vec<K>),
    /// All together do not make room.
    None,
    /// The search was cut short.
    Cut,
}

/// The candidates whose release makes room, none of them needlessly: the first ones that are enough, without those that can stay after all, from the
/// last but one to the first.
///
/// The search relies on more room never being worse, to ask fewer questions: if questions are expensive, the number of released candidates doubles
/// each time, and several are brought back at a time. The result itself was checked.
pub(super) fn choose<G: Ground>(
    candidates: impl IntoIterator<Item = G::Key>,
    ground: &mut G,
) -> Choice<G::Key> {
    let found = match enough(candidates, ground) {
        Ok(Some(gone)) => give_back(gone, ground),
        Ok(None) => return Choice::None,
        Err(Cut) => Err(Cut),
    };
    found.map_or(Choice::Cut, Choice::Victims)
}

/// The search may not continue.
struct Cut;

fn go_on(ground: &impl Ground) -> Result<(), Cut> {
    if ground.goes_on() { Ok(()) } else { Err(Cut) }
}

/// The first candidates that are enough; they are gone.
fn enough<G: Ground>(
    candidates: impl IntoIterator<Item = G::Key>,
    ground: &mut G,
) -> Result<Option<Vec<G::Key>>, Cut> {
    let mut candidates = candidates.into_iter();
    let mut gone = Vec::new();
    // This number is not enough.
    let mut few;
    let mut more = 1;
    loop {
        few = gone.len();
        for candidate in candidates.by_ref().take(more) {
            go_on(ground)?;
            ground.release(candidate);
            gone.push(candidate);
        }
        if gone.len() == few {
            return Ok(None);
        }
        if ground.fits() {
            break;
        }
        more = if ground.is_dear() { gone.len() } else { 1 };
    }
    let mut at = gone.len();
    let enough = lowest_enough(few, gone.len(), |number| -> Result<bool, Cut> {
        go_on(ground)?;
        shift(ground, &gone, at, number);
        at = number;
        Ok(ground.fits())
    })?;
    shift(ground, &gone, at, enough);
    gone.truncate(enough);
    Ok(Some(gone))
}

/// Changes the number of released candidates from `from` to `to`.
fn shift<G: Ground>(ground: &mut G, gone: &[G::Key], from: usize, to: usize) {
    for key in gone.get(to..from).unwrap_or_default().iter().rev() {
        ground.take(*key);
    }
    for key in gone.get(from..to).unwrap_or_default() {
        ground.release(*key);
    }
}

/// The necessary victims; the others are brought back. The last one is necessary in any case.
fn give_back<G: Ground>(gone: Vec<G::Key>, ground: &mut G) -> Result<Vec<G::Key>, Cut> {
    let mut needed = vec![true; gone.len()];
    // The blocks still to try, last first.
    let mut blocks = Vec::new();
    blocks.push(0..gone.len().saturating_sub(1));
    while let Some(block) = blocks.pop().filter(|block| !block.is_empty()) {
        go_on(ground)?;
        for key in gone[block.clone()].iter().rev() {
            ground.take(*key);
        }
        if ground.fits() {
            needed[block].fill(false);
            continue;
        }
        for key in &gone[block.clone()] {
            ground.release(*key);
        }
        if block.len() > 1 {
            let half = block.start + block.len() / 2;
            blocks.extend([block.start..half, half..block.end]);
        }
    }
    Ok(gone.into_iter().zip(needed).filter_map(|(key, needed)| needed.then_some(key)).collect())
}

#[cfg(test)]
mod tests;
