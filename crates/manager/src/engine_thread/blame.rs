//! Which object a panic of the engine is blamed on, and when the process ends because setting objects aside does not end the panics.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use sluice_engine::input::{Input, ObjectRef};

/// The number of panics that no object explains, each within [`CALM`] of the one before, after which the process gives up.
const UNEXPLAINED: u32 = 3;
const CALM: Duration = Duration::from_mins(1);
/// From this panic of one object on it is left out for a while even if it changes: each panic costs a list of everything.
const PAUSED: u32 = 3;
/// The first pause, and the longest, in seconds. Each is twice the one before.
const PAUSE: (u32, u32) = (10, 300);
/// How long after its last panic the panics of an object are forgotten.
const FORGOTTEN: Duration = Duration::from_mins(30);

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

/// An object that is set aside.
#[derive(Debug)]
struct Aside {
    object: ObjectRef,
    /// The version that made the engine panic, until an engine leaves it out: that one may leave out another one since.
    version: Option<String>,
    why: String,
    /// For how many seconds it is left out even if it changes.
    pause: u32,
}

/// The objects that are set aside, and the panics that none of them explains.
#[derive(Debug, Default)]
pub struct Blame {
    aside: Vec<Aside>,
    /// How often objects made the engine panic, and when last.
    panics: BTreeMap<ObjectRef, (u32, Instant)>,
    /// Objects that were blamed on a guess since the last calm.
    guessed: BTreeSet<ObjectRef>,
    unexplained: u32,
    /// When the last panic was for which the engine named no object that it was to handle.
    at: Option<Instant>,
}

impl Blame {
    /// Tells an engine that was just made what it leaves out.
    pub fn leave_out(&mut self) -> Vec<Input> {
        let input = |aside: &mut Aside| Input::SetAside {
            object: aside.object.clone(),
            version: aside.version.take(),
            why: aside.why.clone(),
            pause: aside.pause,
        };
        self.aside.iter_mut().map(input).collect()
    }

    /// Notes which version of an object that is set aside made the engine panic, if that is known.
    pub fn note_version(&mut self, object: &ObjectRef, version: Option<String>) {
        if let Some(aside) = self.aside.iter_mut().find(|aside| aside.object == *object) {
            aside.version = version;
        }
    }

    /// Forgets the objects that the engine does not leave out any more: they changed, or are gone.
    pub fn keep(&mut self, is_aside: impl Fn(&ObjectRef) -> bool) {
        self.aside.retain(|aside| is_aside(&aside.object));
    }

    /// Judges a panic with the message `why`. `is_aside` says whether the engine that panicked leaves an object out.
    ///
    /// An object that the engine names explains each panic, however often it changes and is looked at again, but it is looked at less and less often.
    /// An object that was set aside and has not changed explains none, and a guess explains one.
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
            return self.set_aside(object.clone(), why, now);
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
            return self.set_aside(object, why, now);
        }
        self.unexplained += 1;
        if self.unexplained < UNEXPLAINED { Verdict::TryAgain } else { Verdict::GiveUp }
    }

    fn set_aside(&mut self, object: ObjectRef, why: &str, now: Instant) -> Verdict {
        self.panics.retain(|_, (_, last)| now.duration_since(*last) < FORGOTTEN);
        let (times, last) = self.panics.entry(object.clone()).or_insert((0, now));
        (*times, *last) = (times.saturating_add(1), now);
        let pause = pause(*times);
        self.aside.push(Aside { object: object.clone(), version: None, why: why.to_owned(), pause });
        Verdict::SetAside(object)
    }
}

/// For how many seconds an object is left out that made the engine panic so often.
fn pause(panics: u32) -> u32 {
    let (first, longest) = PAUSE;
    let doubled = |times: u32| 2_u32.saturating_pow(times).saturating_mul(first).min(longest);
    panics.checked_sub(PAUSED).map_or(0, doubled)
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
                assert_eq!(blame.aside.len(), 1);
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
        assert_eq!(blame.aside.len(), 2);
        blame.keep(|other| *other == object("b"));
        assert!(blame.aside.iter().map(|aside| &aside.object).eq([&object("b")]));
    }

    /// The version and the pause of the only object that an engine leaves out.
    fn left_out(blame: &mut Blame) -> (Option<String>, u32) {
        let inputs = blame.leave_out();
        let [Input::SetAside { version, pause, .. }] = &inputs[..] else { panic!("{inputs:?}") };
        (version.clone(), *pause)
    }

    #[test]
    fn an_object_that_panics_again_and_again_is_left_out_longer_each_time_until_its_panics_are_forgotten() {
        let (mut blame, mut now) = (Blame::default(), Instant::now());
        let mut panics = |blame: &mut Blame, after: Duration| {
            now += after;
            blame.judge(Cause::Named(object("a")), "a bug", changed, now);
            left_out(blame).1
        };
        let soon = FORGOTTEN.saturating_sub(Duration::from_secs(1));
        let pauses: Vec<_> = (0..10).map(|_| panics(&mut blame, soon)).collect();
        assert_eq!(pauses, [0, 0, 10, 20, 40, 80, 160, 300, 300, 300]);
        assert_eq!(panics(&mut blame, FORGOTTEN), 0);
    }

    #[test]
    fn the_version_that_panicked_is_said_to_the_next_engine_alone() {
        let mut blame = Blame::default();
        blame.judge(Cause::Named(object("a")), "a bug", changed, Instant::now());
        blame.note_version(&object("a"), Some("7".to_owned()));
        assert_eq!(left_out(&mut blame), (Some("7".to_owned()), 0));
        assert_eq!(left_out(&mut blame), (None, 0));
    }
}
