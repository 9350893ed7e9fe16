//! One request to an object store or to the server that gives its tokens: HTTP/1.1, with or without TLS, each with a connection of its own. Answers
//! are bounded, in bytes and in time, and redirects are not followed: a signed request is valid for its server alone.
//!
//! The store's last error is kept for messages and for the decision to retry. Of an answer's body only the error code is kept: a store may repeat
//! what was signed, and a token server what it received.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, Uri, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::roots;

/// The timeout of a connection, including TLS.
const CONNECT: Duration = Duration::from_secs(5);
/// The timeout of one request, from the connection to the last byte of the answer: some megabytes on a slow line.
const TIMEOUT: Duration = Duration::from_mins(1);
/// The largest accepted answer, in bytes.
const MOST_ANSWER: usize = 1 << 20;
/// The largest head of an answer, in bytes.
const MOST_HEAD: usize = 64 << 10;
/// The headers of an answer.
const MOST_HEADERS: usize = 100;
/// The longest error code that is shown.
const MOST_CODE: usize = 64;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum AskError {
    /// A URL without a host.
    #[error("the URL has no host")]
    NoHost,
    /// No connection.
    #[error("connecting")]
    Connect(#[source] io::Error),
    /// No connection in time.
    #[error("no connection within {CONNECT:?}")]
    ConnectTimeout,
    /// A file with certificates.
    #[error("journal.store.caFile: {0}")]
    Certificates(String),
    /// TLS.
    #[error("setting up TLS")]
    Tls(#[from] rustls::Error),
    /// The conversation failed.
    #[error("talking")]
    Http(#[from] hyper::Error),
    /// The answer was too large, or broke off.
    #[error("reading the answer")]
    Answer(#[source] axum::Error),
    /// Nothing within the time.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
}

/// The outcome of the last request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// The method and the address.
    pub asked: String,
    /// The status, and the error code of the body; or why there is no answer.
    pub answer: Result<(u16, String), String>,
}

impl Said {
    /// Whether it was refused, so that the same is refused again unless someone changes something.
    pub fn is_refused(&self) -> bool {
        matches!(self.answer, Ok((status, _)) if (300..500).contains(&status) && !matches!(status, 408 | 425 | 429))
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.answer {
            Ok((status @ 200..300, _)) => write!(f, "{}: {status} with an answer of no use", self.asked),
            Ok((status, code)) if code.is_empty() => write!(f, "{}: {status}", self.asked),
            Ok((status, code)) => write!(f, "{}: {status} {code}", self.asked),
            Err(why) => write!(f, "{}: {why}", self.asked),
        }
    }
}

/// Sends requests. Clones share what was said last.
#[derive(Clone, Debug)]
pub(super) struct Client {
    /// The certificates of the system.
    system: Arc<RootCertStore>,
    /// The file of further trusted certificates.
    ca_file: Option<PathBuf>,
    pub(super) timeout: Duration,
    /// Where all hosts are, in tests.
    pub(super) all_at: Option<u16>,
    last: Arc<Mutex<Option<Said>>>,
}

impl Client {
    /// # Errors
    /// If the certificates are unusable: that has to be reported at the start.
    pub fn new(ca_file: &str) -> Result<Self, String> {
        let ca_file = Some(ca_file).filter(|path| !path.is_empty()).map(PathBuf::from);
        let system = Arc::new(roots::system());
        let client = Self { system, ca_file, timeout: TIMEOUT, all_at: None, last: Arc::default() };
        client.trust().map_err(|error| error.to_string())?;
        Ok(client)
    }

    /// Takes what was said last.
    pub fn take_said(&self) -> Option<Said> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The TLS configuration of one connection. Requests are rare: reading the file for each costs less than watching it.
    fn trust(&self) -> Result<Arc<ClientConfig>, AskError> {
        let mut trusted = RootCertStore::clone(&self.system);
        if let Some(path) = &self.ca_file {
            let wrong = |why: String| AskError::Certificates(format!("{}: {why}", path.display()));
            let text = roots::read(path).map_err(|error| wrong(error.to_string()))?;
            if !roots::add(&mut trusted, &text) {
                return Err(wrong("no certificate that can be used".to_owned()));
            }
        }
        Ok(roots::client(trusted)?)
    }

    async fn ask(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let asked = place(request.method(), request.uri());
        let answer = match tokio::time::timeout(self.timeout, self.talk(request)).await {
            Ok(answer) => answer,
            Err(_) => Err(AskError::Timeout(self.timeout)),
        };
        let said = match &answer {
            Ok((status, _, body)) => Ok((*status, code_of(*status, body))),
            Err(error) => Err(sluice_client::error_chain::Chain(error).to_string()),
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Said { asked, answer: said });
        match answer {
            Ok((_, response, body)) => Ok(response.map(|()| body.into())),
            // The kind of error does not matter: no layer below retries.
            Err(error) => Err(HttpError::new(HttpErrorKind::Unknown, error)),
        }
    }

    async fn talk(&self, request: HttpRequest) -> Result<Answer, AskError> {
        let uri = request.uri().clone();
        let authority = uri.authority().ok_or(AskError::NoHost)?;
        let is_tls = uri.scheme_str() == Some("https");
        let request = for_server(request, authority, is_tls);
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let connecting = async {
            let to = self.all_at.map_or_else(|| (host.clone(), port), |port| ("127.0.0.1".to_owned(), port));
            TcpStream::connect(to).await.map_err(AskError::Connect)
        };
        let in_time = |_| AskError::ConnectTimeout;
        let stream = tokio::time::timeout(CONNECT, connecting).await.map_err(in_time)??;
        if !is_tls {
            return converse(stream, request).await;
        }
        let name = ServerName::try_from(host).map_err(|_| AskError::NoHost)?;
        let connector = TlsConnector::from(self.trust()?);
        let greeting = tokio::time::timeout(CONNECT, connector.connect(name, stream));
        converse(greeting.await.map_err(in_time)?.map_err(AskError::Connect)?, request).await
    }
}

impl HttpService for Client {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.ask(request))
    }
}

impl HttpConnector for Client {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

/// The status, the answer, and its body.
type Answer = (u16, axum::http::Response<()>, Bytes);

/// The request as it is sent: with the path only, the host as it was signed, and an end of the connection.
fn for_server(mut request: HttpRequest, authority: &Authority, is_tls: bool) -> HttpRequest {
    let usual = if is_tls { 443 } else { 80 };
    let host = match authority.port_u16() {
        Some(port) if port != usual => format!("{}:{port}", authority.host()),
        _ => authority.host().to_owned(),
    };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().unwrap_or_default();
    let headers = request.headers_mut();
    if let Ok(host) = HeaderValue::from_str(&host) {
        headers.insert(header::HOST, host);
    }
    headers.insert(header::USER_AGENT, HeaderValue::from_static("sluice"));
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    request
}

async fn converse<S>(stream: S, request: HttpRequest) -> Result<Answer, AskError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let mut settings = http1::Builder::new();
    settings.max_buf_size(MOST_HEAD).max_headers(MOST_HEADERS);
    let (mut sender, conversation) = settings.handshake(TokioIo::new(stream)).await?;
    let asking = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(Body::new(body), MOST_ANSWER).await.map_err(AskError::Answer)?;
        Ok((status, axum::http::Response::from_parts(parts, ()), body))
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

/// The method and address of a request, without the query: it may contain signatures.
fn place(method: &Method, uri: &Uri) -> String {
    let authority = uri.authority().map(Authority::as_str).unwrap_or_default();
    format!("{method} {}://{authority}{}", uri.scheme_str().unwrap_or_default(), uri.path())
}

/// The error code in the body of an answer, as all three stores have it.
fn code_of(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let found = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    let code = found.map(|(code, _)| code).unwrap_or_default();
    let is_code = code.len() <= MOST_CODE && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if status >= 300 && is_code { code.to_owned() } else { String::new() }
}
