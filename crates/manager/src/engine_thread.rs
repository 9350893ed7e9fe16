//! The engine's own thread: inputs in, effects out, cycles back to back, timers; and recovery when an object makes the engine panic.
//!
//! A panic costs the object that caused it, not the manager: the object is set aside, the engine is rebuilt, and everything is listed again.
//! Effects of the old engine no longer count: writes carry the engine's *generation*, and answers to an earlier generation are dropped (the watch
//! shows their outcome).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use sluice_engine::effect::{Effect, EffectId};
use sluice_engine::input::{Input, Object, ObjectRef, WriteError};
use tracing::{error, info};

use self::blame::{Blame, Cause, Verdict};
use self::clock::Clock;
use self::pages::Pages;
use crate::intake::Slot;
use crate::record::Recorder;
use crate::supervise::{Supervisor, text};
use crate::watch::document::Document;

pub use self::pages::PAGE;

/// Inputs that are applied before the next cycle at most, so that a flood does not hold decisions back.
const BATCH: usize = 4096;

/// The engine, or a stand-in in tests.
pub trait Machine {
    /// Takes in what happened.
    fn apply(&mut self, now: Timestamp, input: Input);
    /// Decides; returns the effects, and how long scheduling took.
    fn cycle(&mut self, now: Timestamp) -> (Vec<Effect>, Duration);
    /// Whether another cycle may decide something now.
    fn has_work(&self) -> bool;
    /// When it wants to be woken.
    fn next_timer(&self) -> Option<Timestamp>;
    /// The object that it was working on; asked after a panic.
    fn suspect(&self) -> Option<ObjectRef>;
    /// Whether it leaves an object out that was set aside and has not changed since.
    fn is_aside(&self, object: &ObjectRef) -> bool;
    /// Whether there is something new for the part that follows it.
    fn has_moves(&self) -> bool {
        false
    }
    /// UID and version of an object as it has it, where it tells.
    fn version_of(&self, _object: &ObjectRef) -> Option<(&str, &str)> {
        None
    }
}

/// Where the thread's results go.
pub trait Outlet: Send + 'static {
    /// Carries effects out. `generation` must come back with the answers of writes; `took` is how long scheduling took.
    fn emit(&mut self, effects: Vec<Effect>, leading: bool, generation: u64, took: Duration);
    /// An object was set aside after a panic.
    fn set_aside(&mut self, object: &ObjectRef, why: &str);
    /// After an answer the engine has this version of the object with this UID.
    fn taken(&mut self, _uid: &str, _version: &str) {}
    /// The engine was rebuilt: everything must be listed again, as epoch `generation`.
    fn rebuilt(&mut self, generation: u64);
    /// The engine cannot be kept running.
    fn give_up(&mut self, why: &str);
    /// There is something new for the part that follows the engine.
    fn moved(&mut self) {}
}

/// A question to the engine, answered between two cycles.
type Question<M> = Box<dyn FnOnce(&mut M) + Send>;

enum Command<M> {
    Input(Input, Document, Slot),
    Synced(u64),
    SetAside(ObjectRef, String, Slot),
    Written {
        generation: u64,
        id: EffectId,
        result: Result<Option<Object>, WriteError>,
        document: Document,
        place: Slot,
    },
    Ask(Question<M>),
    Pages(Pages<M>),
    StepDown,
    Stop,
}

/// Talks to the thread. Cheap to clone; all sends are without waiting: what is large has its place from [`crate::intake`].
pub struct Handle<M>(Sender<Command<M>>);

impl<M> Clone for Handle<M> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<M> Handle<M> {
    fn send(&self, command: Command<M>) {
        // The thread is gone only when the process ends.
        let _ = self.0.send(command);
    }

    /// Sends the engine an input.
    pub fn input(&self, input: Input) {
        self.seen(input, None, Slot::default());
    }

    /// Sends the engine an input, with the document of the object in it while documents are kept.
    pub fn seen(&self, input: Input, document: Document, place: Slot) {
        self.send(Command::Input(input, document, place));
    }

    /// Everything has been listed in `epoch`.
    pub fn synced(&self, epoch: u64) {
        self.send(Command::Synced(epoch));
    }

    /// An object made a part of the manager panic before the engine saw it.
    pub fn set_aside(&self, object: ObjectRef, why: String, place: Slot) {
        self.send(Command::SetAside(object, why, place));
    }

    /// The answer of a write.
    pub fn written(
        &self,
        generation: u64,
        id: EffectId,
        result: Result<Option<Object>, WriteError>,
        document: Document,
        place: Slot,
    ) {
        self.send(Command::Written { generation, id, result, document, place });
    }

    /// Stops deciding and rebuilds the engine, because another replica may decide from now on: unwritten decisions are dropped.
    pub fn step_down(&self) {
        self.send(Command::StepDown);
    }

    /// Ends the thread after what was sent before.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// Asks the engine; nothing when the thread has ended.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut M) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, receiver) = tokio::sync::oneshot::channel();
        self.send(Command::Ask(Box::new(move |machine| {
            // The caller may have gone.
            let _ = answer.send(question(machine));
        })));
        receiver.await.ok()
    }
}

/// Starts the thread, which `supervisor` watches over. `build` makes an engine, at the start and after a panic; `recorder` takes what happens to it.
///
/// # Errors
///
/// If the system cannot start another thread.
pub fn start<M, O>(
    supervisor: &Supervisor,
    build: impl Fn() -> M + Send + 'static,
    outlet: O,
    recorder: Option<Recorder>,
) -> std::io::Result<(Handle<M>, JoinHandle<()>)>
where
    M: Machine + 'static,
    O: Outlet,
{
    start_by(Clock::new(Timestamp::now), supervisor, build, outlet, recorder)
}

fn start_by<M, O>(
    clock: Clock,
    supervisor: &Supervisor,
    build: impl Fn() -> M + Send + 'static,
    outlet: O,
    recorder: Option<Recorder>,
) -> std::io::Result<(Handle<M>, JoinHandle<()>)>
where
    M: Machine + 'static,
    O: Outlet,
{
    quiet_panics();
    let (sender, commands) = channel();
    let thread = supervisor.thread("engine", move || {
        let machine = build();
        Runner {
            machine,
            build,
            outlet,
            recorder,
            clock,
            commands,
            pages: VecDeque::new(),
            generation: 0,
            leading: false,
            blame: Blame::default(),
            last: None,
        }
        .run();
    })?;
    Ok((Handle(sender), thread))
}

struct Runner<M, B, O> {
    machine: M,
    build: B,
    outlet: O,
    recorder: Option<Recorder>,
    clock: Clock,
    commands: Receiver<Command<M>>,
    /// Questions that are answered page by page, the next one first.
    pages: VecDeque<Pages<M>>,
    generation: u64,
    leading: bool,
    blame: Blame,
    /// The object of the last input, to blame when the engine does not know.
    last: Option<ObjectRef>,
}

impl<M: Machine, B: Fn() -> M, O: Outlet> Runner<M, B, O> {
    fn run(mut self) {
        loop {
            let first = match self.wait() {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if first.is_none() {
                self.apply(Input::Tick, None);
            }
            if !self.take(first) {
                return;
            }
            // Back to back, but never deaf: new inputs count from the next cycle on.
            while self.cycle() {
                self.turn_pages();
                if !self.take(None) {
                    return;
                }
            }
        }
    }

    /// Waits for a command, or for the engine's next timer. Meanwhile pages are turned: some at least, however many commands come.
    fn wait(&mut self) -> Result<Command<M>, RecvTimeoutError> {
        let timer = self.machine.next_timer();
        while !self.pages.is_empty() {
            self.turn_pages();
            match self.commands.try_recv() {
                Ok(command) => return Ok(command),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) if timer.is_some_and(|at| self.clock.until(at).is_zero()) => {
                    return Err(RecvTimeoutError::Timeout);
                }
                Err(TryRecvError::Empty) => {}
            }
        }
        match timer {
            None => self.commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => self.commands.recv_timeout(self.clock.until(at)),
        }
    }

    /// Turns pages for a while. It is the engine's turn again long before anything could notice.
    fn turn_pages(&mut self) {
        let began = Instant::now();
        let mut passed = Duration::ZERO;
        while let Some(mut pages) = self.pages.pop_front_if(|pages| pages.fit(passed)) {
            let answered = pages.turn(&mut self.machine, passed, || began.elapsed());
            passed = began.elapsed();
            if !answered {
                self.pages.push_back(pages);
            }
        }
    }

    /// Applies the received inputs, up to a batch; returns false if the thread has to end.
    fn take(&mut self, first: Option<Command<M>>) -> bool {
        let mut next = first;
        for _ in 0..BATCH {
            match next.take().or_else(|| self.commands.try_recv().ok()) {
                None => return true,
                Some(Command::Stop) => return false,
                Some(Command::Input(input, document, place)) => {
                    drop(place);
                    self.apply(input, document);
                }
                Some(Command::Synced(epoch)) if epoch == self.generation => {
                    info!(epoch, "all caches are filled");
                    self.apply(Input::Synced, None);
                }
                Some(Command::Written { generation, id, result, document, place })
                    if generation == self.generation =>
                {
                    drop(place);
                    self.written(id, result, document);
                }
                // From an engine that no longer exists.
                Some(Command::Synced(_) | Command::Written { .. }) => {}
                Some(Command::SetAside(object, why, place)) => {
                    drop(place);
                    self.aside(object, &why);
                }
                Some(Command::Ask(question)) => question(&mut self.machine),
                Some(Command::Pages(pages)) => self.pages.push_back(pages),
                Some(Command::StepDown) => {
                    self.leading = false;
                    self.blame.keep(|object| self.machine.is_aside(object));
                    self.rebuild();
                }
            }
        }
        true
    }

    /// Applies an answer, and says which version of its object the engine has then.
    fn written(&mut self, id: EffectId, result: Result<Option<Object>, WriteError>, document: Document) {
        let has_object = matches!(result, Ok(Some(_)));
        self.apply(Input::Written { id, result }, document);
        // An engine that was rebuilt meanwhile has no last object.
        if has_object
            && let Some(object) = &self.last
            && let Some((uid, version)) = self.machine.version_of(object)
        {
            self.outlet.taken(uid, version);
        }
    }

    fn apply(&mut self, input: Input, document: Document) {
        let (subject, version) = (subject(&input), version(&input));
        if let Input::Leader(leading) = input {
            self.leading = leading;
        }
        self.last = subject.clone().or(self.last.take());
        let now = self.clock.now();
        if let Some(recorder) = &mut self.recorder {
            recorder.input(now, &input, document);
        }
        let machine = &mut self.machine;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| machine.apply(now, input))) {
            self.recover(subject, version, &text(&*panic));
        }
    }

    /// One cycle; returns whether there should be another.
    fn cycle(&mut self) -> bool {
        let now = self.clock.now();
        let machine = &mut self.machine;
        let outcome = catch_unwind(AssertUnwindSafe(|| machine.cycle(now)));
        if let Some(recorder) = &mut self.recorder {
            recorder.cycle(now, outcome.as_ref().map_or(&[], |(effects, _)| effects));
        }
        match outcome {
            Ok((effects, took)) => {
                let any = !effects.is_empty();
                if any {
                    self.outlet.emit(effects, self.leading, self.generation, took);
                }
                if self.machine.has_moves() {
                    self.outlet.moved();
                }
                any || self.machine.has_work()
            }
            Err(panic) => {
                let last = self.last.clone();
                self.recover(last, None, &text(&*panic));
                true
            }
        }
    }

    /// Sets an object aside that another part of the manager failed on.
    fn aside(&mut self, object: ObjectRef, why: &str) {
        error!(object = %object, why, "the manager failed on this object: it is set aside until it changes");
        self.outlet.set_aside(&object, why);
        // The engine has not seen this version, or cannot have it written. It takes the next version that can be read.
        let version = Some(String::new());
        self.apply(Input::SetAside { object, version, why: why.to_owned(), pause: 0 }, None);
    }

    /// Sets the causing object aside, and rebuilds the engine without it. `subject` is what came last, in this `version`.
    fn recover(&mut self, subject: Option<ObjectRef>, version: Option<String>, why: &str) {
        let machine = &self.machine;
        let named = catch_unwind(AssertUnwindSafe(|| machine.suspect())).ok().flatten();
        let version_of = |object: &ObjectRef| {
            let known = || machine.version_of(object).map(|(_, version)| version.to_owned());
            catch_unwind(AssertUnwindSafe(known)).ok().flatten()
        };
        let version = match &named {
            Some(object) if subject.as_ref() != Some(object) => version_of(object),
            _ => version.or_else(|| version_of(subject.as_ref()?)),
        };
        // What several pods make together has none.
        let version = version.filter(|version| !version.is_empty());
        let cause = match named {
            Some(object) => Cause::Named(object),
            None => subject.map_or(Cause::Unknown, Cause::Guessed),
        };
        let known = format!("{cause:?}");
        match self.blame.judge(cause, why, |object| machine.is_aside(object), Instant::now()) {
            Verdict::SetAside(object) => {
                error!(object = %object, why, "the engine failed on this object: it is set aside until it changes");
                self.outlet.set_aside(&object, why);
                self.blame.note_version(&object, version);
            }
            verdict => {
                error!(cause = %known, why, "the engine failed, and no object explains it");
                if verdict == Verdict::GiveUp {
                    self.outlet.give_up(why);
                }
            }
        }
        self.rebuild();
    }

    /// Rebuilds the engine, without the objects that were set aside.
    fn rebuild(&mut self) {
        self.generation += 1;
        self.last = None;
        self.machine = (self.build)();
        let now = self.clock.now();
        if let Some(recorder) = &mut self.recorder {
            recorder.rebuilt(now);
        }
        for input in self.blame.leave_out().into_iter().chain([Input::Leader(self.leading)]) {
            if let Some(recorder) = &mut self.recorder {
                recorder.input(now, &input, None);
            }
            self.machine.apply(now, input);
        }
        self.outlet.rebuilt(self.generation);
    }
}

fn subject(input: &Input) -> Option<ObjectRef> {
    match input {
        Input::Applied(object) | Input::Written { result: Ok(Some(object)), .. } => Some(object.object_ref()),
        Input::Deleted { object, .. } | Input::SetAside { object, .. } => Some(object.clone()),
        _ => None,
    }
}

/// The version of the object that was seen.
fn version(input: &Input) -> Option<String> {
    match input {
        Input::Applied(object) | Input::Written { result: Ok(Some(object)), .. } => {
            object.version().map(str::to_owned)
        }
        _ => None,
    }
}

/// Panics of the engine's thread are logged as one structured line instead of on standard error.
fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let default = Arc::new(std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            if std::thread::current().name() == Some("engine") {
                error!(at = ?panic.location().map(ToString::to_string), "panic in the engine");
            } else {
                default(panic);
            }
        }));
    });
}

mod blame;
mod clock;
mod pages;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod time_tests;
