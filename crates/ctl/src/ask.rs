//! One request to a manager's loopback port: an HTTP GET over a stream.

use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// An explanation is made within a minute, or not at all.
const PATIENCE: Duration = Duration::from_secs(90);
/// More than this is no explanation.
const MOST: u64 = 16 << 20;

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: String,
}

/// Sends a GET for a path, and reads the answer to its end.
///
/// # Errors
///
/// If the stream breaks, the answer takes more than 90 s, or it is not HTTP.
pub async fn get<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    host: &str,
    path: &str,
) -> anyhow::Result<Reply> {
    // HTTP/1.0: its answers end with the connection and come in one piece.
    let request = format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let asking = async {
        stream.write_all(request.as_bytes()).await.context("asking the manager")?;
        stream.flush().await.context("asking the manager")?;
        let mut answer = Vec::new();
        stream.take(MOST).read_to_end(&mut answer).await.context("reading the manager's answer")?;
        anyhow::Ok(answer)
    };
    let Ok(answer) = tokio::time::timeout(PATIENCE, asking).await else {
        bail!("the manager did not answer within {PATIENCE:?}");
    };
    reply(&String::from_utf8_lossy(&answer?))
}

fn reply(answer: &str) -> anyhow::Result<Reply> {
    let (head, body) = answer.split_once("\r\n\r\n").context("the manager's answer is not HTTP")?;
    let status = head.split_whitespace().nth(1).and_then(|code| code.parse().ok());
    let status = status.context("the manager's answer has no status")?;
    Ok(Reply { status, body: body.to_owned() })
}

/// Opens a connection to `http://host:port`; gives the host to name in the request.
///
/// # Errors
///
/// If the URL is not of this form or has a path, or the host does not take the connection.
pub async fn connect(url: &str) -> anyhow::Result<(TcpStream, String)> {
    let host = host_of(url)?;
    let stream = TcpStream::connect(&host).await.with_context(|| format!("connecting to {host}"))?;
    Ok((stream, host))
}

fn host_of(url: &str) -> anyhow::Result<String> {
    let Some(rest) = url.strip_prefix("http://") else {
        bail!("expected a URL like http://127.0.0.1:8081, found {url}");
    };
    let host = rest.trim_end_matches('/');
    if host.is_empty() || host.contains('/') {
        bail!("expected a URL without a path, found {url}");
    }
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    Ok(if has_port { host.to_owned() } else { format!("{host}:80") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_host_and_a_port() {
        assert_eq!(host_of("http://127.0.0.1:8081/").unwrap(), "127.0.0.1:8081");
        assert_eq!(host_of("http://manager").unwrap(), "manager:80");
        for wrong in ["https://a", "a:1", "http://", "http://a/b"] {
            assert!(host_of(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_question_is_answered_with_status_and_body() {
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let served = tokio::spawn(async move {
            let mut request = [0; 256];
            let read = theirs.read(&mut request).await.unwrap();
            theirs.write_all(b"HTTP/1.0 404 Not Found\r\nx: y\r\n\r\nnothing\n").await.unwrap();
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        let reply = get(ours, "localhost", "/debug/x?y=z").await.unwrap();
        assert_eq!(reply, Reply { status: 404, body: "nothing\n".to_owned() });
        assert!(served.await.unwrap().starts_with("GET /debug/x?y=z HTTP/1.0\r\nHost: localhost\r\n"));
        assert!(reply_is_wrong("nonsense"));
    }

    fn reply_is_wrong(answer: &str) -> bool {
        super::reply(answer).is_err()
    }
}
