//! A stand-in for the controller of a kind: it repeatedly goes over the kind's objects in a namespace.

use std::time::Duration;

use kube::Client;
use sluice_tests::place::Place;
use tokio::task::JoinHandle;

/// Between two passes.
const PAUSE: Duration = Duration::from_millis(200);

/// A controller of a test. It stops when this is dropped.
pub struct Passes(JoinHandle<()>);

impl Passes {
    /// Goes over the objects in the namespace of a test by `pass`, which is given a client and the namespace. What fails is tried again.
    pub fn start<F>(place: &Place<'_>, pass: impl Fn(Client, String) -> F + Send + 'static) -> Self
    where
        F: Future<Output = kube::Result<()>> + Send,
    {
        let (client, namespace) = (place.client.clone(), place.name.clone());
        Self(tokio::spawn(async move {
            loop {
                if let Err(error) = pass(client.clone(), namespace.clone()).await {
                    eprintln!("{namespace}: {error}");
                }
                tokio::time::sleep(PAUSE).await;
            }
        }))
    }
}

impl Drop for Passes {
    fn drop(&mut self) {
        self.0.abort();
    }
}
