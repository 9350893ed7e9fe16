//! Whose turn it is to ask for what takes long.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::{Rate, TurnsByUser, party};
use crate::visibility::status::Refusal;

/// What takes long, for a user or [`party`] of users one at a time, and not too often.
#[derive(Debug)]
pub struct OneEach {
    what: &'static str,
    turns: Mutex<TurnsByUser>,
    busy: Mutex<BTreeSet<String>>,
}

impl OneEach {
    /// `what` is the plural of what is asked for; each user, and all together, at these rates.
    pub fn new(what: &'static str, each: Rate, all: Rate) -> Self {
        Self { what, turns: Mutex::new(TurnsByUser::new(each, all, Instant::now())), busy: Mutex::default() }
    }

    /// A user's turn, until it is dropped.
    ///
    /// # Errors
    ///
    /// If this user has a turn already, or this user or all users together asked too often lately.
    pub fn take(&self, user: &str) -> Result<Turn<'_>, Refusal> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        let party = party(user);
        if busy.contains(party) || !turns.take(user, Instant::now()) {
            let what = self.what;
            return Err(Refusal::TooMany(format!(
                "too many {what}: wait until the previous one is answered"
            )));
        }
        busy.insert(party.to_owned());
        Ok(Turn { of: self, party: party.to_owned() })
    }
}

/// A user's turn.
#[derive(Debug)]
pub struct Turn<'a> {
    of: &'a OneEach,
    party: String,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.of.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.party);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_one_turn_at_a_time_and_others_have_theirs() {
        let rate = Rate { burst: 2, per_second: 0 };
        let turns = OneEach::new("simulations", rate, Rate { burst: 100, per_second: 1 });
        let first = turns.take("bob").unwrap();
        assert!(matches!(turns.take("bob"), Err(Refusal::TooMany(why)) if why.contains("simulations")));
        let _alices = turns.take("alice").unwrap();
        drop(first);
        drop(turns.take("bob").unwrap());
        assert!(turns.take("bob").is_err(), "the burst is used up");
        // The accounts of a namespace have one together.
        let account = turns.take("system:serviceaccount:a:one").unwrap();
        assert!(turns.take("system:serviceaccount:a:two").is_err());
        let _others = turns.take("system:serviceaccount:b:one").unwrap();
        drop(account);
        drop(turns.take("system:serviceaccount:a:two").unwrap());
    }
}
