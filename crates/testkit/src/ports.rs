//! Free ports for programs that must be told theirs.

use std::hash::{BuildHasher as _, RandomState};
use std::net::TcpListener;
use std::ops::Range;

use anyhow::{Result, bail};

/// Below the range that the kernel gives to outgoing connections (from 32768): a port from there can be taken by anybody
/// between looking and listening, and while a program restarts.
const RANGE: Range<u16> = 15_000..32_000;

/// Ports that are free now, all different. They are looked for from a random place on, so that two test processes at
/// the same time hardly ever pick the same.
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
        // Held until all are found.
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            held.push((port, listener));
        }
    }
    if held.len() < count {
        bail!("there are not {count} free ports from {} to {}", RANGE.start, RANGE.end);
    }
    Ok(held.into_iter().map(|(port, _)| port).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_can_be_listened_on() {
        let ports = free_ports(5).unwrap();
        let listeners: Vec<TcpListener> =
            ports.iter().map(|port| TcpListener::bind(("127.0.0.1", *port)).unwrap()).collect();
        assert_eq!(listeners.len(), 5);
        assert!(ports.iter().all(|port| RANGE.contains(port)));
    }
}
