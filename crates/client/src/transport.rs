//! The connections to the API server: those of kube's own client, except that one whose other end is gone without notice ends within seconds. The
//! node of an API server that loses power, or a load balancer that forgets its connections, answers nothing any more, while new connections work at
//! once: requests on the old ones would each wait for their own time limit, and watches would see nothing new for minutes. And each request is sent
//! at once, as Go's clients do it: the first on a new connection would wait until the other end has acknowledged the handshake, which may take 40 ms.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::Builder;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::GaiResolver;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ConfigExt as _};
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use crate::requests::{Counted, Requests};

/// After this time without a sign of the other end the kernel asks whether it is still there, and asks again as often.
const PROBE: Duration = Duration::from_secs(5);
/// After this time without a sign of the other end, while one is due, the connection ends: before a write is given up (15 s), which would be taken for
/// a sign of an overloaded server.
const DEAD: Duration = Duration::from_secs(10);
/// How often the kernel asks, where it knows no [`DEAD`].
const PROBES: u32 = 2;
/// How long a connection is kept for the next request.
const IDLE: Duration = Duration::from_secs(15);

/// Builds a client as [`Client::try_from`] does for a configuration without a proxy and without repeats of its own, which counts its requests.
///
/// # Errors
/// If the certificates, keys or credentials are not usable.
pub(crate) fn client(config: &Config, requests: Requests) -> kube::Result<Client> {
    let tcp = connector(GaiResolver::new(), config.connect_timeout);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let mut connections = Builder::new(TokioExecutor::new());
    connections.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new());
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections.build::<_, Body>(connector));
    Ok(Client::new(Counted::new(service, requests), config.default_namespace.clone()))
}

/// What opens connections. The addresses of a name share the time, so that one that does not answer leaves some of it to the next.
fn connector<R>(addresses: R, timeout: Option<Duration>) -> HttpConnector<R> {
    let mut connector = HttpConnector::new_with_resolver(addresses);
    connector.set_connect_timeout(timeout);
    // TLS is a layer above.
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_keepalive(Some(PROBE));
    connector.set_keepalive_interval(Some(PROBE));
    connector.set_keepalive_retries(Some(PROBES));
    #[cfg(target_os = "linux")]
    connector.set_tcp_user_timeout(Some(DEAD));
    connector
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    async fn listening() -> (TcpListener, Config) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/base", listener.local_addr().unwrap());
        let mut config = Config::new(url.parse().unwrap());
        config.root_cert = Some(Vec::new());
        config.default_retry = false;
        (listener, config)
    }

    async fn ask(config: &Config) -> kube::Result<Value> {
        let client = client(config, Requests::default()).unwrap();
        client.request(http::Request::get("/version").body(Vec::new()).unwrap()).await
    }

    /// The kernel's timer of a connection: `02` is that of the probes.
    #[cfg(target_os = "linux")]
    fn timer(from: SocketAddr, to: SocketAddr) -> String {
        let connections = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
        let ends = [from, to].map(|end| format!(":{:04X}", end.port()));
        let mut lines = connections.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line =
            lines.find(|line| line.len() > 5 && line[1].ends_with(&ends[0]) && line[2].ends_with(&ends[1]));
        line.unwrap()[5].split(':').next().unwrap().to_owned()
    }

    #[tokio::test]
    async fn requests_are_made_as_the_configuration_says_on_connections_that_are_probed() {
        let (listener, mut config) = listening().await;
        config.auth_info.token = Some("secret".to_owned().into());
        config.auth_info.impersonate = Some("eve".to_owned());
        let server = async {
            let (mut stream, peer) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{\"a\": 1}").await.unwrap();
            (String::from_utf8(head).unwrap().to_lowercase(), stream, peer)
        };
        let requests = Requests::default();
        let client = client(&config, requests.clone()).unwrap();
        let request = http::Request::get("/version").body(Vec::new()).unwrap();
        let (answer, (head, _stream, peer)) = tokio::join!(client.request::<Value>(request), server);
        assert_eq!(answer.unwrap(), json!({"a": 1}));
        assert_eq!(requests.totals(), [((Some(200), "GET".to_owned()), 1.0)].into());
        assert!(head.starts_with("get /base/version http/1.1\r\n"), "{head}");
        for header in ["authorization: bearer secret\r\n", "impersonate-user: eve\r\n"] {
            assert!(head.contains(header), "{head}");
        }
        #[cfg(target_os = "linux")]
        assert_eq!(timer(peer, listener.local_addr().unwrap()), "02", "the idle connection is probed");
        #[cfg(not(target_os = "linux"))]
        let _: SocketAddr = peer;
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_whose_other_end_is_gone_ends_before_a_request_on_it_gives_up() {
        use tower::ServiceExt as _;

        let (_listener, config) = listening().await;
        let stream = connector(GaiResolver::new(), None).oneshot(config.cluster_url).await.unwrap();
        let socket = socket2::SockRef::from(stream.inner());
        assert!(socket.keepalive().unwrap());
        let times = [socket.tcp_keepalive_time().unwrap(), socket.tcp_keepalive_interval().unwrap()];
        assert_eq!(times, [PROBE, PROBE]);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), PROBES);
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(DEAD));
    }

    #[tokio::test]
    async fn what_is_sent_does_not_wait_until_the_other_end_has_acknowledged_what_was_before() {
        use tower::ServiceExt as _;

        let (_listener, config) = listening().await;
        let stream = connector(GaiResolver::new(), None).oneshot(config.cluster_url).await.unwrap();
        assert!(stream.inner().nodelay().unwrap());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next_one_of_the_name() {
        use hyper_util::client::legacy::connect::dns::Name;
        use tower::ServiceExt as _;

        // Its queue is full: the kernel drops what else asks for a connection.
        let silent = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        silent.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        silent.listen(0).unwrap();
        let silent = (silent.local_addr().unwrap().as_socket().unwrap(), silent);
        let _queued = std::net::TcpStream::connect(silent.0).unwrap();
        let (listener, _) = listening().await;
        let addresses = [silent.0, listener.local_addr().unwrap()];
        let resolver =
            tower::service_fn(move |_: Name| std::future::ready(Ok::<_, BoxError>(addresses.into_iter())));
        let connector = connector(resolver, Some(Duration::from_secs(4)));
        // Without a port in the URL, those of the addresses are used.
        let stream = connector.oneshot("http://api.example".parse().unwrap()).await.unwrap();
        assert_eq!(stream.inner().peer_addr().unwrap(), addresses[1]);
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_is_waited_for_as_long_as_the_configuration_says() {
        let (_listener, mut config) = listening().await;
        config.read_timeout = Some(Duration::from_millis(20));
        let error = ask(&config).await.unwrap_err();
        assert!(matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_)), "{error}");
    }
}
