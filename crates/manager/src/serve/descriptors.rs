//! How many connections each server may have, so that the process never runs out of file descriptors.

/// Descriptors for everything but the servers: connections to the API server, files, signals, timers.
const OTHERS: usize = 128;
/// Where the limit cannot be read.
const USUAL: usize = 1024;

/// Connections at once, by server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// Admission and conversion reviews. An API server has up to 200 writes in hand at once, and there may be three.
    pub webhooks: usize,
    /// The aggregated APIs: the API servers' proxies keep some connections each.
    pub visibility: usize,
    /// The dashboard: a browser has several connections, one of which follows the changes.
    pub dashboard: usize,
    /// Scrapes.
    pub metrics: usize,
    /// Probes and debug pages.
    pub health: usize,
}

/// The shares of this process.
pub fn shares() -> Shares {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    share(soft_limit(&limits).unwrap_or(USUAL))
}

/// Divides this number of descriptors.
fn share(descriptors: usize) -> Shares {
    let room = descriptors.saturating_sub(OTHERS);
    Shares {
        webhooks: (room / 16 * 9).clamp(8, 512),
        visibility: (room / 8).clamp(4, 64),
        dashboard: (room / 16).clamp(2, 64),
        metrics: (room / 16).clamp(4, 32),
        health: (room / 16).clamp(4, 32),
    }
}

/// The soft limit in the form of `/proc/self/limits`.
fn soft_limit(text: &str) -> Option<usize> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(usize::MAX),
        limit => limit.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_read() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max processes             95931                95931                processes \n\
                    Max open files            1024                 1048576              files     \n";
        assert_eq!(soft_limit(text), Some(1024));
        assert_eq!(soft_limit(&text.replace("1024 ", "unlimited ")), Some(usize::MAX));
        assert_eq!(soft_limit(""), None);
        let real = std::fs::read_to_string("/proc/self/limits").unwrap();
        assert!(soft_limit(&real).is_some(), "{real}");
    }

    #[test]
    fn all_servers_together_leave_room_for_the_rest() {
        assert_eq!(
            share(4096),
            Shares { webhooks: 512, visibility: 64, dashboard: 64, metrics: 32, health: 32 }
        );
        assert_eq!(share(1024).webhooks, 504);
        assert_eq!(share(usize::MAX), share(4096));
        for descriptors in 160..2000 {
            let Shares { webhooks, visibility, dashboard, metrics, health } = share(descriptors);
            let all = webhooks + visibility + dashboard + metrics + health + OTHERS;
            assert!(all <= descriptors, "{descriptors}");
        }
    }
}
