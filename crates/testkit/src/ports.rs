//! Free ports for programs whose ports are settings.

use std::hash::{BuildHasher as _, RandomState};
use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// Below the range that the kernel gives to outgoing connections (from 32768): a port from there can be taken by any program
/// between looking and listening, and while a program restarts.
const RANGE: Range<u16> = 15_000..32_000;

/// UDP sockets with the same numbers, held as long as this process lives, to reserve the ports: a program may take a minute to listen on its port,
/// and no other test process may hand it out meanwhile. Nothing here uses UDP.
static CLAIMS: Mutex<Vec<UdpSocket>> = Mutex::new(Vec::new());

/// Ports that are free now, all different, and not given to other test processes at the same time. They are looked for from
/// a random place on.
///
/// # Errors
///
/// If fewer than `count` ports are free from 15000 to 32000.
pub fn free_ports(count: usize) -> Result<Vec<u16>> {
    let size = u64::from(RANGE.end - RANGE.start);
    let start = RandomState::new().hash_one(std::process::id()) % size;
    let mut held = Vec::with_capacity(count);
    for step in 0..size {
        if held.len() == count {
            break;
        }
        let Ok(offset) = u16::try_from((start + step) % size) else { continue };
        let port = RANGE.start + offset;
        // Kept until all are found.
        if let (Ok(claim), Ok(listener)) =
            (UdpSocket::bind(("127.0.0.1", port)), TcpListener::bind(("127.0.0.1", port)))
        {
            held.push((port, claim, listener));
        }
    }
    if held.len() < count {
        bail!("there are not {count} free ports from {} to {}", RANGE.start, RANGE.end);
    }
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    let ports = held.into_iter().map(|(port, claim, _)| {
        claims.push(claim);
        port
    });
    Ok(ports.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_was_given_is_not_given_again_before_it_is_used() {
        let size = usize::from(RANGE.end - RANGE.start) / 40;
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..40 {
            let ports = free_ports(size / 40).unwrap();
            assert!(ports.iter().all(|port| seen.insert(*port)), "{ports:?}");
        }
    }

    #[test]
    fn ports_differ_and_can_be_listened_on() {
        let ports = free_ports(5).unwrap();
        let listeners: Vec<TcpListener> =
            ports.iter().map(|port| TcpListener::bind(("127.0.0.1", *port)).unwrap()).collect();
        assert_eq!(listeners.len(), 5);
        assert!(ports.iter().all(|port| RANGE.contains(port)));
    }
}
