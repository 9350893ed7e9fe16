//! A **stand-in** for an API server that forwards ports: the test control plane has no kubelet, which does that in a cluster.
//!
//! It answers a few GETs with documents, and speaks the WebSocket protocol of `pods/portforward` (`v4.channel.k8s.io`): of each port the
//! even channel has the bytes and the odd one the error, and the first message of each is the port's number.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result};
use futures::{SinkExt as _, StreamExt as _};
use http::HeaderValue;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{Request, Response};
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};

const PROTOCOL: &str = "v4.channel.k8s.io";

/// The answer to a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A status and a document.
    Document(u16, Value),
    /// The port is forwarded to this address.
    Forward(SocketAddr),
    /// The forwarding begins, and then fails with this error.
    Fail(String),
}

/// The stand-in. It ends when this is dropped.
#[derive(Debug)]
pub struct Forwarding {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Forwarding {
    /// Listens on a free local port. `answer` is given each request's path and query.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("listening")?;
        let url = format!("http://{}", listener.local_addr().context("asking for the port")?);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (answer, log) = (Arc::new(answer), Arc::clone(&asked));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                // The caller sees what went wrong.
                tokio::spawn(async move { serve(stream, answer.as_ref(), &log).await.ok() });
            }
        });
        Ok(Self { url, asked, task })
    }

    /// Its address, `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The paths that were asked for, in order.
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Forwarding {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The path of the request that has arrived; it stays to be read.
async fn path(stream: &TcpStream) -> Result<String> {
    let mut head = [0; 4096];
    loop {
        let read = stream.peek(&mut head).await.context("reading a request")?;
        anyhow::ensure!(read > 0, "the connection ended");
        let text = String::from_utf8_lossy(&head[..read]);
        if let Some((line, _)) = text.split_once("\r\n") {
            return Ok(line.split(' ').nth(1).context("a path")?.to_owned());
        }
        tokio::task::yield_now().await;
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &(dyn Fn(&str) -> Answer + Sync),
    log: &Mutex<Vec<String>>,
) -> Result<()> {
    let path = path(&stream).await?;
    log.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
    let to = match answer(&path) {
        Answer::Document(status, document) => {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.context("reading a request")?);
            }
            let body = document.to_string();
            let head = format!(
                "HTTP/1.1 {status} -\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            return stream.write_all((head + &body).as_bytes()).await.context("answering");
        }
        Answer::Forward(to) => Ok(to),
        Answer::Fail(error) => Err(error),
    };
    let port: u16 = path.rsplit("ports=").next().unwrap_or_default().parse().context("a port")?;
    #[expect(clippy::result_large_err, reason = "what the WebSocket's library asks for")]
    let choose = |_: &Request, mut response: Response| {
        response.headers_mut().insert("sec-websocket-protocol", HeaderValue::from_static(PROTOCOL));
        Ok(response)
    };
    let mut socket = accept_hdr_async(stream, choose).await.context("becoming a WebSocket")?;
    for channel in [0, 1] {
        say(&mut socket, channel, &port.to_le_bytes()).await?;
    }
    match to {
        Ok(to) => forward(&mut socket, to).await?,
        Err(error) => say(&mut socket, 1, error.as_bytes()).await?,
    }
    socket.close(None).await.context("closing")?;
    // Unread input would reset the connection, and the answer would be lost.
    while let Some(Ok(_)) = socket.next().await {}
    Ok(())
}

async fn say(socket: &mut WebSocketStream<TcpStream>, channel: u8, bytes: &[u8]) -> Result<()> {
    let message: Vec<u8> = std::iter::once(channel).chain(bytes.iter().copied()).collect();
    socket.send(Message::binary(message)).await.context("sending")
}

/// Carries bytes to and fro until the far end has said all.
async fn forward(socket: &mut WebSocketStream<TcpStream>, to: SocketAddr) -> Result<()> {
    let mut far = TcpStream::connect(to).await.with_context(|| format!("connecting to {to}"))?;
    let mut bytes = [0; 4096];
    loop {
        tokio::select! {
            read = far.read(&mut bytes) => match read.context("reading")? {
                0 => return Ok(()),
                read => say(socket, 0, &bytes[..read]).await?,
            },
            message = socket.next() => match message.context("the WebSocket ended")?.context("reading")? {
                Message::Binary(data) if data.first() == Some(&0) => {
                    far.write_all(&data[1..]).await.context("writing")?;
                }
                _ => {}
            },
        }
    }
}
