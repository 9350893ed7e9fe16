//! One address for several replicas, as a Service has: connections go in turn to the replicas that accept them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A TCP load balancer on 127.0.0.1. It ends when it is dropped, and belongs to the runtime it was started in.
pub struct Balancer {
    address: SocketAddr,
    served: Arc<Vec<AtomicUsize>>,
    accepting: JoinHandle<()>,
}

impl Balancer {
    /// Starts a balancer for these ports; none of them needs to be open yet.
    ///
    /// # Errors
    ///
    /// If no port can be opened on 127.0.0.1.
    pub async fn start(ports: &[u16]) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("opening the balancer's port")?;
        let address = listener.local_addr().context("reading the balancer's port")?;
        let served: Arc<Vec<AtomicUsize>> = Arc::new(ports.iter().map(|_| AtomicUsize::new(0)).collect());
        let accepting = tokio::spawn(accept(listener, ports.to_vec(), Arc::clone(&served)));
        Ok(Self { address, served, accepting })
    }

    /// Where it listens, for TLS behind it.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// How many connections went to each port so far.
    pub fn served(&self) -> Vec<usize> {
        self.served.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, ports: Vec<u16>, served: Arc<Vec<AtomicUsize>>) {
    // Dropped with this task, so that no connection outlives it.
    let mut connections = JoinSet::new();
    let mut turn = 0;
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        turn += 1;
        for step in 0..ports.len() {
            let at = (turn + step) % ports.len();
            if let Ok(server) = TcpStream::connect(("127.0.0.1", ports[at])).await {
                served[at].fetch_add(1, Ordering::Relaxed);
                connections.spawn(forward(client, server));
                break;
            }
        }
    }
}

async fn forward(mut client: TcpStream, mut server: TcpStream) {
    // Closing it shows the other side a broken connection.
    let _ = copy_bidirectional(&mut client, &mut server).await;
}
