//! Sending, against servers of the test's own. tests/tests/operator/journal.rs tests signatures as a real store checks them.

mod passes;

use std::collections::BTreeSet;
use std::sync::Mutex;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use jiff::Timestamp;
use sluice_api::config::JournalStore;
use tokio::net::TcpListener;

use super::*;
use crate::certs::material::{Material, Renewal, renew};
use crate::certs::server::TlsOptions;
use crate::fake_api::refusing_port;
use crate::metrics::{self, registry::Role};
use crate::serve::connections::Patience;
use crate::serve::{Bounds, Tls, serve};
use crate::shutdown::{Stopper, pair};
use crate::supervise::tests::supervisor;

const SECRET: &str = "geheim-wJalrXUtnFEMI";
const TAG: [(header::HeaderName, &str); 1] = [(header::ETAG, "\"1\"")];
const NAME: &str = "pod-1.00000000.jsonl";

const MODIFIED: (header::HeaderName, &str) = (header::LAST_MODIFIED, "Wed, 21 Oct 2015 07:28:00 GMT");

/// One request.
#[derive(Clone, Debug)]
struct Asked {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Asked {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    fn line(&self) -> String {
        format!("{} {}", self.method, self.uri)
    }
}

type Answers = Arc<dyn Fn(&Asked) -> Response + Send + Sync>;

/// A store until it is dropped.
struct StandIn {
    port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
    _stopper: Stopper,
}

impl StandIn {
    #[expect(clippy::disallowed_methods, reason = "a test ends with its tasks")]
    async fn start(tls: Option<Tls>, answer: impl Fn(&Asked) -> Response + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let state: (Arc<Mutex<Vec<Asked>>>, Answers) = (Arc::clone(&asked), Arc::new(answer));
        let layer = axum::extract::DefaultBodyLimit::disable();
        let router = Router::new().fallback(take_in).layer(layer).with_state(state);
        let (stopper, stop) = pair();
        let bounds = Bounds { connections: 16, patience: Patience::default() };
        tokio::spawn(serve(listener, tls, router, bounds, stop));
        Self { port, asked, _stopper: stopper }
    }

    async fn answering(status: StatusCode, body: &'static str) -> Self {
        Self::start(None, move |_| (status, TAG, body).into_response()).await
    }

    fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }
}

async fn take_in(
    State((asked, answer)): State<(Arc<Mutex<Vec<Asked>>>, Answers)>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let one = Asked { method, uri, headers, body };
    asked.lock().unwrap().push(one.clone());
    answer(&one)
}

/// A folder, and what sends its files.
struct Bed {
    folder: tempfile::TempDir,
    registry: Arc<Registry>,
    sender: Sender,
}

impl Bed {
    fn new(store: &JournalStore, change: impl FnOnce(&mut Client)) -> Self {
        let variables = [
            ("AWS_ACCESS_KEY_ID", "AKID"),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            ("AWS_ENDPOINT_URL_S3", "http://elsewhere"),
            // In base 64.
            ("AZURE_STORAGE_ACCOUNT_KEY", "Z2VoZWltLXdKYWxyWFV0bkZFTUk="),
        ];
        let variables: Variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let mut client = Client::new(&store.ca_file).unwrap();
        change(&mut client);
        let registry = Arc::new(Registry::new(metrics::definitions(&[]), Role::Leader).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let sender = Sender {
            folder: folder.path().to_owned(),
            url: store.url.clone(),
            target: Target::new(store, client, &variables).unwrap(),
            registry: Arc::clone(&registry),
            patience: Duration::ZERO,
            failing: None,
            settled: BTreeMap::new(),
        };
        Self { folder, registry, sender }
    }

    /// For a store that speaks S3's protocol.
    fn amazon(port: u16) -> Self {
        Self::new(&amazon(port), |_| {})
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    async fn send(&mut self) -> Result<(), SendError> {
        self.sender.send(NAME).await.map(|_| ())
    }

    /// Why a file is not sent, to a store that answers so.
    async fn why(port: u16) -> SendError {
        let mut bed = Self::amazon(port);
        bed.write(NAME, "{}\n");
        bed.send().await.unwrap_err()
    }

    fn counted(&self, line: &str) -> bool {
        self.registry.text().lines().any(|found| found == line)
    }
}

fn amazon(port: u16) -> JournalStore {
    let endpoint = format!("http://127.0.0.1:{port}");
    JournalStore { url: "s3://bucket/sluice/prod".to_owned(), endpoint, ..JournalStore::default() }
}

#[tokio::test]
async fn a_file_is_sent_once_under_its_name_and_never_over_another() {
    let store = StandIn::answering(StatusCode::OK, "").await;
    let mut bed = Bed::amazon(store.port);
    bed.write(NAME, "{}\n{}\n");
    bed.write("notes.txt", "x");
    assert_eq!(bed.sender.send_all().await, Ok(()));
    let asked = store.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].line(), format!("PUT /bucket/sluice/prod/{NAME}"));
    assert_eq!((asked[0].header("if-none-match"), &asked[0].body[..]), ("*", &b"{}\n{}\n"[..]));
    assert!(asked[0].header("authorization").starts_with("AWS4-HMAC-SHA256 Credential=AKID/"));
    assert_eq!(asked[0].header("host"), format!("127.0.0.1:{}", store.port));
    assert!(bed.counted("sluice_journal_files_stored_total 1"), "{}", bed.registry.text());
    // It stays in the folder, and is not sent again.
    assert_eq!(bed.sender.send_all().await, Ok(()));
    assert!(store.asked().is_empty() && bed.folder.path().join(NAME).exists());
}

#[tokio::test]
async fn a_file_that_is_written_to_is_not_sent_before_it_is_closed() {
    let store = StandIn::answering(StatusCode::OK, "").await;
    let mut bed = Bed::amazon(store.port);
    bed.write(NAME, "{}\n");
    let open = File::options().append(true).open(bed.folder.path().join(NAME)).unwrap();
    open.lock().unwrap();
    assert_eq!(bed.sender.send_all().await, Ok(()));
    assert!(store.asked().is_empty());
    // As when its process was killed.
    drop(open);
    assert_eq!(bed.sender.send_all().await, Ok(()));
    assert_eq!(store.asked().len(), 1);
}

/// A store that has an object of this size under the name of the file.
async fn having(size: usize) -> StandIn {
    StandIn::start(None, move |asked| {
        let is_it = asked.uri.path().ends_with(NAME);
        match asked.method {
            Method::PUT if is_it => StatusCode::PRECONDITION_FAILED.into_response(),
            Method::HEAD if is_it => ([TAG[0].clone(), MODIFIED], vec![b'x'; size]).into_response(),
            _ => (TAG, "").into_response(),
        }
    })
    .await
}

#[tokio::test]
async fn an_object_of_the_same_size_is_the_file_and_one_of_another_size_stays_beside_it() {
    let store = having(3).await;
    let mut bed = Bed::amazon(store.port);
    bed.write(NAME, "{}\n");
    bed.send().await.unwrap();
    let lines: Vec<_> = store.asked().iter().map(Asked::line).collect();
    let own = format!("/bucket/sluice/prod/{NAME}");
    assert_eq!(lines, [format!("PUT {own}"), format!("HEAD {own}")]);

    let store = having(2).await;
    let mut bed = Bed::amazon(store.port);
    bed.write(NAME, "{}\n");
    bed.send().await.unwrap();
    let last = store.asked().pop().unwrap();
    assert_eq!(last.line(), "PUT /bucket/sluice/prod/pod-1.00000000-3.jsonl");
    assert_eq!(last.header("if-none-match"), "*");
}

#[tokio::test]
async fn a_refusal_is_said_by_its_code_and_nothing_that_is_secret() {
    let body = "<Error><Code>SignatureDoesNotMatch</Code><StringToSign>geheim</StringToSign></Error>";
    let store = StandIn::answering(StatusCode::FORBIDDEN, body).await;
    let mut bed = Bed::amazon(store.port);
    bed.write(NAME, "{}\n");
    let why = bed.send().await.unwrap_err();
    assert!(matches!(why, SendError::Refused(_)));
    let place = format!("PUT http://127.0.0.1:{}/bucket/sluice/prod/{NAME}", store.port);
    assert_eq!(why.to_string(), format!("{place}: 403 SignatureDoesNotMatch"));
    assert!(!format!("{why:?} {:?}", bed.sender.target).contains(SECRET));
    assert_eq!(bed.sender.send_all().await, Err(Failure::Refused));
    assert_eq!(bed.sender.failing, Some(Failure::Refused));
    assert!(
        bed.counted("sluice_journal_store_failures_total{reason=\"refused\"} 1"),
        "{}",
        bed.registry.text()
    );
    assert!(bed.folder.path().join(NAME).exists());
}

#[tokio::test]
async fn answers_are_distinguished_by_whether_the_same_may_work_later() {
    for (code, refused) in [
        (400, true),
        (401, true),
        (403, true),
        (404, true),
        (301, true),
        (408, false),
        (429, false),
        (500, false),
        (503, false),
    ] {
        let store = StandIn::answering(StatusCode::from_u16(code).unwrap(), "").await;
        let why = Bed::why(store.port).await;
        assert_eq!(matches!(why, SendError::Refused(_)), refused, "{code}: {why}");
        assert!(why.to_string().ends_with(&format!(": {code}")), "{why}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed_and_huge_answers_not_read() {
    let elsewhere = StandIn::answering(StatusCode::OK, "").await;
    let location = format!("http://127.0.0.1:{}/", elsewhere.port);
    let store = StandIn::start(None, move |_| {
        (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, location.clone())]).into_response()
    });
    assert!(matches!(Bed::why(store.await.port).await, SendError::Refused(_)));
    assert!(elsewhere.asked().is_empty());
    let store = StandIn::start(None, |_| vec![b'x'; 2 << 20].into_response()).await;
    assert!(matches!(Bed::why(store.port).await, SendError::Unavailable(_)));
}

#[tokio::test]
async fn a_store_that_never_answers_or_is_not_there_is_given_up_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // The system accepts the connection, and nothing is ever read.
    let mut bed = Bed::new(&amazon(port), |client| client.timeout = Duration::from_millis(50));
    bed.write(NAME, "{}\n");
    let why = bed.send().await.unwrap_err();
    assert!(matches!(&why, SendError::Unavailable(why) if why.ends_with("no answer within 50ms")), "{why}");
    let (_held, port) = refusing_port();
    let why = Bed::why(port).await;
    assert!(matches!(&why, SendError::Unavailable(why) if why.contains("connecting")), "{why}");
}

#[tokio::test]
async fn what_was_stored_without_an_answer_is_found_there() {
    // The first request is carried out, and the connection closed with half an answer; the next ones find the object.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut bed = Bed::amazon(port);
    bed.write(NAME, "{}\n");
    let closing = async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut read = vec![0; 4096];
        let _ = stream.read(&mut read).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n").await.unwrap();
    };
    let (sent, ()) = tokio::join!(bed.sender.send(NAME), closing);
    let why = sent.unwrap_err();
    assert!(matches!(why, SendError::Unavailable(_)), "{why}");
    assert_eq!(files::unsent(bed.folder.path()).unwrap().len(), 1);
    let store = having(3).await;
    let mut again = Bed::amazon(store.port);
    std::mem::swap(&mut again.folder, &mut bed.folder);
    again.sender.folder = again.folder.path().to_owned();
    again.send().await.unwrap();
    assert_eq!(files::unsent(again.folder.path()).unwrap(), []);
}

#[tokio::test]
async fn a_certificate_is_checked_against_the_file_as_it_is_now() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.crt");
    let names = BTreeSet::from(["localhost".to_owned()]);
    let made = || renew(&Material::default(), Renewal::RenewAll, &names, Timestamp::now()).unwrap();
    let (material, other) = (made(), made());
    let config = TlsOptions::default().server(material.cert.as_bytes(), material.key.as_bytes()).unwrap();
    let store = StandIn::start(Some(Tls::new(config)), |_| (TAG, "").into_response()).await;
    std::fs::write(&ca, &other.ca_bundle).unwrap();
    let (endpoint, ca_file) = (format!("https://localhost:{}", store.port), ca.display().to_string());
    let mut bed = Bed::new(&JournalStore { endpoint, ca_file, ..amazon(store.port) }, |_| {});
    bed.write(NAME, "{}\n");
    assert!(matches!(bed.send().await, Err(SendError::Unavailable(_))));
    std::fs::write(&ca, &material.ca_bundle).unwrap();
    bed.send().await.unwrap();
    assert_eq!(store.asked().len(), 1);
    std::fs::write(&ca, "nothing").unwrap();
    assert!(Client::new(&ca.display().to_string()).unwrap_err().contains("journal.store.caFile"));
}

/// A stand-in for Google: what it is asked is compared with its documentation, as no part of it runs outside of Google.
/// Token: <https://cloud.google.com/compute/docs/access/authenticate-workloads>; not over an object that exists:
/// <https://cloud.google.com/storage/docs/xml-api/reference-headers#xgoogifgenerationmatch>.
#[tokio::test]
async fn google_is_asked_for_a_token_of_the_pods_service_account_and_then_takes_the_file() {
    let google = StandIn::start(None, |asked| {
        if asked.header("host").starts_with("metadata") {
            r#"{"access_token":"geheim-token","expires_in":3599,"token_type":"Bearer"}"#.into_response()
        } else {
            ([(header::ETAG, "\"1\""), (header::CONTENT_TYPE, "text/plain")], "").into_response()
        }
    })
    .await;
    let endpoint = "http://storage.example".to_owned();
    let store = JournalStore { url: "gs://bucket/path".to_owned(), endpoint, ..JournalStore::default() };
    let mut bed = Bed::new(&store, |client| client.all_at = Some(google.port));
    bed.write(NAME, "{}\n");
    bed.send().await.unwrap();
    let asked = google.asked();
    let token = "/computeMetadata/v1/instance/service-accounts/default/token";
    assert_eq!(asked[0].uri.path(), token);
    assert_eq!(asked[0].header("metadata-flavor"), "Google");
    // Google takes names as they are and with such characters encoded.
    let line = asked[1].line().replace("%2F", "/").replace("%2D", "-").replace("%2E", ".");
    assert_eq!(line, format!("PUT /bucket/path/{NAME}"));
    assert_eq!(asked[1].header("authorization"), "Bearer geheim-token");
    assert_eq!((asked[1].header("x-goog-if-generation-match"), asked.len()), ("0", 2));
}

/// A stand-in for Azure: <https://learn.microsoft.com/en-us/rest/api/storageservices/put-blob>.
#[tokio::test]
async fn azure_takes_a_file_as_a_block_blob_signed_with_the_accounts_key() {
    let azure = StandIn::start(None, |_| (StatusCode::CREATED, TAG, "").into_response()).await;
    let endpoint = format!("http://127.0.0.1:{}", azure.port);
    let store =
        JournalStore { url: "az://account/container/path".to_owned(), endpoint, ..JournalStore::default() };
    let mut bed = Bed::new(&store, |_| {});
    bed.write(NAME, "{}\n");
    bed.send().await.unwrap();
    let asked = azure.asked();
    assert_eq!(asked[0].line(), format!("PUT /container/path/{NAME}"));
    assert!(asked[0].header("authorization").starts_with("SharedKey account:"));
    assert_eq!((asked[0].header("x-ms-blob-type"), asked[0].header("if-none-match")), ("BlockBlob", "*"));
}

#[tokio::test]
async fn keys_that_cannot_be_used_are_an_error_at_the_start_that_does_not_show_them() {
    let cases = [
        ("s3://bucket", "AWS_ACCESS_KEY_ID", "geheim"),
        ("gs://bucket", "GOOGLE_SERVICE_ACCOUNT_KEY", "\"geheim\""),
        ("gs://bucket", "GOOGLE_SERVICE_ACCOUNT", "/nowhere/key.json"),
        ("az://account/container", "AZURE_STORAGE_ACCOUNT_KEY", "ge heim"),
    ];
    for (url, key, value) in cases {
        let store = JournalStore { url: url.to_owned(), ..JournalStore::default() };
        let variables = vec![(key.to_owned(), value.to_owned())];
        let error = Target::new(&store, Client::new("").unwrap(), &variables).unwrap_err().to_string();
        assert!(error.contains(url) && !error.contains("heim"), "{error}");
    }
}

#[tokio::test]
async fn no_variable_says_where_the_store_is() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let giver = r#"{"access_token":"geheim-token","expires_in":3599,"token_type":"Bearer"}"#;
    let store = StandIn::answering(StatusCode::OK, giver).await;
    let elsewhere = "http://elsewhere.example";
    let variables = [
        ("GOOGLE_BASE_URL", elsewhere),
        ("AZURE_STORAGE_ACCOUNT_KEY", "Z2VoZWltLXdKYWxyWFV0bkZFTUk="),
        ("AZURE_STORAGE_ENDPOINT", elsewhere),
        ("AZURE_ENDPOINT", elsewhere),
        ("AZURE_STORAGE_USE_EMULATOR", "true"),
        ("AWS_ACCESS_KEY_ID", "AKID"),
        ("AWS_SECRET_ACCESS_KEY", SECRET),
        ("AWS_ENDPOINT_URL", elsewhere),
        ("AWS_ENDPOINT_URL_S3", elsewhere),
    ];
    let variables: Variables = variables.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    for (url, place) in [
        ("gs://bucket", "https://storage.googleapis.com/bucket/"),
        ("az://account/container", "https://account.blob.core.windows.net/container/"),
        ("s3://bucket", "https://s3.us-east-1.amazonaws.com/bucket/"),
    ] {
        let section = JournalStore { url: url.to_owned(), ..JournalStore::default() };
        let mut client = Client::new("").unwrap();
        client.all_at = Some(store.port);
        let target = Target::new(&section, client, &variables).unwrap();
        let file = tempfile::tempfile().unwrap();
        file.set_len(3).unwrap();
        // The stand-in has no certificate.
        let why = target.send(NAME, file).await.unwrap_err().to_string();
        assert!(why.starts_with(&format!("PUT {place}")), "{why}");
    }
}

/// Waits for a state.
async fn until(what: &str, is_reached: impl Fn() -> bool) {
    let waiting = async {
        while !is_reached() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_mins(1), waiting).await.is_ok(), "{what}");
}

#[tokio::test]
async fn a_store_that_comes_back_gets_everything_and_the_end_waits_for_what_is_left() {
    let is_up = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let up = Arc::clone(&is_up);
    let store = StandIn::start(None, move |_| {
        let is_up = up.load(std::sync::atomic::Ordering::Relaxed);
        let status = if is_up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, TAG, "").into_response()
    })
    .await;
    let bed = Bed::amazon(store.port);
    let (supervisor, mut fatal, _stopper) = supervisor();
    bed.write(NAME, "{}\n");
    bed.write("pod-1.00000001.jsonl", "{}\n");
    let (closed, hears) = watch::channel(());
    let folder = bed.folder.path().to_owned();
    let sending = bed.sender.run(hears, Backoff::millis(5, 60_000));
    let task = supervisor.spawn_finite("store of the journal", sending);
    let failed = |text: &str| text.contains("sluice_journal_store_failures_total{reason=\"unavailable\"} 3");
    until("three failures", || failed(&bed.registry.text())).await;
    is_up.store(true, std::sync::atomic::Ordering::Relaxed);
    until("both files to be sent", || files::unsent(&folder).unwrap().is_empty()).await;
    std::fs::write(folder.join("pod-1.00000002.jsonl"), "{}\n").unwrap();
    drop(closed);
    task.await.unwrap();
    assert_eq!(files::unsent(&folder).unwrap(), []);
    assert!(bed.registry.text().contains("sluice_journal_files_stored_total 3"), "{}", bed.registry.text());
    assert!(fatal.try_recv().is_err());
}
