use std::collections::BTreeSet;

use axum::response::IntoResponse as _;
use jiff::Timestamp;
use tokio::net::TcpListener;

use super::super::stand_in::StandIn;
use super::*;
use crate::certs::material::{Material, Renewal, renew};
use crate::certs::server::TlsOptions;
use crate::fake_api::refusing_port;
use crate::serve::Tls;

fn section(endpoint: String) -> config::Tracing {
    config::Tracing { endpoint, ..config::Tracing::default() }
}

fn collector(port: u16) -> Collector {
    Collector::new(&section(format!("http://127.0.0.1:{port}"))).unwrap()
}

/// Sends no spans.
async fn ask(collector: &mut Collector) -> Result<Response<Bytes>, SendError> {
    let request = Request::post(collector.endpoint())
        .header(header::CONTENT_TYPE, "application/x-protobuf")
        .header("x-from-the-environment", "a")
        .body(Bytes::new());
    collector.send(request.unwrap()).await
}

/// Why one request to a collector that answers so came to nothing.
async fn refused(answer: impl Fn() -> Response<Body> + Send + Sync + 'static) -> SendError {
    let stand_in = StandIn::start(None, answer).await;
    ask(&mut collector(stand_in.port)).await.unwrap_err()
}

#[tokio::test]
async fn a_request_is_otlp_over_http_with_the_headers_of_the_file_as_it_is_now() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headers");
    std::fs::write(&file, "# for the gateway\nAuthorization: Bearer one\n\nx-scope-orgid:team-a\r\n")
        .unwrap();
    let stand_in = StandIn::willing().await;
    let mut section = section(format!("http://127.0.0.1:{}/otlp/v1/traces", stand_in.port));
    section.headers_file = file.display().to_string();
    let mut collector = Collector::new(&section).unwrap();
    ask(&mut collector).await.unwrap();
    let asked = stand_in.asked().pop().unwrap();
    let header = |name: &str| asked.headers[name].to_str().unwrap();
    assert_eq!(asked.path, "/otlp/v1/traces");
    assert_eq!(header("content-type"), "application/x-protobuf");
    assert_eq!((header("authorization"), header("x-scope-orgid")), ("Bearer one", "team-a"));
    assert_eq!(header("host"), format!("127.0.0.1:{}", stand_in.port));
    // Only the configuration says what else is sent.
    assert!(!asked.headers.contains_key("x-from-the-environment"));
    // A token that is exchanged is taken at once; one that is broken is an error, not the one before.
    std::fs::write(&file, "authorization: Bearer two").unwrap();
    ask(&mut collector).await.unwrap();
    assert_eq!(stand_in.asked().pop().unwrap().headers["authorization"], "Bearer two");
    std::fs::write(&file, "authorization").unwrap();
    let error = ask(&mut collector).await.unwrap_err();
    assert!(matches!(error, SendError::Settings(SettingsError::Header(1))), "{error}");
}

#[tokio::test]
async fn a_url_without_a_path_means_the_usual_one() {
    let stand_in = StandIn::willing().await;
    ask(&mut collector(stand_in.port)).await.unwrap();
    assert_eq!(stand_in.asked().pop().unwrap().path, "/v1/traces");
}

#[tokio::test]
async fn redirects_are_not_followed_and_huge_answers_not_read() {
    let elsewhere = StandIn::willing().await;
    let location = format!("http://127.0.0.1:{}/v1/traces", elsewhere.port);
    let error = refused(move || (StatusCode::FOUND, [(header::LOCATION, location.clone())]).into_response());
    let error = error.await;
    assert!(matches!(error, SendError::Status { code: StatusCode::FOUND, .. }), "{error}");
    assert!(!error.is_transient() && elsewhere.asked().is_empty());
    let error = refused(|| vec![b'x'; 1 << 20].into_response()).await;
    assert!(matches!(error, SendError::Answer(..)), "{error}");
    let error = refused(|| {
        let long = HeaderValue::from_bytes(&vec![b'x'; 1 << 20]).unwrap();
        ([("x-long", long)], "").into_response()
    });
    let error = error.await;
    assert!(matches!(error, SendError::Http(..)), "{error}");
}

#[tokio::test]
async fn errors_are_distinguished_by_whether_the_same_may_work_later() {
    for (code, transient) in
        [(400, false), (401, false), (404, false), (500, false), (429, true), (503, true)]
    {
        let status = StatusCode::from_u16(code).unwrap();
        let error = refused(move || (status, [(header::RETRY_AFTER, "7")]).into_response()).await;
        assert_eq!(error.is_transient(), transient, "{error}");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    }
    let error =
        refused(|| (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "86400")]).into_response());
    assert_eq!(error.await.retry_after(), Some(MOST_WAIT));
}

#[tokio::test]
async fn a_collector_that_is_down_or_never_answers_is_given_up_on() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    // The system accepts the connection, and nothing is ever read.
    let mut silent = collector(port);
    silent.timeout = Duration::from_millis(50);
    let error = ask(&mut silent).await.unwrap_err();
    assert!(matches!(error, SendError::Timeout(..)) && error.is_transient(), "{error}");
    let (_held, port) = refusing_port();
    let error = ask(&mut collector(port)).await.unwrap_err();
    assert!(matches!(error, SendError::Connect(..)) && error.is_transient(), "{error}");
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
    let stand_in = StandIn::start(Some(Tls::new(config)), || "".into_response()).await;
    let mut section = section(format!("https://localhost:{}", stand_in.port));
    section.ca_file = ca.display().to_string();
    std::fs::write(&ca, &material.ca_bundle).unwrap();
    let mut collector = Collector::new(&section).unwrap();
    ask(&mut collector).await.unwrap();
    std::fs::write(&ca, &other.ca_bundle).unwrap();
    let error = ask(&mut collector).await.unwrap_err();
    assert!(matches!(error, SendError::Connect(..)), "{error}");
    std::fs::write(&ca, &material.ca_bundle).unwrap();
    ask(&mut collector).await.unwrap();
    // By the certificates of the system it is a stranger.
    section.ca_file.clear();
    let error = ask(&mut Collector::new(&section).unwrap()).await.unwrap_err();
    assert!(matches!(error, SendError::Connect(..)), "{error}");
    assert_eq!(stand_in.asked().len(), 2);
}

#[test]
fn settings_that_are_no_good_are_refused_with_their_place() {
    let folder = tempfile::tempdir().unwrap();
    let file = |text: &str| {
        let path = folder.path().join("file");
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let why = |section: &config::Tracing| Collector::new(section).unwrap_err().to_string();
    let mut with_ca = section("https://a".to_owned());
    with_ca.ca_file = "/nowhere/ca.crt".to_owned();
    assert_eq!(why(&with_ca), "tracing.caFile: reading /nowhere/ca.crt");
    for text in ["", "no certificate", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
        with_ca.ca_file = file(text);
        assert!(why(&with_ca).starts_with("tracing.caFile: "), "{text}");
    }
    let mut with_headers = section("http://a".to_owned());
    with_headers.headers_file = folder.path().display().to_string();
    assert!(why(&with_headers).starts_with("tracing.headersFile: reading "));
    for text in ["a: b\nhost: c", "a: b\ncontent-length: 3", "a: b\nno colon", "a: b\n: c", "a: b\nc: \u{7}"]
    {
        with_headers.headers_file = file(text);
        assert!(why(&with_headers).starts_with("tracing.headersFile: line 2 "), "{text:?}");
    }
    assert!(why(&section("https://-".to_owned())).starts_with("tracing.endpoint: "));
}
