//! The brake: if most of a flavor's nodes look bad at once, the cause is probably the network or the manager; nothing is evicted then.

use std::collections::BTreeMap;

use sluice_core::Name;

/// The flavors that were looked at in a cycle, and whether the brake holds for them.
pub(crate) type Brakes = BTreeMap<Name, bool>;

/// Whether more than `most` percent of all nodes are bad.
pub(crate) fn holds(bad: usize, all: usize, most: i32) -> bool {
    let most = usize::try_from(most).unwrap_or(0);
    bad.saturating_mul(100) > all.saturating_mul(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_above_the_limit_and_not_at_it() {
        assert!(!holds(0, 0, 55));
        assert!(!holds(11, 20, 55));
        assert!(holds(12, 20, 55));
        assert!(!holds(4, 16, 55));
        assert!(holds(9, 16, 55));
        assert!(holds(1, 100, 0));
    }
}
