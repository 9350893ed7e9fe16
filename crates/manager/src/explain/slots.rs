//! The order of explanations: a limited number at a time, fewer of one namespace, and one of one user.
//!
//! Requests are served in turn, but a request whose namespace already has its share is passed over until a slot of that namespace is free. So a team
//! with many or slow requests leaves room for the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use crate::access::party;

/// Slots, and the requests that wait for one.
#[derive(Debug)]
pub(super) struct Slots {
    most: usize,
    /// The number for one namespace at a time.
    each: usize,
    state: Mutex<SlotState>,
    freed: Notify,
    waiting: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct SlotState {
    /// Slots that are taken, by namespace.
    taken: BTreeMap<String, usize>,
    /// The waiting requests, in turn.
    waiting: BTreeMap<u64, String>,
    next: u64,
}

impl Slots {
    /// With this number at a time, and this number for one namespace.
    pub fn new(most: usize, each: usize) -> Arc<Self> {
        let (state, freed) = (Mutex::default(), Notify::new());
        Arc::new(Self { most, each, state, freed, waiting: watch::Sender::new(0) })
    }

    fn state(&self) -> MutexGuard<'_, SlotState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot for a question about a namespace; nothing if none is free within that time.
    pub async fn take(self: &Arc<Self>, namespace: &str, within: Duration) -> Option<Slot> {
        let place = Ticket::new(self, namespace);
        let taking = async {
            loop {
                let freed = self.freed.notified();
                if place.is_next() {
                    return Slot { of: Arc::clone(self), namespace: namespace.to_owned() };
                }
                freed.await;
            }
        };
        tokio::time::timeout(within, taking).await.ok()
    }

    /// Whether any question waits for a slot.
    pub fn others_wait(&self) -> bool {
        *self.waiting.borrow() > 0
    }

    /// Ends as soon as a question waits for a slot.
    pub async fn until_others_wait(&self) {
        // The sender is here, so that it does not end before.
        let _ = self.waiting.subscribe().wait_for(|count| *count > 0).await;
    }

    fn publish(&self, state: &SlotState) {
        self.waiting.send_if_modified(|count| std::mem::replace(count, state.waiting.len()) != *count);
    }

    fn room_for(&self, state: &SlotState, namespace: &str) -> bool {
        let own = state.taken.get(namespace).copied().unwrap_or(0);
        own < self.each && state.taken.values().sum::<usize>() < self.most
    }
}

/// A place in the line of waiting requests.
struct Ticket<'a> {
    of: &'a Slots,
    ticket: u64,
}

impl<'a> Ticket<'a> {
    fn new(of: &'a Slots, namespace: &str) -> Self {
        let mut state = of.state();
        state.next += 1;
        let ticket = state.next;
        state.waiting.insert(ticket, namespace.to_owned());
        Self { of, ticket }
    }

    /// Takes a slot, if one is free and no request comes before this one.
    fn is_next(&self) -> bool {
        let mut state = self.of.state();
        let first = state.waiting.iter().find(|(_, namespace)| self.of.room_for(&state, namespace));
        let next = first.map(|(ticket, _)| *ticket);
        let is_next = next == Some(self.ticket);
        if is_next && let Some(namespace) = state.waiting.remove(&self.ticket) {
            *state.taken.entry(namespace).or_default() += 1;
        }
        self.of.publish(&state);
        drop(state);
        if is_next {
            self.of.freed.notify_waiters();
        }
        is_next
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.of.state();
        if state.waiting.remove(&self.ticket).is_some() {
            self.of.publish(&state);
            drop(state);
            self.of.freed.notify_waiters();
        }
    }
}

/// A slot, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    of: Arc<Slots>,
    namespace: String,
}

impl Slot {
    /// Whose slot it is.
    pub fn slots(&self) -> &Arc<Slots> {
        &self.of
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.of.state();
        if let Some(taken) = state.taken.get_mut(&self.namespace) {
            *taken -= 1;
            if *taken == 0 {
                state.taken.remove(&self.namespace);
            }
        }
        drop(state);
        self.of.freed.notify_waiters();
    }
}

/// Users, or parties of users, with an explanation in progress or waiting.
#[derive(Debug, Default)]
pub(super) struct Users(Mutex<BTreeSet<String>>);

impl Users {
    /// The user's turn, if they have none yet. Users without a name cannot be distinguished, and always get a turn.
    pub fn enter(self: &Arc<Self>, user: &str) -> Option<Turn> {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let user = party(user).to_owned();
        let entered = user.is_empty() || users.insert(user.clone());
        entered.then(|| Turn { of: Arc::clone(self), user })
    }
}

/// A user's turn, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    of: Arc<Users>,
    user: String,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.of.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.user);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tasks of tests have no supervisor")]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const LONG: Duration = Duration::from_hours(1);

    type Taking<'a> = Pin<Box<dyn Future<Output = Option<Slot>> + 'a>>;

    fn taking<'a>(slots: &'a Arc<Slots>, namespace: &'a str) -> Taking<'a> {
        Box::pin(slots.take(namespace, LONG))
    }

    fn now(taking: &mut Taking<'_>) -> Option<Slot> {
        match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(slot) => slot,
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_namespace_with_many_questions_leaves_room_for_others_and_they_come_in_turn() {
        let slots = Slots::new(3, 2);
        let mut loud: Vec<_> = (0..50).map(|_| taking(&slots, "loud")).collect();
        let mut held: Vec<_> = loud.iter_mut().filter_map(now).collect();
        assert_eq!(held.len(), 2, "its share");
        assert!(slots.others_wait());
        let mut quiet = taking(&slots, "quiet");
        let quiet =
            now(&mut quiet).expect("forty-eight that wait before are of a namespace that has its share");
        let mut calm = taking(&slots, "calm");
        assert!(now(&mut calm).is_none(), "all are taken");
        // The first in turn is of the busy namespace: it is passed over only while its namespace has its share.
        drop(quiet);
        let calm = now(&mut calm).expect("the slot that is free");
        drop(held.pop());
        let next: Vec<_> = loud.iter_mut().skip(2).filter_map(now).collect();
        assert_eq!(next.len(), 1);
        drop((calm, held, next));
        drop(loud);
        assert!(!slots.others_wait());
    }

    #[tokio::test]
    async fn one_that_gives_up_waiting_is_forgotten() {
        let slots = Slots::new(1, 1);
        let first = slots.take("a", LONG).await.unwrap();
        assert!(!slots.others_wait(), "one that need not wait does not count");
        assert!(slots.take("b", Duration::ZERO).await.is_none());
        assert!(!slots.others_wait());
        let mut second = taking(&slots, "b");
        assert!(now(&mut second).is_none());
        slots.until_others_wait().await;
        drop(second);
        assert!(!slots.others_wait());
        drop(first);
        assert!(slots.take("c", LONG).await.is_some());
    }

    #[tokio::test]
    async fn a_question_that_waits_is_woken_when_a_slot_is_free() {
        let slots = Slots::new(2, 1);
        let first = slots.take("a", LONG).await.unwrap();
        let waits = tokio::spawn({
            let slots = Arc::clone(&slots);
            async move { slots.take("a", LONG).await.is_some() }
        });
        slots.until_others_wait().await;
        drop(first);
        assert!(waits.await.unwrap());
        assert!(slots.state().taken.is_empty() && slots.state().waiting.is_empty());
    }

    #[test]
    fn a_user_has_one_turn_and_those_without_a_name_have_many() {
        let users = Arc::new(Users::default());
        let alice = users.enter("alice").unwrap();
        assert!(users.enter("alice").is_none() && users.enter("bob").is_some());
        drop(alice);
        assert!(users.enter("alice").is_some());
        let _nameless = (users.enter("").unwrap(), users.enter("").unwrap());
    }
}
