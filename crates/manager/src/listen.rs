//! Addresses as Go programs write them, and the sockets for them.

use std::net::{SocketAddr, ToSocketAddrs};

use tokio::net::{TcpListener, TcpSocket};

/// Why an address cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Not an address.
    #[error("{field}: {address:?} is not an address of the form host:port or :port")]
    Address {
        /// The configuration's field.
        field: &'static str,
        /// The configured text.
        address: String,
    },
    /// The port is taken, or not ours to take.
    #[error("{field}: listening on {address}")]
    Bind {
        /// The configuration's field.
        field: &'static str,
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
}

/// The address that a configuration field names; nothing when it switches the server off (`""`, `"0"`).
///
/// # Errors
///
/// If the text is not of the form host:port or :port, or its host cannot be looked up.
pub fn address(field: &'static str, text: &str) -> Result<Option<SocketAddr>, ListenError> {
    if text.is_empty() || text == "0" {
        return Ok(None);
    }
    let failed = || ListenError::Address { field, address: text.to_owned() };
    let (host, port) = text.rsplit_once(':').ok_or_else(failed)?;
    let port: u16 = port.parse().map_err(|_| failed())?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    // No host means every interface, of both address families if the machine has both.
    let host = if host.is_empty() { every_interface() } else { host };
    let mut found = (host, port).to_socket_addrs().map_err(|_| failed())?;
    found.next().map(Some).ok_or_else(failed)
}

fn every_interface() -> &'static str {
    if std::path::Path::new("/proc/net/if_inet6").exists() { "::" } else { "0.0.0.0" }
}

/// Connections that may wait to be taken, so that callers do not wait behind a flood for their first packet to be repeated.
const WAITING: u32 = 1024;

/// Opens the socket.
///
/// # Errors
///
/// If the port is taken, the address is not one of this machine's, or the process may not open it.
pub fn bind(field: &'static str, address: SocketAddr) -> Result<TcpListener, ListenError> {
    let open = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(WAITING)
    };
    open().map_err(|source| ListenError::Bind { field, address, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_style_addresses_are_understood() {
        let of = |text| address("x", text).unwrap();
        assert_eq!(of("0"), None);
        assert_eq!(of(""), None);
        assert_eq!(of(":8443").unwrap().port(), 8443);
        assert!(of(":8443").unwrap().ip().is_unspecified());
        assert_eq!(of("127.0.0.1:80"), Some("127.0.0.1:80".parse().unwrap()));
        assert_eq!(of("[::1]:80"), Some("[::1]:80".parse().unwrap()));
    }

    #[test]
    fn nonsense_is_refused_with_the_field_that_says_it() {
        let error = address("metrics.bindAddress", "8443").unwrap_err();
        assert!(error.to_string().starts_with("metrics.bindAddress: \"8443\""));
        assert!(address("x", "host:notaport").is_err());
    }

    #[tokio::test]
    async fn a_taken_port_is_reported() {
        let first = bind("x", "127.0.0.1:0".parse().unwrap()).unwrap();
        let error = bind("health", first.local_addr().unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("health: listening on 127.0.0.1:"));
    }
}
