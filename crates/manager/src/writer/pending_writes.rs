//! Which writes are in flight, and which may be sent next: writes of a kind or namespace whose webhook is dead must not take all slots.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sluice_engine::input::ObjectRef;

use super::class::Class;
use super::lanes::{Key as _, Lanes};
use super::sending::{Outcome, Progress, UnderWay};
use super::suspects::{Group, Patience, Suspects};
use super::traffic::{Reviewed, Traffic};

/// A write in progress.
#[derive(Debug)]
struct PendingWrite {
    class: Class,
    patience: Patience,
    under_way: UnderWay,
    /// When the request was sent of whose soon answer the suspects know.
    learned: Option<Instant>,
}

/// A write that goes next.
#[derive(Debug)]
pub struct Next<T> {
    /// Its object.
    pub object: ObjectRef,
    /// Its class.
    pub class: Class,
    /// The write.
    pub item: T,
    /// How long its requests may take.
    pub patience: Patience,
}

impl PendingWrite {
    /// How far it is.
    fn progress(&self) -> Progress {
        *self.under_way.progress.borrow()
    }
}

/// All of them, by object; and where writes hang.
#[derive(Debug, Default)]
pub struct PendingWrites {
    writes: BTreeMap<ObjectRef, PendingWrite>,
    suspects: Suspects,
}

/// How many more may go, and which.
#[derive(Debug, Default)]
pub struct FreePlaces {
    /// How many more writes may be sent.
    pub places: usize,
    /// How many are under way and do not pause.
    pub sent: usize,
    /// How many of them leave their places to others, because they are where writes hang.
    pub hanging: usize,
    /// How many of them are no reports, and not where writes hang: these keep the API server busy.
    pub at_work: usize,
    /// How many reports pause, or are where writes hang: these keep no other report waiting.
    pub idle_reports: usize,
    /// When to look again.
    pub again: Option<Instant>,
    /// How many more writes may be sent where writes hang.
    suspects: usize,
    /// Whether one of these may take the usual time, although others wait for its slot.
    may_last: bool,
    /// Of these groups no more goes.
    passed_over: BTreeSet<Group>,
    /// All writes in progress take long: the next one shows whether they hang.
    finds_out: bool,
    /// Those that take long are of these kinds.
    long: BTreeSet<Reviewed>,
}

impl PendingWrites {
    /// A write is under way.
    pub fn insert(&mut self, object: ObjectRef, class: Class, patience: Patience, under_way: UnderWay) {
        self.writes.insert(object, PendingWrite { class, patience, under_way, learned: None });
    }

    /// The write has ended.
    pub fn remove(&mut self, object: &ObjectRef, now: Instant) {
        let Some(write) = self.writes.remove(object) else { return };
        let last = write.under_way.progress.borrow().last;
        if let Some(request) = last.filter(|request| write.learned != Some(request.sent)) {
            self.suspects.learn(&object.group(), request, write.patience, now);
        }
    }

    /// Learns of soon answers of writes that did not end yet, for instance because their answers wait for the engine: what they overtook counts as
    /// hanging from the same moment on.
    fn learn_of_answers(&mut self, now: Instant) {
        for (object, write) in &mut self.writes {
            let Progress { since: None, last: Some(request), .. } = write.progress() else { continue };
            let is_soon = request.outcome == Outcome::Soon && !request.reads;
            if is_soon && write.learned != Some(request.sent) {
                write.learned = Some(request.sent);
                self.suspects.learn(&object.group(), request, write.patience, now);
            }
        }
    }

    /// All writes have ended, and what is known about hanging may be over when this process leads again.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// How many more writes may be sent now, while `paused` of those in progress pause.
    ///
    /// A request hangs if it has been in progress for long and a later write that shows it (see [`Reviewed`]) was answered soon. For a group with a
    /// hanging request, one write at a time is sent until one is answered, and all such groups together take a quarter of the slots; writes
    /// beyond that give their slots to others when it turns out, and are given up soon. If all others take long, it is not known whether they hang or
    /// the server is slow: a few more are sent to find that out, first of the group whose last answer is newest, among those that show it.
    pub fn free_places(&mut self, now: Instant, paused: usize, traffic: &Traffic) -> FreePlaces {
        let (limit, long_from, short) = (traffic.limit(), traffic.long(), traffic.short());
        let share = (limit / 4).max(1);
        self.learn_of_answers(now);
        let sent = self.writes.len().saturating_sub(paused);
        let (mut long, mut hanging, mut again) = (BTreeSet::new(), Vec::new(), None);
        let mut look_again = |at: Instant| again = again.into_iter().chain([at]).min();
        for (object, write) in &self.writes {
            let Progress { since, reads, .. } = write.progress();
            match since {
                Some(began) if now.saturating_duration_since(began) >= long_from => {
                    long.insert(object);
                    if traffic.is_overtaken(object.kind, began) {
                        self.suspects.notice(&object.group(), reads, began, now);
                        hanging.push((began, object, write));
                    }
                }
                began => look_again(began.unwrap_or(now) + long_from),
            }
        }
        let (mut suspects, mut idle_reports, mut at_work, mut others_long) = (0_usize, 0, 0, 0);
        let any_hang = self.suspects.any();
        let (mut passed_over, mut may_last) = (BTreeSet::new(), true);
        for (object, write) in &self.writes {
            may_last &= write.patience != Patience::Again;
            let hangs = any_hang.then(|| object.group()).filter(|group| self.suspects.contains(group));
            let is_idle = hangs.is_some() || write.progress().pauses;
            if write.class == Class::Reports {
                idle_reports += usize::from(is_idle);
            } else {
                at_work += usize::from(!is_idle);
            }
            if let Some(group) = hangs {
                suspects += 1;
                if !self.suspects.is_slow(&group) {
                    passed_over.insert(group);
                }
            } else {
                others_long += usize::from(long.contains(object));
            }
        }
        let surplus = suspects.saturating_sub(share).min(sent);
        let next = self.give_up(hanging, surplus, |began| now.saturating_duration_since(began) >= short);
        let again = again.into_iter().chain(next.map(|began| began + short)).min();
        let counted = sent - surplus;
        let others = sent.saturating_sub(suspects);
        let finds_out = counted >= limit && others_long >= others && counted < limit + share;
        let kinds = long.iter().map(|object| Reviewed::of(object.kind)).collect();
        if finds_out {
            passed_over.extend(long.into_iter().map(super::lanes::Key::group));
        }
        // Starts, stops and admissions that pause no more have the next slots: the writes that wait would take each as soon as it is free.
        let places = if finds_out { 1 } else { limit.saturating_sub(counted + traffic.returning()) };
        let suspects = if finds_out { 0 } else { share.saturating_sub(suspects) };
        let hanging = surplus;
        FreePlaces {
            places,
            sent,
            hanging,
            at_work,
            idle_reports,
            again,
            suspects,
            may_last,
            passed_over,
            finds_out,
            long: kinds,
        }
    }

    /// Gives up requests that hang, the oldest first and `most` of them, if they have had their time. Returns when the first of them began that has not;
    /// each stands with the time when it began.
    fn give_up(
        &self,
        mut hanging: Vec<(Instant, &ObjectRef, &PendingWrite)>,
        most: usize,
        had_time: impl Fn(Instant) -> bool,
    ) -> Option<Instant> {
        // One at a time has the usual time.
        hanging.retain(|(_, object, write)| {
            write.patience != Patience::Again && self.suspects.contains(&object.group())
        });
        hanging.sort_by_key(|(began, ..)| *began);
        for (began, _, write) in hanging.into_iter().take(most) {
            if !had_time(began) {
                return Some(began);
            }
            write.under_way.given_up.send_replace(Some(began));
        }
        None
    }

    /// Whether the writes of a group that wait are held back because earlier ones hang. They wait for a webhook, and not for the API server.
    pub fn holds(&self, free: &FreePlaces, group: &Group) -> bool {
        self.suspects.any() && free.passes_over(group, &self.suspects) && self.suspects.contains(group)
    }

    /// Takes the next write that may be sent now, of a class up to `last`. `at` is the same moment as a monotonic time. For a group whose writes
    /// failed, one at a time may take the usual time; the others are given up soon while more of them wait.
    pub fn next<T>(
        &self,
        free: &mut FreePlaces,
        lanes: &mut Lanes<ObjectRef, T>,
        (now, at): (Instant, Duration),
        last: Class,
    ) -> Option<Next<T>> {
        let passes_over = |group: &Group| free.passes_over(group, &self.suspects);
        let shows = |group: &Group| (free.shows(group), self.suspects.answered(group));
        let next = if free.finds_out {
            let best = lanes.groups(last).filter(|group| !passes_over(group)).map(shows).max()?;
            lanes.pop(at, last, |group| shows(group) != best || passes_over(group))
        } else {
            lanes.pop(at, last, passes_over)
        };
        let (object, class, item) = next?;
        free.places = free.places.saturating_sub(1);
        free.sent += 1;
        let group = object.group();
        let mut patience = self.suspects.patience(&group, now);
        if patience == Patience::Again {
            let mut others = lanes.groups(Class::Reports).filter(|other| **other != group);
            if !free.may_last && others.any(|other| self.suspects.contains(other)) {
                patience = Patience::Little;
            }
            free.may_last &= patience != Patience::Again;
        }
        if self.suspects.contains(&group) {
            free.suspects = free.suspects.saturating_sub(1);
            free.idle_reports += usize::from(class == Class::Reports);
            if !self.suspects.is_slow(&group) {
                free.passed_over.insert(group);
            }
        } else {
            free.at_work += usize::from(class != Class::Reports);
        }
        Some(Next { object, class, item, patience })
    }
}

impl FreePlaces {
    /// Whether an answer to a write of a group shows something about those that take long.
    fn shows(&self, (kind, _): &Group) -> bool {
        let of = Reviewed::of(*kind);
        self.long.iter().any(|long| long.is_shown_by(of))
    }

    /// Whether a group's writes wait, because others like them hang.
    fn passes_over(&self, group: &Group, suspects: &Suspects) -> bool {
        self.passed_over.contains(group) || self.suspects == 0 && suspects.contains(group)
    }
}

#[cfg(test)]
mod tests;
