//! One request to the collector: OTLP over HTTP/1.1, with or without TLS, each with a connection of its own. The answer is bounded, in bytes and in
//! time, and redirects are not followed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use opentelemetry_otlp::ExporterBuildError;
use rustls::pki_types::{InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sluice_api::config;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::roots;

/// Where spans go on a collector whose URL has no path.
const PATH: &str = "/v1/traces";
/// The timeout of one request, from the connection to the last byte of the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest accepted answer, in bytes: an answer has almost no content.
const MOST_ANSWER: usize = 64 << 10;
/// The headers of an answer.
const MOST_HEADERS: usize = 64;
/// The longest wait that a collector may ask for.
const MOST_WAIT: Duration = Duration::from_secs(30);

/// Why the settings of a collector are no good.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The URL.
    #[error("tracing.endpoint: {0:?} cannot be read")]
    Endpoint(String),
    /// A name that no certificate can have.
    #[error("tracing.endpoint: the host {host:?} is not a valid name for TLS")]
    Host {
        /// The host.
        host: String,
        /// The cause.
        source: InvalidDnsNameError,
    },
    /// A file cannot be read.
    #[error("{field}: reading {}", path.display())]
    File {
        /// The field of the configuration.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The certificates.
    #[error("tracing.caFile: {} has no certificate that can be used", .0.display())]
    Certificates(PathBuf),
    /// A line of the headers.
    #[error(
        "tracing.headersFile: line {0} is not a header of the form `name: value`, or not one that can be set"
    )]
    Header(usize),
    /// TLS.
    #[error("setting up TLS to the collector")]
    Tls(#[from] rustls::Error),
    /// OpenTelemetry's exporter.
    #[error("setting up the exporter of traces")]
    Exporter(#[from] ExporterBuildError),
}

/// Why spans were not taken.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The settings changed, and are unusable now.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// No connection.
    #[error("connecting to {0}")]
    Connect(String, #[source] io::Error),
    /// The conversation failed.
    #[error("talking to {0}")]
    Http(String, #[source] hyper::Error),
    /// The answer was too large, or broke off.
    #[error("reading the answer of {0}")]
    Answer(String, #[source] axum::Error),
    /// Nothing within the time.
    #[error("no answer of {0} within {1:?}")]
    Timeout(String, Duration),
    /// An error status.
    #[error("{place} answers {code}")]
    Status {
        /// The collector.
        place: String,
        /// The HTTP status.
        code: StatusCode,
        /// How long it asks to wait.
        retry_after: Option<Duration>,
    },
}

impl SendError {
    /// Whether the same spans may be taken later, as OTLP says it.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Status { code, .. } => matches!(code.as_u16(), 429 | 502 | 503 | 504),
            _ => true,
        }
    }

    /// How long the collector asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}

/// A file that may be changed while the process runs, and what was made of it.
#[derive(Debug)]
struct Followed<T> {
    field: &'static str,
    path: PathBuf,
    text: Vec<u8>,
    made: T,
}

impl<T> Followed<T> {
    /// Reads it.
    fn open(
        field: &'static str,
        path: &str,
        make: impl FnOnce(&Path, &[u8]) -> Result<T, SettingsError>,
    ) -> Result<Self, SettingsError> {
        let path = PathBuf::from(path);
        let text =
            roots::read(&path).map_err(|source| SettingsError::File { field, path: path.clone(), source })?;
        Ok(Self { field, made: make(&path, &text)?, path, text })
    }

    /// Reads it again.
    fn refresh(
        &mut self,
        make: impl FnOnce(&Path, &[u8]) -> Result<T, SettingsError>,
    ) -> Result<(), SettingsError> {
        let path = || self.path.clone();
        let text = roots::read(&self.path);
        let text = text.map_err(|source| SettingsError::File { field: self.field, path: path(), source })?;
        if text != self.text {
            self.made = make(&self.path, &text)?;
            self.text = text;
        }
        Ok(())
    }
}

/// The TLS of a connection.
#[derive(Debug)]
enum Trust {
    /// Without TLS.
    Plain,
    /// The certificates of the system.
    System(Arc<ClientConfig>, ServerName<'static>),
    /// The certificates of a file.
    File(Followed<Arc<ClientConfig>>, ServerName<'static>),
}

/// A collector.
#[derive(Debug)]
pub struct Collector {
    /// Scheme, host and port, for people.
    place: String,
    host: String,
    port: u16,
    authority: HeaderValue,
    path: String,
    trust: Trust,
    headers: Option<Followed<HeaderMap>>,
    /// The timeout of one request.
    timeout: Duration,
}

impl Collector {
    /// From the configuration.
    ///
    /// # Errors
    /// If a file cannot be read or is unusable: that has to be reported at the start, not by missing traces.
    pub fn new(section: &config::Tracing) -> Result<Self, SettingsError> {
        let wrong = || SettingsError::Endpoint(section.endpoint.clone());
        let uri: Uri = section.endpoint.parse().map_err(|_| wrong())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(wrong());
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let trust = if scheme == "https" {
            let name = ServerName::try_from(host.clone());
            let name = name.map_err(|source| SettingsError::Host { host: host.clone(), source })?;
            if section.ca_file.is_empty() {
                Trust::System(roots::client(roots::system())?, name)
            } else {
                Trust::File(Followed::open("tracing.caFile", &section.ca_file, certificates)?, name)
            }
        } else {
            Trust::Plain
        };
        let headers = Some(section.headers_file.as_str()).filter(|path| !path.is_empty());
        let headers =
            headers.map(|path| Followed::open("tracing.headersFile", path, header_lines)).transpose()?;
        let port = authority.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
        let path = if matches!(uri.path(), "" | "/") { PATH } else { uri.path() }.to_owned();
        let place = format!("{scheme}://{authority}");
        let authority = HeaderValue::from_str(authority.as_str()).map_err(|_| wrong())?;
        Ok(Self { place, host, port, authority, path, trust, headers, timeout: TIMEOUT })
    }

    /// Scheme, host and port.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The whole URL that spans go to.
    pub fn endpoint(&self) -> String {
        format!("{}{}", self.place, self.path)
    }

    /// Sends a request once, and returns the answer, with its whole body.
    ///
    /// # Errors
    /// If its content was not accepted, as far as that is known.
    pub async fn send(&mut self, request: Request<Bytes>) -> Result<Response<Bytes>, SendError> {
        self.refresh()?;
        match tokio::time::timeout(self.timeout, self.talk(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(SendError::Timeout(self.place.clone(), self.timeout)),
        }
    }

    /// Takes in files that changed.
    fn refresh(&mut self) -> Result<(), SettingsError> {
        if let Trust::File(file, _) = &mut self.trust {
            file.refresh(certificates)?;
        }
        self.headers.as_mut().map_or(Ok(()), |headers| headers.refresh(header_lines))
    }

    async fn talk(&self, request: Request<Bytes>) -> Result<Response<Bytes>, SendError> {
        let failed = |why| SendError::Connect(self.place.clone(), why);
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(failed)?;
        let (config, name) = match &self.trust {
            Trust::Plain => return self.ask(stream, request).await,
            Trust::System(config, name) => (config, name),
            Trust::File(file, name) => (&file.made, name),
        };
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name.clone(), stream).await.map_err(failed)?;
        self.ask(stream, request).await
    }

    /// The request as it is sent. Of its headers only the type of the content is kept: what else is sent, the configuration says, and not the
    /// variables of the environment that OpenTelemetry's exporter reads, too.
    fn request(&self, request: Request<Bytes>) -> Request<Body> {
        let (mut parts, body) = request.into_parts();
        // It was validated as the path of a URL.
        parts.uri = self.path.parse().unwrap_or_default();
        let content = parts.headers.remove(header::CONTENT_TYPE);
        let mut headers = self.headers.as_ref().map_or_else(HeaderMap::new, |file| file.made.clone());
        if let Some(content) = content {
            headers.insert(header::CONTENT_TYPE, content);
        }
        headers.insert(header::HOST, self.authority.clone());
        headers.insert(header::USER_AGENT, HeaderValue::from_static("sluice"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        parts.headers = headers;
        Request::from_parts(parts, Body::from(body))
    }

    async fn ask<S>(&self, stream: S, request: Request<Bytes>) -> Result<Response<Bytes>, SendError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let failed = |why| SendError::Http(self.place.clone(), why);
        let mut settings = http1::Builder::new();
        settings.max_buf_size(MOST_ANSWER).max_headers(MOST_HEADERS);
        let (mut sender, conversation) = settings.handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let asking = async {
            let response = sender.send_request(self.request(request)).await.map_err(failed)?;
            let (parts, body) = response.into_parts();
            if !parts.status.is_success() {
                let retry_after = retry_after(&parts.headers);
                return Err(SendError::Status { place: self.place.clone(), code: parts.status, retry_after });
            }
            let answer = axum::body::to_bytes(Body::new(body), MOST_ANSWER).await;
            let answer = answer.map_err(|why| SendError::Answer(self.place.clone(), why))?;
            Ok(Response::from_parts(parts, answer))
        };
        tokio::pin!(asking, conversation);
        let mut open = true;
        loop {
            tokio::select! {
                biased;
                answer = &mut asking => return answer,
                // Its error is returned by the request, too.
                _ = &mut conversation, if open => open = false,
            }
        }
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(MOST_WAIT))
}

fn certificates(path: &Path, text: &[u8]) -> Result<Arc<ClientConfig>, SettingsError> {
    let mut trusted = RootCertStore::empty();
    if !roots::add(&mut trusted, text) {
        return Err(SettingsError::Certificates(path.to_owned()));
    }
    Ok(roots::client(trusted)?)
}

/// One header per line. Empty lines and those that begin with `#` are left out.
fn header_lines(_path: &Path, text: &[u8]) -> Result<HeaderMap, SettingsError> {
    // How the request is sent is not for a file to say.
    let ours = [header::HOST, header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION];
    let mut headers = HeaderMap::new();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let wrong = || SettingsError::Header(at + 1);
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or_else(wrong)?;
        let (name, value) = line.split_at(colon);
        let name = HeaderName::from_bytes(name.trim_ascii()).map_err(|_| wrong())?;
        let mut value = HeaderValue::from_bytes(value[1..].trim_ascii()).map_err(|_| wrong())?;
        value.set_sensitive(true);
        if ours.contains(&name) || headers.len() >= MOST_HEADERS {
            return Err(wrong());
        }
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests;
