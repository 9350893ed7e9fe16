//! The state of one search for victims: a room, which answers whether pods fit without some candidates.
//!
//! A cut search continues where it was: it is repeated with the answers that it got, and until it has a new question no candidate is released or
//! brought back. Then those that are gone at that point are released at once.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::needs::SetNeeds;
use super::probe::Probe;
use super::victims::Ground;
use super::{FreeCapacity, LOOKS_PER_STEP};
use crate::workload::WorkloadKey;

/// The answers of a search for victims so far: whether the pods fit, question by question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers(Vec<bool>);

/// The state of one search for victims.
pub(super) struct CapacityGround<'r, 'n, 'a> {
    room: &'r mut FreeCapacity<'a>,
    key: &'r WorkloadKey,
    needs: &'r [SetNeeds<'a>],
    /// Of the pod sets whose pods go where there is room.
    probe: Probe<'n, 'a>,
    /// Whether a question costs as much as visiting all nodes.
    dear: bool,
    /// How many candidates were looked at.
    shown: &'r Cell<usize>,
    /// The steps at its beginning, until it is where it was before.
    began: Option<u64>,
    /// The number of steps after which it is cut.
    most: u64,
    answers: &'r mut Answers,
    /// How many of the answers are known from before.
    known: usize,
    /// How many questions were asked, including those with known answers.
    asked: usize,
    /// Candidates that still have to be released or brought back.
    pending: BTreeMap<usize, bool>,
}

impl<'r, 'n, 'a> CapacityGround<'r, 'n, 'a> {
    /// The ground of a search for room for this workload, with what its pods need. `began` and `most` are steps of the room.
    pub(super) fn new(
        room: &'r mut FreeCapacity<'a>,
        (key, needs): (&'r WorkloadKey, &'r [SetNeeds<'a>]),
        probe: Probe<'n, 'a>,
        shown: &'r Cell<usize>,
        (began, most): (u64, u64),
        answers: &'r mut Answers,
    ) -> Self {
        let dear = needs.iter().any(|set| set.assigned.is_some());
        let known = answers.0.len();
        let began = Some(began).filter(|_| known > 0);
        Self {
            room,
            key,
            needs,
            probe,
            dear,
            shown,
            began,
            most,
            answers,
            known,
            asked: 0,
            pending: BTreeMap::new(),
        }
    }

    /// Whether the answer to the next question is known.
    fn repeats(&self) -> bool {
        self.asked < self.known
    }

    fn shift(&mut self, workload: usize, goes: bool) {
        if self.dear || self.repeats() {
            // To go and to come back is nothing.
            if self.pending.remove(&workload).is_none() {
                self.pending.insert(workload, goes);
            }
            return;
        }
        self.catch_up();
        self.shift_now(workload, goes);
    }

    fn shift_now(&mut self, workload: usize, goes: bool) {
        if goes {
            self.room.release(workload);
        } else {
            self.room.take(workload);
        }
        self.probe.changed(&mut self.room.free, workload);
    }

    /// Releases and brings back all pending candidates.
    pub(super) fn catch_up(&mut self) {
        while let Some((workload, goes)) = self.pending.pop_first() {
            self.shift_now(workload, goes);
        }
        if let Some(began) = self.began.take() {
            self.most = self.most.saturating_add(self.room.steps().saturating_sub(began));
        }
    }

    fn ask(&mut self) -> bool {
        self.catch_up();
        if !self.probe.fits(&mut self.room.free) {
            return false;
        }
        if !self.dear {
            return true;
        }
        let mark = self.room.mark();
        let fits = self.room.place(self.key, self.needs);
        self.room.undo(mark);
        fits
    }
}

impl Ground for CapacityGround<'_, '_, '_> {
    type Key = usize;

    fn release(&mut self, workload: usize) {
        self.shift(workload, true);
    }

    fn take(&mut self, workload: usize) {
        self.shift(workload, false);
    }

    fn fits(&mut self) -> bool {
        let known = self.answers.0.get(self.asked).copied();
        let fits = known.unwrap_or_else(|| self.ask());
        if known.is_none() {
            self.answers.0.push(fits);
        }
        self.asked += 1;
        fits
    }

    fn is_dear(&self) -> bool {
        self.dear
    }

    fn goes_on(&self) -> bool {
        // At least one new question is asked, so that the search ends.
        let compared = self.shown.get() as u64 / LOOKS_PER_STEP;
        self.asked <= self.known || self.room.steps().saturating_add(compared) <= self.most
    }
}
