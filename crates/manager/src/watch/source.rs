//! Lists a kind, then watches it from there, as long as the caller reads: texts of objects, one at a time.
//!
//! `kube::runtime::watcher` holds a page of a list four times over, as bytes, as text and decoded: 500 objects of up to a megabyte and a
//! half. Here an object is cut out of the answer as it comes in, and no more is read until it is taken.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::{Duration, Instant};

use futures::io::{AsyncBufRead, AsyncBufReadExt as _};
use kube::Client;
use kube::api::{ListParams, WatchParams};
use kube::core::Request;

use self::heard::{Head, Heard, heard};
use super::items::Items;
use super::pump::Selector;

pub use self::event::{Error, Event};
pub use self::heard::{Meta, Seen};

/// Objects in a page of a list. It bounds the API server's work, not our memory.
const PAGE: u32 = 500;
/// The API server ends a watch after this time.
const WATCH: u32 = 290;
/// A connection that was silent for longer is dead: the server would have ended the watch.
const SILENCE: Duration = Duration::from_secs(WATCH as u64 + 5);
/// The same for a list: the API server's own limit of a request.
const LIST_SILENCE: Duration = Duration::from_mins(1);
/// The same for a watch on which there was a bookmark: the API server sends one each minute.
const BOOKMARKS: Duration = Duration::from_secs(150);
/// A watch that ends within this time without a message has failed: asked for again at once, it would be so without end.
const SHORT: Duration = Duration::from_secs(1);
/// When watches from a version are refused so often in a row, everything is listed again. (A version that lies in the future is not refused: see
/// `docs/tasks/maintenance.md` on etcd.)
const REFUSALS: u32 = 3;

type Asked = axum::http::Request<Vec<u8>>;
type Body = Pin<Box<dyn AsyncBufRead + Send>>;

/// How far it is.
#[derive(Default)]
enum SourceState {
    #[default]
    Empty,
    /// A page has to be requested: the first, or the one after.
    Page { after: Option<String> },
    /// A page comes in.
    Paging { body: Body, items: Items },
    /// Everything up to a version is known.
    Known { version: String },
    /// Changes come in.
    Watching { version: String, watch: Watch },
}

/// A watch that was accepted.
struct Watch {
    body: Body,
    lines: Lines,
    /// When it began, until something came.
    silent_since: Option<Instant>,
    /// Whether the API server sends bookmarks.
    bookmarks: bool,
}

/// How long nothing may come on a connection. One that is dead may give no other sign.
#[derive(Clone, Copy, Debug)]
struct Silence {
    list: Duration,
    watch: Duration,
    /// After a bookmark: others follow.
    bookmarked: Duration,
    /// A watch that ends sooner without a message has failed.
    least: Duration,
}

impl Silence {
    const USUAL: Self = Self { list: LIST_SILENCE, watch: SILENCE, bookmarked: BOOKMARKS, least: SHORT };
}

/// The source of one kind's objects.
pub struct Source {
    client: Client,
    /// Called when the API server sends anything on the watch.
    alive: Box<dyn Fn() + Send>,
    request: Request,
    selector: Selector,
    state: SourceState,
    silence: Silence,
    /// How often in a row the API server refused a watch.
    refusals: u32,
}

impl Source {
    /// Starts without any state.
    pub fn new(client: Client, path: &str, selector: Selector) -> Self {
        let request = Request::new(path);
        let (alive, silence) = (Box::new(|| {}), Silence::USUAL);
        Self { client, alive, request, selector, state: SourceState::Empty, silence, refusals: 0 }
    }

    /// Calls `alive` whenever a watch begins, continues or delivers.
    #[must_use]
    pub fn on_sign_of_life(mut self, alive: impl Fn() + Send + 'static) -> Self {
        self.alive = Box::new(alive);
        self
    }

    /// The next event. It is not to be asked again when it was dropped halfway.
    ///
    /// # Errors
    ///
    /// If a list or watch is refused or not answered within a minute; if an answer breaks off, is silent for too long, cannot be read or has no
    /// resourceVersion; if a watch ends at once; or if the API server ends the watch with an error. After an error it may be asked again.
    pub async fn next(&mut self) -> Result<Event, Error> {
        loop {
            // After an error without another state, everything is listed again.
            match std::mem::take(&mut self.state) {
                SourceState::Empty => {
                    self.state = SourceState::Page { after: None };
                    return Ok(Event::Init);
                }
                SourceState::Page { after } => {
                    let request = self.list(after).map_err(Error::List)?;
                    let body = send(self.client.clone(), request).await.map_err(Error::List)?;
                    self.state = SourceState::Paging { body, items: Items::default() };
                }
                SourceState::Paging { mut body, mut items } => {
                    if let Some(text) = items.next() {
                        let seen = Seen::item(text)?;
                        self.state = SourceState::Paging { body, items };
                        return Ok(Event::InitApply(seen));
                    }
                    if read(&mut body, self.silence.list, |piece| items.take_in(piece)).await? {
                        self.state = SourceState::Paging { body, items };
                        continue;
                    }
                    let head: Head = serde_json::from_slice(items.around()).map_err(Error::Malformed)?;
                    let Meta { resource_version: version, next_page, .. } = head.metadata;
                    if !next_page.is_empty() {
                        self.state = SourceState::Page { after: Some(next_page) };
                    } else if version.is_empty() {
                        return Err(Error::NoVersion);
                    } else {
                        let as_of = version.parse().unwrap_or(0);
                        self.state = SourceState::Known { version };
                        return Ok(Event::InitDone(as_of));
                    }
                }
                SourceState::Known { version } => {
                    let request = self.watch(&version).map_err(Error::Watch)?;
                    match send(self.client.clone(), request).await.map_err(Error::Watch) {
                        Ok(body) => {
                            (self.alive)();
                            let (lines, silent_since) = (Lines::default(), Some(Instant::now()));
                            let watch = Watch { body, lines, silent_since, bookmarks: false };
                            self.state = SourceState::Watching { version, watch };
                        }
                        Err(error) => return Err(self.from(version, error)),
                    }
                }
                SourceState::Watching { version, mut watch } => {
                    let Some(line) = watch.lines.complete.pop_front() else {
                        let silence =
                            if watch.bookmarks { self.silence.bookmarked } else { self.silence.watch };
                        self.state = match watch.read(silence, self.silence.least).await {
                            Ok(true) => SourceState::Watching { version, watch },
                            Ok(false) => SourceState::Known { version },
                            Err(error) => return Err(self.from(version, error)),
                        };
                        continue;
                    };
                    let heard = heard(line)?;
                    if !matches!(heard, Heard::Error(_)) {
                        (self.alive)();
                        watch.silent_since = None;
                    }
                    let version = heard.version().unwrap_or(version);
                    match heard {
                        Heard::Error(error) => return Err(self.from(version, error)),
                        Heard::Event(event) => {
                            self.go_on(SourceState::Watching { version, watch });
                            return Ok(event);
                        }
                        Heard::Bookmark(_) => {
                            watch.bookmarks = true;
                            self.go_on(SourceState::Watching { version, watch });
                        }
                    }
                }
            }
        }
    }

    /// The watch continues.
    fn go_on(&mut self, state: SourceState) {
        (self.state, self.refusals) = (state, 0);
    }

    /// Continues from a version with another watch, unless changes since then are lost, or repeated watches from that version fail.
    fn from(&mut self, version: String, error: Error) -> Error {
        self.refusals += u32::from(error.is_refusal());
        if error.is_desync() || self.refusals >= REFUSALS {
            self.refusals = 0;
        } else {
            self.state = SourceState::Known { version };
        }
        error
    }

    fn list(&self, after: Option<String>) -> Result<Asked, kube::Error> {
        let Selector { fields, labels, metadata_only } = self.selector;
        let parameters = ListParams {
            field_selector: fields.map(str::to_owned),
            label_selector: labels.map(str::to_owned),
            limit: Some(PAGE),
            continue_token: after,
            ..ListParams::default()
        };
        let request = if metadata_only {
            self.request.list_metadata(&parameters)
        } else {
            self.request.list(&parameters)
        };
        request.map_err(kube::Error::BuildRequest)
    }

    fn watch(&self, version: &str) -> Result<Asked, kube::Error> {
        let Selector { fields, labels, metadata_only } = self.selector;
        let parameters = WatchParams {
            field_selector: fields.map(str::to_owned),
            label_selector: labels.map(str::to_owned),
            timeout: Some(WATCH),
            bookmarks: true,
            ..WatchParams::default()
        };
        let request = if metadata_only {
            self.request.watch_metadata(&parameters, version)
        } else {
            self.request.watch(&parameters, version)
        };
        request.map_err(kube::Error::BuildRequest)
    }
}

async fn send(client: Client, request: Asked) -> Result<Body, kube::Error> {
    let answer = tokio::time::timeout(LIST_SILENCE, client.request_stream(request));
    let silent = |_| kube::Error::Service("no answer in time".into());
    Ok(Box::pin(answer.await.map_err(silent)??))
}

impl Watch {
    /// Takes in what has come; false at its end. That is a failure if nothing came and the watch was shorter than `least`.
    async fn read(&mut self, silence: Duration, least: Duration) -> Result<bool, Error> {
        let Self { body, lines, silent_since, .. } = self;
        let goes_on = read(body, silence, |piece| lines.take_in(piece)).await?;
        if !goes_on && silent_since.is_some_and(|since| since.elapsed() < least) {
            return Err(Error::Broken(std::io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(goes_on)
    }
}

/// What comes in, cut into lines.
#[derive(Default)]
struct Lines {
    complete: VecDeque<Vec<u8>>,
    /// The incomplete line.
    line: Vec<u8>,
}

impl Lines {
    fn take_in(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                self.complete.push_back(std::mem::take(&mut self.line));
            }
        }
    }
}

/// Takes in what has come; false at the end.
async fn read(body: &mut Body, limit: Duration, take: impl FnOnce(&[u8])) -> Result<bool, Error> {
    let piece = match tokio::time::timeout(limit, body.fill_buf()).await {
        Ok(piece) => piece.map_err(Error::Broken)?,
        Err(_) => return Err(Error::Broken(std::io::ErrorKind::TimedOut.into())),
    };
    let bytes = piece.len();
    take(piece);
    body.as_mut().consume(bytes);
    Ok(bytes > 0)
}

mod event;
mod heard;
#[cfg(test)]
pub(crate) mod tests;
