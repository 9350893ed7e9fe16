//! The latest changes of a tree, one after the other: what has followed some of them follows the others.

/// Of more changes than this, all that depends on them is computed anew instead.
const MOST: usize = 256;

/// The latest changes; earlier ones are forgotten. A position is the number of changes before.
#[derive(Debug, Clone)]
pub(crate) struct Latest<T> {
    changes: Vec<T>,
    forgotten: usize,
}

impl<T> Default for Latest<T> {
    fn default() -> Self {
        Self { changes: Vec::new(), forgotten: 0 }
    }
}

impl<T> Latest<T> {
    /// One more change.
    pub(crate) fn push(&mut self, change: T) {
        if self.changes.len() >= 2 * MOST {
            self.changes.drain(..MOST);
            self.forgotten += MOST;
        }
        self.changes.push(change);
    }

    /// Where the next change will be.
    pub(crate) fn end(&self) -> usize {
        self.forgotten + self.changes.len()
    }

    /// The changes from a position on; `None`: they are too many to be followed, or not known any more.
    pub(crate) fn since(&self, position: usize) -> Option<&[T]> {
        self.changes.get(position.checked_sub(self.forgotten)?..).filter(|changes| changes.len() <= MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_follows_in_time_misses_nothing_and_who_does_not_learns_that() {
        let (mut latest, mut follower) = (Latest::default(), 0);
        for number in 0..2_000 {
            latest.push(number);
            if number % 200 == 199 {
                let missed = latest.since(follower).expect("few");
                assert!(missed.iter().copied().eq(follower..latest.end()), "{missed:?}");
                follower = latest.end();
            }
        }
        assert_eq!((latest.end(), latest.since(2_000)), (2_000, Some(&[][..])));
        assert_eq!(latest.since(2_000 - MOST).map(<[usize]>::len), Some(MOST));
        assert!([0, 1_000, 2_000 - MOST - 1].iter().all(|at| latest.since(*at).is_none()));
        assert!(latest.changes.len() <= 2 * MOST);
    }
}
