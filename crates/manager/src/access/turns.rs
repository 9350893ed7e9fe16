//! How many more requests may be sent to the API server, in total and for each user.

use std::collections::BTreeMap;
use std::time::Instant;

/// How many parties are distinguished at a time.
const PARTIES: usize = 1024;
/// How the names of ServiceAccounts begin; namespace and name follow.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// This many at once, and then this many per second.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// At once.
    pub burst: u32,
    /// Then, per second.
    pub per_second: u32,
}

/// How many questions may still be asked.
#[derive(Clone, Debug)]
pub struct Turns {
    rate: Rate,
    left: f64,
    since: Instant,
}

impl Turns {
    /// All of the burst is left.
    pub fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, left: f64::from(rate.burst), since: now }
    }

    /// Takes a turn, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        if self.left < 1.0 {
            return false;
        }
        self.left -= 1.0;
        true
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since).as_secs_f64();
        let burst = f64::from(self.rate.burst);
        self.left = (self.left + passed * f64::from(self.rate.per_second)).min(burst);
        self.since = now;
    }

    fn is_whole(&mut self, now: Instant) -> bool {
        self.refill(now);
        self.left >= f64::from(self.rate.burst)
    }
}

/// The party of a user, whose limits it shares: the ServiceAccounts of a namespace are one party, because a user who may create one there may create
/// many. The party is the beginning of each of their names.
pub fn party(user: &str) -> &str {
    let namespace = user.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.find(':'));
    namespace.map_or(user, |length| &user[..SERVICE_ACCOUNT.len() + length])
}

/// A limit for each user or [`party`] of users, so that one does not use up the turns of the others; and one for all together.
#[derive(Debug)]
pub struct TurnsByUser {
    each: Rate,
    all: Turns,
    parties: BTreeMap<String, Turns>,
}

impl TurnsByUser {
    /// No user has sent a request yet.
    pub fn new(each: Rate, all: Rate, now: Instant) -> Self {
        Self { each, all: Turns::new(all, now), parties: BTreeMap::new() }
    }

    /// Takes a turn for a user, if there is one.
    pub fn take(&mut self, user: &str, now: Instant) -> bool {
        let party = party(user);
        if self.parties.len() >= PARTIES && !self.parties.contains_key(party) {
            self.parties.retain(|_, turns| !turns.is_whole(now));
        }
        if self.parties.len() >= PARTIES && !self.parties.contains_key(party) {
            return false;
        }
        let each = self.each;
        let own = self.parties.entry(party.to_owned()).or_insert_with(|| Turns::new(each, now));
        own.take(now) && self.all.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn turns_come_back_with_time_up_to_the_burst() {
        let now = Instant::now();
        let mut turns = Turns::new(Rate { burst: 20, per_second: 2 }, now);
        let second = |n| now + Duration::from_secs(n);
        assert_eq!((0..1000).filter(|_| turns.take(now)).count(), 20);
        assert_eq!((0..1000).filter(|_| turns.take(second(3))).count(), 6);
        assert_eq!((0..1000).filter(|_| turns.take(second(1000))).count(), 20);
    }

    #[test]
    fn one_user_does_not_use_up_the_turns_of_another_and_users_are_bounded() {
        let now = Instant::now();
        let each = Rate { burst: 2, per_second: 1 };
        let mut turns = TurnsByUser::new(each, Rate { burst: 5000, per_second: 1 }, now);
        assert_eq!((0..100).filter(|_| turns.take("greedy", now)).count(), 2);
        assert!(turns.take("modest", now));
        for n in 0..3 * PARTIES {
            turns.take(&n.to_string(), now);
        }
        assert!(turns.parties.len() <= PARTIES);
        assert!(turns.take("later", now + Duration::from_secs(10)));
        let mut all = TurnsByUser::new(each, Rate { burst: 3, per_second: 1 }, now);
        assert_eq!((0..100).filter(|n| all.take(&n.to_string(), now)).count(), 3);
    }

    #[test]
    fn the_service_accounts_of_a_namespace_are_one_party() {
        for (user, whose) in [
            ("system:serviceaccount:team-a:build", "system:serviceaccount:team-a"),
            ("system:serviceaccount:team-ab:build", "system:serviceaccount:team-ab"),
            ("system:serviceaccount:team-a", "system:serviceaccount:team-a"),
            ("system:serviceaccount:", "system:serviceaccount:"),
            ("system:node:n1", "system:node:n1"),
            ("oidc:alice:1", "oidc:alice:1"),
            ("", ""),
        ] {
            assert_eq!(party(user), whose, "{user}");
        }
    }

    #[test]
    fn twenty_service_accounts_of_a_namespace_have_no_more_turns_than_one() {
        let now = Instant::now();
        let (each, all) = (Rate { burst: 4, per_second: 1 }, Rate { burst: 20, per_second: 1 });
        let mut turns = TurnsByUser::new(each, all, now);
        let accounts = (0..20).map(|n| format!("system:serviceaccount:team-a:account-{n}"));
        assert_eq!(accounts.filter(|account| turns.take(account, now)).count(), 4);
        assert!(turns.take("alice", now) && turns.take("system:serviceaccount:team-b:account-0", now));
    }
}
