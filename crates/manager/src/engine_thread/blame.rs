//! Which object a panic of the engine is blamed on, and when the process ends because setting objects aside does not end the panics.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sluice_engine::input::ObjectRef;

/// The number of panics that no object explains, each within [`CALM`] of the one before, after which the process gives up.
const UNEXPLAINED: u32 = 3;
const CALM: Duration = Duration::from_mins(1);

/// What is known about the cause of a panic.
#[derive(Debug)]
pub enum Cause {
    /// The engine was working on this object.
    Named(ObjectRef),
    /// The engine does not say on what it was working. This object came last.
    Guessed(ObjectRef),
    /// Nothing is known.
    Unknown,
}

/// What follows from a panic.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// This object is set aside.
    SetAside(ObjectRef),
    /// No object explains the panic; the engine is tried again.
    TryAgain,
    /// The process ends.
    GiveUp,
}

/// The objects that are set aside, and the panics that none of them explains.
#[derive(Debug, Default)]
pub struct Blame {
    aside: Vec<(ObjectRef, String)>,
    /// Objects that were blamed on a guess since the last calm.
    guessed: BTreeSet<ObjectRef>,
    unexplained: u32,
    /// When the last panic was for which the engine named no object that it was to handle.
    at: Option<Instant>,
}

impl Blame {
    /// The objects that are set aside, and why.
    pub fn aside(&self) -> impl Iterator<Item = &(ObjectRef, String)> {
        self.aside.iter()
    }

    /// Forgets the objects that the engine does not leave out any more: they changed, or are gone.
    pub fn keep(&mut self, is_aside: impl Fn(&ObjectRef) -> bool) {
        self.aside.retain(|(object, _)| is_aside(object));
    }

    /// Judges a panic with the message `why`. `is_aside` says whether the engine that panicked leaves an object out.
    ///
    /// An object that the engine names explains each panic, however often it changes and is looked at again. An object that was set aside and has not
    /// changed explains none, and a guess explains one.
    pub fn judge(
        &mut self,
        cause: Cause,
        why: &str,
        is_aside: impl Fn(&ObjectRef) -> bool,
        now: Instant,
    ) -> Verdict {
        self.keep(&is_aside);
        if let Cause::Named(object) = &cause
            && !is_aside(object)
        {
            return self.set_aside(object.clone(), why);
        }
        if self.at.is_none_or(|at| now.duration_since(at) >= CALM) {
            self.guessed.clear();
            self.unexplained = 0;
        }
        self.at = Some(now);
        if let Cause::Guessed(object) = cause
            && !is_aside(&object)
            && self.guessed.insert(object.clone())
        {
            return self.set_aside(object, why);
        }
        self.unexplained += 1;
        if self.unexplained < UNEXPLAINED { Verdict::TryAgain } else { Verdict::GiveUp }
    }

    fn set_aside(&mut self, object: ObjectRef, why: &str) -> Verdict {
        self.aside.push((object.clone(), why.to_owned()));
        Verdict::SetAside(object)
    }
}

#[cfg(test)]
mod tests {
    use sluice_engine::input::Kind;

    use super::*;

    /// A cause, and whether the engine leaves an object out.
    type Case = (fn() -> Cause, fn(&ObjectRef) -> bool);

    fn object(name: &str) -> ObjectRef {
        ObjectRef::cluster(Kind::Namespace, name)
    }

    fn changed(_: &ObjectRef) -> bool {
        false
    }

    fn unchanged(_: &ObjectRef) -> bool {
        true
    }

    #[test]
    fn an_object_that_changes_again_and_again_is_set_aside_each_time_and_remembered_once() {
        for pause in [Duration::ZERO, CALM / 2, 2 * CALM] {
            let (mut blame, mut now) = (Blame::default(), Instant::now());
            for _ in 0..100 {
                let verdict = blame.judge(Cause::Named(object("a")), "a bug", changed, now);
                assert_eq!(verdict, Verdict::SetAside(object("a")), "{pause:?}");
                assert_eq!(blame.aside().count(), 1);
                now += pause;
            }
        }
    }

    #[test]
    fn panics_that_no_object_explains_end_the_process_unless_there_is_calm_between_them() {
        let causes: [Case; 3] = [
            (|| Cause::Unknown, changed),
            // It is set aside, so it is not the cause.
            (|| Cause::Named(object("a")), unchanged),
            (|| Cause::Guessed(object("a")), unchanged),
        ];
        for (cause, is_aside) in causes {
            let (mut blame, mut now) = (Blame::default(), Instant::now());
            let mut judge = |pause: Duration| {
                now += pause;
                blame.judge(cause(), "a bug", is_aside, now)
            };
            for _ in 0..10 {
                assert_eq!(judge(CALM), Verdict::TryAgain);
            }
            let soon = CALM / 2;
            assert_eq!([judge(soon), judge(soon)], [Verdict::TryAgain, Verdict::GiveUp], "{:?}", cause());
        }
    }

    #[test]
    fn an_object_is_blamed_on_a_guess_once_and_what_the_engine_names_meanwhile_does_not_count() {
        let (mut blame, now) = (Blame::default(), Instant::now());
        let mut judge = |cause| blame.judge(cause, "a bug", changed, now);
        assert_eq!(judge(Cause::Guessed(object("a"))), Verdict::SetAside(object("a")));
        assert_eq!(judge(Cause::Guessed(object("a"))), Verdict::TryAgain);
        for _ in 0..10 {
            assert_eq!(judge(Cause::Named(object("b"))), Verdict::SetAside(object("b")));
        }
        assert_eq!(judge(Cause::Guessed(object("a"))), Verdict::TryAgain);
        assert_eq!(judge(Cause::Guessed(object("a"))), Verdict::GiveUp);
    }

    #[test]
    fn an_object_that_changed_is_not_set_aside_in_the_next_engine() {
        let mut blame = Blame::default();
        for name in ["a", "b"] {
            let is_aside = |other: &ObjectRef| *other != object(name);
            blame.judge(Cause::Named(object(name)), "a bug", is_aside, Instant::now());
        }
        assert_eq!(blame.aside().count(), 2);
        blame.keep(|other| *other == object("b"));
        assert!(blame.aside().eq(&[(object("b"), "a bug".to_owned())]));
    }
}
