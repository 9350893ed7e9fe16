//! Whether an API server needs a proxy, by the rules of kubectl (Go). Proxies are not supported, so the need for one is an error.

use std::net::IpAddr;

use http::Uri;

/// What requests a proxy for a server: the kubeconfig, always, or the environment, except for this computer and the hosts of `NO_PROXY`. `variable`
/// reads the environment.
pub(crate) fn wanted(
    server: &Uri,
    of_kubeconfig: Option<&str>,
    variable: impl Fn(&str) -> Option<String>,
) -> Option<&'static str> {
    if of_kubeconfig.is_some_and(|url| !url.is_empty()) {
        return Some("proxy-url of the kubeconfig");
    }
    let of_environment =
        |names: [&str; 2]| names.into_iter().find_map(|name| variable(name).filter(|text| !text.is_empty()));
    // Plain connections have another variable, which the client does not look at.
    if server.scheme_str() != Some("https") {
        return None;
    }
    of_environment(["HTTPS_PROXY", "https_proxy"])?;
    let left_out = of_environment(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    let port = server.port_u16().unwrap_or(443);
    (!is_left_out(server.host().unwrap_or_default(), port, &left_out)).then_some("HTTPS_PROXY")
}

/// Whether a host is reached without a proxy: this computer, or a host that a rule names.
fn is_left_out(host: &str, port: u16, rules: &str) -> bool {
    let host = host.trim_matches(['[', ']']).trim_end_matches('.').to_ascii_lowercase();
    let address: Option<IpAddr> = host.parse().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let mut rules = rules.split(',').map(|rule| rule.trim().to_ascii_lowercase());
    rules.any(|rule| names(&rule, &host, address, port))
}

/// Whether a rule names a host: `*`, a network, an address, or a domain with all below it, each but the first two also with a port.
fn names(rule: &str, host: &str, address: Option<IpAddr>, port: u16) -> bool {
    if rule == "*" {
        return true;
    }
    if let Some((network, bits)) = rule.split_once('/') {
        let network = network.parse().ok().zip(bits.parse().ok());
        return address.zip(network).is_some_and(|(address, (network, bits))| is_in(address, network, bits));
    }
    let with_port = rule.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?)));
    let (name, wanted) = match with_port.filter(|_| rule.parse::<IpAddr>().is_err()) {
        Some((name, port)) => (name, Some(port)),
        None => (rule, None),
    };
    let name = name.trim_matches(['[', ']']);
    if name.is_empty() || wanted.is_some_and(|wanted| wanted != port) {
        return false;
    }
    if let Ok(named) = name.parse::<IpAddr>() {
        return address == Some(named);
    }
    let domain = name.strip_prefix('*').unwrap_or(name);
    let is_below = |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    match domain.strip_prefix('.') {
        Some(domain) => is_below(domain),
        None => host == domain || is_below(domain),
    }
}

fn is_in(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let ((address, length), (network, same)) = (number(address), number(network));
    if length != same {
        return false;
    }
    let Some(rest) = u32::checked_sub(length, bits) else { return false };
    // Drops the host's bits.
    let shifted = |number: u128| number.checked_shr(rest).unwrap_or(0);
    shifted(address) == shifted(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_does_not_hold_on_this_computer_and_where_it_says_so() {
        for (server, rules, is_wanted) in [
            ("https://10.1.2.3:6443", "", true),
            ("https://127.0.0.1:6443", "", false),
            ("https://[::1]:6443", "", false),
            ("https://localhost", "", false),
            ("http://10.1.2.3:8001", "", false),
            ("https://10.1.2.3", "*", false),
            ("https://10.1.2.3", "10.1.2.3", false),
            ("https://10.1.2.3", "10.1.2.4, 10.1.0.0/16,", false),
            ("https://10.1.2.3", "0.0.0.0/0", false),
            ("https://10.1.2.3", "10.2.0.0/16,fd00::/8,10.1.0.0/40", true),
            ("https://[fd00::1]:6443", "fd00::/8", false),
            ("https://[fd00::1]:6443", "[fd00::1]:6443", false),
            ("https://10.1.2.3:6443", "10.1.2.3:6443", false),
            ("https://10.1.2.3:6443", "10.1.2.3:443", true),
            ("https://k8s.example.com", "example.com", false),
            ("https://example.com", "Example.com:443", false),
            ("https://example.com", ".example.com", true),
            ("https://k8s.example.com.", "*.example.com", false),
            ("https://badexample.com", "example.com,.,:443", true),
        ] {
            let variable = |name: &str| match name {
                "https_proxy" => Some("http://proxy:3128".to_owned()),
                "NO_PROXY" => Some(rules.to_owned()),
                _ => None,
            };
            let by = wanted(&server.parse().unwrap(), None, variable);
            assert_eq!(by, is_wanted.then_some("HTTPS_PROXY"), "{server} {rules}");
        }
        let server: Uri = "https://10.1.2.3".parse().unwrap();
        assert_eq!(wanted(&server, None, |_| Some(String::new())), None);
    }

    #[test]
    fn the_kubeconfig_always_holds() {
        let server: Uri = "https://127.0.0.1".parse().unwrap();
        let by = |own| wanted(&server, Some(own), |_| None);
        assert_eq!((by("http://proxy"), by("")), (Some("proxy-url of the kubeconfig"), None));
    }
}
