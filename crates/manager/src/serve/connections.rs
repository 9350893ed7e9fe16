//! The connections of a server and their states: which one is closed when there are too many, and each one's deadline for progress. Pure: the caller
//! passes the time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The state of a connection, in the order in which connections are closed for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// No request has come yet: the TLS handshake, the head of the first request.
    Opening,
    /// Between two requests.
    Idle,
    /// The body of a request comes in.
    Receiving,
    /// The answer goes out.
    Sending,
    /// The answer is made.
    Answering,
}

/// How long a connection may stay in a phase.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until the first request.
    pub opening: Duration,
    /// Until the next request.
    pub idle: Duration,
    /// For the body of a request.
    pub receiving: Duration,
    /// For an answer.
    pub sending: Duration,
    /// How long a new connection is safe before it is closed for a newer one: its request may be on the way.
    pub settling: Duration,
    /// How long a request may hold memory before it is closed for a larger one.
    pub holding: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            opening: Duration::from_secs(10),
            // Go's clients drop an idle connection after 90 s: they should be first.
            idle: Duration::from_secs(100),
            // The API server waits for a webhook 30 s at most.
            receiving: Duration::from_secs(15),
            sending: Duration::from_secs(30),
            settling: Duration::from_millis(100),
            holding: Duration::from_secs(1),
        }
    }
}

impl Patience {
    fn of(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Opening => Some(self.opening),
            Phase::Idle => Some(self.idle),
            Phase::Receiving => Some(self.receiving),
            Phase::Sending => Some(self.sending),
            Phase::Answering => None,
        }
    }
}

/// Names a connection; grows, so that the order is that of arrival.
pub type Id = u64;

#[derive(Debug)]
struct Connection {
    phase: Phase,
    since: Instant,
    /// The bytes of memory that its request holds.
    held: usize,
    shed: bool,
    /// Notified when the phase changes and when the connection is shed.
    news: Arc<Notify>,
}

/// How long a connection may last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// It continues, at least until this moment.
    Until(Instant),
    /// It continues.
    Open,
    /// It must end.
    Over,
}

/// The connections of one server.
#[derive(Debug, Default)]
pub struct Connections {
    open: BTreeMap<Id, Connection>,
    next: Id,
    patience: Patience,
}

impl Connections {
    /// None yet.
    pub fn new(patience: Patience) -> Self {
        Self { patience, ..Self::default() }
    }

    /// A connection came.
    pub fn add(&mut self, now: Instant) -> (Id, Arc<Notify>) {
        let (id, news) = (self.next, Arc::new(Notify::new()));
        self.next += 1;
        let news_of = Arc::clone(&news);
        self.open.insert(
            id,
            Connection { phase: Phase::Opening, since: now, held: 0, shed: false, news: news_of },
        );
        (id, news)
    }

    /// A connection ended.
    pub fn remove(&mut self, id: Id) {
        self.open.remove(&id);
    }

    /// A connection changes its state.
    pub fn enter(&mut self, id: Id, phase: Phase, now: Instant) {
        if let Some(connection) = self.open.get_mut(&id)
            && connection.phase != phase
        {
            (connection.phase, connection.since) = (phase, now);
            connection.news.notify_one();
        }
    }

    /// The body of a request came in, or is not wanted.
    pub fn received(&mut self, id: Id, now: Instant) {
        if self.open.get(&id).is_some_and(|connection| connection.phase == Phase::Receiving) {
            self.enter(id, Phase::Answering, now);
        }
    }

    /// Whether a connection may continue.
    pub fn lifetime(&self, id: Id, now: Instant) -> Lifetime {
        let Some(connection) = self.open.get(&id).filter(|c| !c.shed) else { return Lifetime::Over };
        match self.patience.of(connection.phase) {
            None => Lifetime::Open,
            Some(patience) if now.saturating_duration_since(connection.since) >= patience => Lifetime::Over,
            Some(patience) => Lifetime::Until(connection.since + patience),
        }
    }

    /// Closes the least useful connection: of the first state, the one that has been in it longest. A connection whose request is being answered is
    /// never closed. Returns whether there was one: if not, one may become closable soon, or end.
    pub fn shed(&mut self, now: Instant) -> bool {
        let open = self.open.iter_mut().filter(|(_, c)| !c.shed && c.phase < Phase::Answering);
        let Some((_, first)) = open.min_by_key(|(id, c)| (c.phase, c.since, **id)) else { return false };
        let age = now.saturating_duration_since(first.since);
        if first.phase == Phase::Opening && age < self.patience.settling {
            return false;
        }
        first.shed = true;
        first.news.notify_one();
        true
    }

    /// The request of a connection now holds this number of bytes.
    pub fn hold(&mut self, id: Id, bytes: usize) {
        if let Some(connection) = self.open.get_mut(&id) {
            connection.held = bytes;
        }
    }

    /// Closes connections that hold `missing` bytes together, so that `this` one can hold them in addition to its own; the largest product of bytes
    /// and time first. A connection may be closed if it is receiving or sending, and holds more than `this` one will, or has held it for
    /// [`Patience::holding`]: a small request in progress is never closed for another small one. Returns whether enough are closed.
    pub fn make_room(&mut self, this: Id, missing: usize, now: Instant) -> bool {
        let patience = self.patience.holding;
        let total = self.open.get(&this).map_or(0, |c| c.held).saturating_add(missing);
        let age = |c: &Connection| now.saturating_duration_since(c.since);
        let mut may: Vec<_> = self
            .open
            .iter_mut()
            .filter(|(id, c)| **id != this && matches!(c.phase, Phase::Receiving | Phase::Sending))
            .filter(|(_, c)| c.held > 0 && (c.held > total || age(c) >= patience))
            .map(|(_, c)| c)
            .collect();
        may.sort_by_key(|c| std::cmp::Reverse(c.held as u128 * age(c).as_micros().max(1)));
        let mut freed = 0_usize;
        for connection in may {
            if freed >= missing {
                break;
            }
            // A connection that was closed before gives back its bytes, too.
            freed = freed.saturating_add(connection.held);
            if !connection.shed {
                connection.shed = true;
                connection.news.notify_one();
            }
        }
        freed >= missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn the_one_that_never_asked_is_closed_first_and_one_that_is_answered_never() {
        let (mut connections, start) = (Connections::new(Patience::default()), Instant::now());
        let ids: Vec<_> = (0..6).map(|second| connections.add(at(start, second)).0).collect();
        connections.enter(ids[0], Phase::Answering, at(start, 6));
        connections.enter(ids[1], Phase::Idle, at(start, 7));
        connections.enter(ids[2], Phase::Receiving, at(start, 6));
        connections.enter(ids[3], Phase::Sending, at(start, 6));
        let over = |connections: &Connections| {
            let now = at(start, 8);
            ids.iter()
                .filter(|id| connections.lifetime(**id, now) == Lifetime::Over)
                .copied()
                .collect::<Vec<_>>()
        };
        let mut order = Vec::new();
        while connections.shed(at(start, 8)) {
            let gone: Vec<_> = over(&connections).into_iter().filter(|id| !order.contains(id)).collect();
            order.extend(gone);
        }
        assert_eq!(order, [4, 5, 1, 2, 3], "the oldest of the openers first; 0 is being answered");
    }

    #[test]
    fn a_new_one_has_a_moment_to_ask_and_those_of_use_do_not_go_instead() {
        let patience = Patience::default();
        let (mut connections, start) = (Connections::new(patience), Instant::now());
        let (used, _) = connections.add(start);
        connections.enter(used, Phase::Idle, start);
        let (new, _) = connections.add(start);
        assert!(!connections.shed(start));
        assert!(connections.shed(start + patience.settling));
        assert_eq!(connections.lifetime(new, start), Lifetime::Over);
        assert_ne!(connections.lifetime(used, start), Lifetime::Over);
    }

    /// Connections that have been receiving since these seconds and hold this number of bytes.
    fn receiving(start: Instant, all: &[(u64, usize)]) -> (Connections, Vec<Id>) {
        let mut connections = Connections::new(Patience::default());
        let ids = all.iter().map(|&(since, bytes)| {
            let (id, _) = connections.add(start);
            connections.enter(id, Phase::Receiving, at(start, since));
            connections.hold(id, bytes);
            id
        });
        let ids = ids.collect();
        (connections, ids)
    }

    fn over(connections: &Connections, ids: &[Id], now: Instant) -> Vec<usize> {
        (0..ids.len()).filter(|n| connections.lifetime(ids[*n], now) == Lifetime::Over).collect()
    }

    #[test]
    fn what_holds_most_for_longest_is_closed_and_no_more_of_them_than_needed() {
        let start = Instant::now();
        let (mut connections, ids) =
            receiving(start, &[(0, 4_000), (1, 6 << 20), (2, 6 << 20), (2, 3 << 20), (3, 0)]);
        assert!(connections.make_room(ids[4], 1_000, at(start, 3)));
        assert_eq!(over(&connections, &ids, at(start, 3)), [1]);
        assert!(connections.make_room(ids[4], 1_000, at(start, 3)), "what is being closed already is room");
        assert_eq!(over(&connections, &ids, at(start, 3)), [1]);
        connections.remove(ids[1]);
        assert!(connections.make_room(ids[4], 7 << 20, at(start, 3)));
        assert_eq!(over(&connections, &ids, at(start, 3)), [1, 2, 3]);
    }

    #[test]
    fn small_requests_do_not_end_each_other() {
        let start = Instant::now();
        let (mut connections, ids) = receiving(start, &[(0, 4_000), (0, 5_000), (0, 0)]);
        connections.enter(ids[1], Phase::Answering, start);
        assert!(!connections.make_room(ids[2], 4_000, start));
        assert!(over(&connections, &ids, start).is_empty());
        assert!(connections.make_room(ids[2], 4_000, at(start, 1)), "a slow one does");
        assert_eq!(over(&connections, &ids, at(start, 1)), [0]);
    }

    #[test]
    fn one_that_asks_for_more_than_others_hold_ends_none_of_them() {
        let start = Instant::now();
        let (mut connections, ids) = receiving(start, &[(0, 8 << 20), (1, 1 << 20)]);
        assert!(!connections.make_room(ids[0], 1 << 20, at(start, 1)));
        assert!(over(&connections, &ids, at(start, 1)).is_empty());
    }

    #[test]
    fn each_phase_has_its_time_and_a_change_begins_it_again() {
        let patience = Patience::default();
        let (mut connections, start) = (Connections::new(patience), Instant::now());
        let (id, news) = connections.add(start);
        assert_eq!(connections.lifetime(id, start), Lifetime::Until(start + patience.opening));
        assert_eq!(connections.lifetime(id, start + patience.opening), Lifetime::Over);
        connections.enter(id, Phase::Receiving, at(start, 3));
        assert!(futures::FutureExt::now_or_never(news.notified()).is_some());
        assert_eq!(
            connections.lifetime(id, at(start, 3)),
            Lifetime::Until(at(start, 3) + patience.receiving)
        );
        connections.enter(id, Phase::Receiving, at(start, 9));
        assert_eq!(connections.lifetime(id, at(start, 3) + patience.receiving), Lifetime::Over);
        connections.enter(id, Phase::Answering, at(start, 4));
        assert_eq!(connections.lifetime(id, at(start, 100_000)), Lifetime::Open);
        connections.enter(id, Phase::Idle, at(start, 5));
        connections.received(id, at(start, 6));
        assert!(
            matches!(connections.lifetime(id, at(start, 6)), Lifetime::Until(_)),
            "a late end of a body is none"
        );
        connections.remove(id);
        assert_eq!(connections.lifetime(id, start), Lifetime::Over);
    }
}
