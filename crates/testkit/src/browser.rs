//! A page in a real headless Chromium, driven by its DevTools protocol.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{SinkExt as _, StreamExt as _};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};

use crate::process::{Program, Watchdog};
use crate::wait::{Progress, eventually};

/// Until the browser answers, whatever it is asked. A script in it may wait for [`PATIENCE`].
const DEADLINE: Duration = Duration::from_mins(5);
/// How long a script in the page waits for what it is to show.
pub const PATIENCE: Duration = Duration::from_mins(3);
/// What a script in the page waits for before it checks again what it is to show. If it waited for the next frame, the browser would draw sixty a
/// second for nothing else.
pub const PAUSE: &str = "new Promise((resume) => setTimeout(resume, 50))";

/// The names that distributions give the program.
const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Light or dark, as a person has it set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// The browser's program.
///
/// # Errors
/// None is in the `PATH`.
pub fn path() -> Result<PathBuf> {
    installed(std::env::var_os("PATH").as_deref())
        .context("no Chromium in the PATH: apt-get install chromium, or what your system calls it")
}

fn installed(path: Option<&OsStr>) -> Option<PathBuf> {
    let folders: Vec<_> = std::env::split_paths(path?).collect();
    NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}

/// A browser with one page. Dropping it kills the browser and removes its profile.
pub struct Page {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    session: String,
    sent: u64,
    events: Vec<Value>,
    _program: Program,
    _folder: TempDir,
}

impl Page {
    /// Starts a browser with an empty page, which reports its requests, errors and messages.
    ///
    /// # Errors
    /// There is no browser, or it does not come up.
    pub async fn start() -> Result<Self> {
        let folder = tempfile::tempdir().context("making the browser's profile")?;
        let watchdog = Watchdog::start(folder.path())?;
        let profile = folder.path().join("profile");
        let mut command = Command::new(path()?);
        command.args(["--headless=new", "--remote-debugging-port=0", "--remote-debugging-address=127.0.0.1"]);
        // No sandbox, since it refuses to run as root, as in CI. All pages here are our own.
        command.args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
        command.arg(format!("--user-data-dir={}", profile.display())).arg("about:blank");
        // Chromium keeps crash reports and caches there otherwise.
        command.env("HOME", folder.path()).env_remove("DISPLAY");
        let mut program = Program::start("chromium", command, &folder.path().join("log"), &watchdog)?;
        let address = address(&mut program, &profile.join("DevToolsActivePort")).await?;
        let mut limits = WebSocketConfig::default();
        // A screenshot comes as one message.
        limits.max_message_size = None;
        limits.max_frame_size = None;
        let connected = connect_async_with_config(address.as_str(), Some(limits), false).await;
        let (socket, _) = connected.with_context(|| format!("connecting to {address}"))?;
        let session = String::new();
        let mut page =
            Self { socket, session, sent: 0, events: Vec::new(), _program: program, _folder: folder };
        let target = page.ask("Target.createTarget", json!({"url": "about:blank"})).await?;
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = page.ask("Target.attachToTarget", attach).await?;
        page.session = attached["sessionId"].as_str().context("a session of the page")?.to_owned();
        for domain in ["Page", "Runtime", "Network", "Log"] {
            page.ask(&format!("{domain}.enable"), json!({})).await?;
        }
        page.ask("Page.setLifecycleEventsEnabled", json!({"enabled": true})).await?;
        Ok(page)
    }

    /// Opens a file, and waits until it is loaded. What was reported before is forgotten.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub async fn open(&mut self, file: &Path) -> Result<()> {
        self.visit(&format!("file://{}", file.display())).await
    }

    /// Opens a URL, and waits until it is loaded. What was reported before is forgotten.
    ///
    /// # Errors
    /// It cannot be loaded.
    pub async fn visit(&mut self, url: &str) -> Result<()> {
        self.events.clear();
        let answer = self.ask("Page.navigate", json!({"url": url})).await?;
        ensure!(answer.get("errorText").is_none(), "opening {url}: {answer}");
        let document = answer.get("loaderId").with_context(|| format!("{url} is open already"))?;
        // The document before, even the empty one, may report its own end of loading late.
        let is_loaded = |event: &Value| {
            let (what, of) = (&event["params"]["name"], &event["params"]["loaderId"]);
            event["method"] == "Page.lifecycleEvent" && what == "load" && of == document
        };
        while !self.events.iter().any(is_loaded) {
            self.read().await?;
        }
        Ok(())
    }

    /// Sets what the window looks like: its width and height in pixels, and whether it is light or dark.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn look(&mut self, width: u32, height: u32, scheme: Scheme) -> Result<()> {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.ask("Emulation.setDeviceMetricsOverride", metrics).await?;
        let value = if scheme == Scheme::Dark { "dark" } else { "light" };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.ask("Emulation.setEmulatedMedia", features).await?;
        Ok(())
    }

    /// Runs a script in the page; its last value, awaited if it is a promise.
    ///
    /// # Errors
    /// It throws.
    pub async fn run(&mut self, script: &str) -> Result<Value> {
        let wanted = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let answer = self.ask("Runtime.evaluate", wanted).await?;
        if let Some(thrown) = answer.get("exceptionDetails") {
            bail!("the script throws {thrown}");
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until the page has that text.
    ///
    /// # Errors
    /// It does not come: what the page says instead.
    pub async fn wait_for_text(&mut self, text: &str) -> Result<()> {
        let wanted = Value::from(text);
        let patience = PATIENCE.as_millis();
        let script = format!(
            "(async () => {{ const until = performance.now() + {patience};
               while (!document.body.innerText.includes({wanted})) {{
                   if (performance.now() > until) return document.body.innerText.slice(0, 3000);
                   await {PAUSE};
               }}
               return true; }})()"
        );
        let seen = self.run(&script).await?;
        ensure!(seen == true, "{text:?} is not shown: {seen}");
        Ok(())
    }

    /// Clicks the button with that text.
    ///
    /// # Errors
    /// There is none.
    pub async fn click(&mut self, button: &str) -> Result<()> {
        let wanted = Value::from(button);
        let script = format!(
            "(() => {{ const found = [...document.querySelectorAll('button')].find((one) => one.textContent === {wanted}); found?.click(); return Boolean(found); }})()"
        );
        ensure!(self.run(&script).await? == true, "there is no button {button:?}");
        Ok(())
    }

    /// Takes any certificate from now on: a manager makes its own.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn take_any_certificate(&mut self) -> Result<()> {
        self.ask("Security.setIgnoreCertificateErrors", json!({"ignore": true})).await?;
        Ok(())
    }

    /// Moves the mouse, in pixels of the window.
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn move_mouse(&mut self, x: f64, y: f64) -> Result<()> {
        self.ask("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": x, "y": y})).await?;
        Ok(())
    }

    /// Presses a key that is named as in JavaScript's `KeyboardEvent.key`: `Tab`, `Enter`, `ArrowDown`.
    ///
    /// # Errors
    /// If the browser refuses.
    pub async fn press(&mut self, key: &str) -> Result<()> {
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "End" => 35,
            "Home" => 36,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        // A button hears the character of Enter, not the key.
        let (down, text) = if key == "Enter" { ("keyDown", "\r") } else { ("rawKeyDown", "") };
        for kind in [down, "keyUp"] {
            let text = if kind == "keyUp" { "" } else { text };
            let wanted =
                json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text});
            self.ask("Input.dispatchKeyEvent", wanted).await?;
        }
        Ok(())
    }

    /// A metric of the browser for the page, such as `JSHeapUsedSize` (bytes) or `Nodes`, after a garbage collection.
    ///
    /// # Errors
    /// If there is no metric of that name.
    pub async fn figure(&mut self, name: &str) -> Result<f64> {
        self.ask("HeapProfiler.collectGarbage", json!({})).await?;
        self.ask("Performance.enable", json!({})).await?;
        let answer = self.ask("Performance.getMetrics", json!({})).await?;
        let all = answer["metrics"].as_array().context("metrics")?;
        let found = all.iter().find(|metric| metric["name"] == name);
        found.and_then(|metric| metric["value"].as_f64()).with_context(|| format!("the metric {name}"))
    }

    /// The whole page as a picture (PNG).
    ///
    /// # Errors
    /// The browser refuses.
    pub async fn screenshot(&mut self) -> Result<Vec<u8>> {
        let wanted = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.ask("Page.captureScreenshot", wanted).await?;
        let ByteString(bytes) = serde_json::from_value(answer["data"].clone()).context("a picture")?;
        Ok(bytes)
    }

    /// The URLs that were asked for since the page was opened, whether or not that was allowed.
    pub fn requests(&self) -> Vec<&str> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.filter_map(|event| event["params"]["request"]["url"].as_str()).collect()
    }

    /// Problems since the page was opened: exceptions, dialogs, and console messages.
    pub fn troubles(&self) -> Vec<&Value> {
        let reported = [
            "Runtime.exceptionThrown",
            "Runtime.consoleAPICalled",
            "Log.entryAdded",
            "Page.javascriptDialogOpening",
        ];
        let wrong = |event: &&Value| reported.iter().any(|method| event["method"] == *method);
        self.events.iter().filter(wrong).map(|event| &event["params"]).collect()
    }

    async fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        self.sent += 1;
        let id = self.sent;
        let mut question = json!({"id": id, "method": method, "params": params});
        if !self.session.is_empty() {
            question["sessionId"] = json!(self.session);
        }
        let message = Message::text(question.to_string());
        self.socket.send(message).await.with_context(|| format!("asking the browser for {method}"))?;
        loop {
            if let Some(answer) = self.read().await.with_context(|| format!("waiting for {method}"))?
                && answer["id"] == id
            {
                if let Some(error) = answer.get("error") {
                    bail!("{method}: {error}");
                }
                return Ok(answer["result"].clone());
            }
        }
    }

    /// Reads one message: an event is kept, an answer is returned.
    async fn read(&mut self) -> Result<Option<Value>> {
        let Ok(next) = tokio::time::timeout(DEADLINE, self.socket.next()).await else {
            bail!("the browser says nothing for {DEADLINE:?}");
        };
        let message = next.context("the browser has gone")?.context("reading from the browser")?;
        let Message::Text(text) = message else { return Ok(None) };
        let value: Value = serde_json::from_str(&text).context("reading from the browser")?;
        if value.get("id").is_some() {
            return Ok(Some(value));
        }
        self.events.push(value);
        Ok(None)
    }
}

/// The address of the browser's WebSocket, once the browser has written it.
async fn address(program: &mut Program, file: &Path) -> Result<String> {
    let program = std::sync::Mutex::new(program);
    eventually("the browser to listen", DEADLINE, || async {
        if let Ok(mut program) = program.lock()
            && let Err(error) = program.check()
        {
            return Ok(Progress::Never(format!("{error:#}")));
        }
        let text = fs::read_to_string(file)?;
        Ok(match text.split_once('\n') {
            Some((port, path)) if path.starts_with('/') => {
                Progress::Done(format!("ws://127.0.0.1:{port}{}", path.trim_end()))
            }
            _ => Progress::NotYet(text),
        })
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_of_its_names_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = Some(folder.path().as_os_str());
        assert_eq!(installed(path), None);
        fs::write(folder.path().join("google-chrome"), "").unwrap();
        assert_eq!(installed(path), Some(folder.path().join("google-chrome")));
        fs::write(folder.path().join("chromium"), "").unwrap();
        assert_eq!(installed(path), Some(folder.path().join("chromium")));
        assert_eq!(installed(None), None);
    }
}
