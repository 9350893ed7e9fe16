//! Pods by their controller, so that a whole tree of them is found in one pass: pods may create pods, and users may write owner references.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Pods of a namespace, by position, with their UIDs and by the UID of their controller.
#[derive(Debug)]
pub struct PodsBelow<K> {
    uids: Vec<K>,
    by_controller: BTreeMap<K, Vec<usize>>,
}

impl<K: Ord> PodsBelow<K> {
    /// From pods with these UIDs, and those of their controllers.
    pub fn new(pods: impl IntoIterator<Item = (K, Option<K>)>) -> Self {
        let (mut uids, mut by_controller) = (Vec::new(), BTreeMap::<K, Vec<usize>>::new());
        for (at, (uid, controller)) in pods.into_iter().enumerate() {
            uids.push(uid);
            if let Some(controller) = controller {
                by_controller.entry(controller).or_default().push(at);
            }
        }
        Self { uids, by_controller }
    }

    fn controlled(&self, uid: &K) -> &[usize] {
        self.by_controller.get(uid).map_or(&[], Vec::as_slice)
    }

    /// Whether each pod is controlled by one of these UIDs, or by a pod that is.
    pub fn below(&self, of: impl IntoIterator<Item = K>) -> Vec<bool> {
        let mut found = vec![false; self.uids.len()];
        let mut next: Vec<usize> = of.into_iter().flat_map(|uid| self.controlled(&uid)).copied().collect();
        while let Some(at) = next.pop() {
            if !std::mem::replace(&mut found[at], true) {
                next.extend(self.controlled(&self.uids[at]));
            }
        }
        found
    }

    /// The greatest value that each pod or a pod above it has of its own; `own` by position.
    pub fn greatest<T: Ord + Copy>(&self, own: &[Option<T>]) -> Vec<Option<T>> {
        let mut found = vec![None; self.uids.len()];
        let mut first: Vec<_> =
            own.iter().enumerate().filter_map(|(at, value)| Some(((*value)?, at))).collect();
        first.sort_unstable_by_key(|(value, at)| (Reverse(*value), *at));
        for (value, at) in first {
            let mut next = vec![at];
            while let Some(at) = next.pop() {
                // Later results contain the earlier ones.
                if found[at].is_none() {
                    found[at] = Some(value);
                    next.extend(self.controlled(&self.uids[at]));
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::cmp::Ordering;

    use super::*;

    thread_local! {
        static LOOKS: Cell<usize> = const { Cell::new(0) };
    }

    /// A UID that counts how often it is looked at.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Uid(usize);

    impl Ord for Uid {
        fn cmp(&self, other: &Self) -> Ordering {
            LOOKS.set(LOOKS.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Uid {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    #[test]
    fn a_chain_of_twenty_thousand_pods_is_found_with_a_few_looks_at_each() {
        const PODS: usize = 20_000;
        // Each pod is controlled by the next one, the last one by the job.
        let pods = PodsBelow::new((0..PODS).map(|at| (Uid(at), Some(Uid(at + 1)))));
        assert!(pods.below([Uid(PODS)]).iter().all(|found| *found));
        let mut own = vec![None; PODS];
        (own[PODS - 1], own[7]) = (Some(30), Some(60));
        let greatest = pods.greatest(&own);
        assert!(greatest[..=7].iter().all(|value| *value == Some(60)));
        assert!(greatest[8..].iter().all(|value| *value == Some(30)));
        let looks = LOOKS.get();
        assert!(looks < PODS * 200, "{looks} looks");
    }

    #[test]
    fn pods_that_control_each_other_are_found_once() {
        let pods = PodsBelow::new([("a", Some("b")), ("b", Some("a")), ("c", Some("c")), ("d", None)]);
        assert_eq!(pods.below(["a"]), [true, true, false, false]);
        assert_eq!(pods.below(["c", "x"]), [false, false, true, false]);
        assert_eq!(pods.greatest(&[Some(1), Some(2), None, Some(0)]), [Some(2), Some(2), None, Some(0)]);
    }
}
