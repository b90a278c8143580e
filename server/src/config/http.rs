use std::net::SocketAddr;
use std::time::Duration;

use ::http::Uri;

use super::TrustedProxies;
use super::worker::number;

/// Where the deck listens and what its address is.
#[derive(clap::Args, Clone, Debug)]
pub struct HttpArgs {
    /// Address and port to listen on. Port 0 takes a free one.
    #[arg(long, env = "JOBDECK_LISTEN", default_value = "127.0.0.1:3700", value_name = "ADDRESS:PORT", value_parser = listen)]
    pub listen: SocketAddr,
    /// The address people use, without a path. With https sign-in cookies get the `__Host-` prefix and `Secure`.
    /// Default: http:// and the address listened on.
    #[arg(long, env = "JOBDECK_BASE_URL", value_name = "URL", value_parser = base_url)]
    pub base_url: Option<BaseUrl>,
    /// Short label beside the name on every page, 1 to 20 characters.
    #[arg(long, env = "JOBDECK_ENVIRONMENT", default_value = "local", value_name = "LABEL", value_parser = environment)]
    pub environment: String,
    /// Reverse proxies in front of the deck: IP addresses and networks such as 127.0.0.1,10.0.0.0/8, with commas between
    /// them. Only their Forwarded and X-Forwarded-For headers are believed, read from the right, for sign-in delays, limits
    /// per address and the audit log. Each must write one of the two headers. Default: none.
    #[arg(long, env = "JOBDECK_TRUSTED_PROXIES", default_value = "", value_name = "ADDRESSES")]
    pub trusted_proxies: TrustedProxies,
    /// Most connections from one address (IPv6: one /64 network), 1 to 4096; more are closed at once. Not for trusted
    /// proxies: behind them it bounds each client's requests at once.
    #[arg(long, env = "JOBDECK_CONNECTIONS_PER_ADDRESS", default_value = "256", value_name = "N", value_parser = per_address)]
    pub connections_per_address: usize,
    /// How long a reply may wait for a reader who takes nothing of it, 1 to 3600 seconds. Then the connection is closed.
    #[arg(long, env = "JOBDECK_WRITE_TIMEOUT_SECS", default_value = "30", value_name = "SECONDS", value_parser = write_timeout)]
    pub write_timeout_secs: u64,
}

/// Settings of the web half.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// The address people use.
    pub base_url: BaseUrl,
    /// Whether the base URL was set by someone, and is therefore the only origin forms may come from.
    pub base_url_is_set: bool,
    /// Label beside the name on every page.
    pub environment: String,
    /// Whose word about a client's address is believed.
    pub trusted_proxies: TrustedProxies,
    /// Bounds on connections.
    pub connections: ConnectionLimits,
}

/// What one address may take of the deck's connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most connections from one address; behind a trusted proxy, requests at once. Default 256.
    pub per_address: usize,
    /// How long a reader may take nothing of a reply. Default 30 s.
    pub write_timeout: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self { per_address: 256, write_timeout: Duration::from_secs(30) }
    }
}

impl HttpConfig {
    /// Settings for a deck that listens on `bound`.
    pub fn new(args: &HttpArgs, bound: SocketAddr) -> Self {
        Self {
            base_url: args.base_url.clone().unwrap_or_else(|| BaseUrl::of_listener(bound)),
            base_url_is_set: args.base_url.is_some(),
            environment: args.environment.clone(),
            trusted_proxies: args.trusted_proxies.clone(),
            connections: ConnectionLimits {
                per_address: args.connections_per_address,
                write_timeout: Duration::from_secs(args.write_timeout_secs),
            },
        }
    }
}

/// Scheme, host and port, such as `https://deck.example.com`. No path, no slash at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl(String);

impl BaseUrl {
    fn of_listener(bound: SocketAddr) -> Self {
        // "All addresses" is no address a browser can open.
        if bound.ip().is_unspecified() {
            Self(format!("http://localhost:{}", bound.port()))
        } else {
            Self(format!("http://{bound}"))
        }
    }

    /// The URL, which is also the origin that browsers send.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether people reach the deck over TLS.
    pub fn is_https(&self) -> bool {
        self.0.starts_with("https://")
    }
}

impl std::fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for BaseUrl {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        base_url(text)
    }
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "JOBDECK_LISTEN must be an IP address and a port, such as 127.0.0.1:3700 or [::]:3700".to_owned())
}

fn base_url(text: &str) -> Result<BaseUrl, String> {
    let problem = || {
        "JOBDECK_BASE_URL must be http:// or https://, a host and perhaps a port, such as https://deck.example.com"
            .to_owned()
    };
    let uri: Uri = text.parse().map_err(|_| problem())?;
    let scheme = uri.scheme_str().filter(|scheme| ["http", "https"].contains(scheme)).ok_or_else(problem)?;
    let authority = uri.authority().ok_or_else(problem)?;
    let is_plain = !authority.as_str().contains('@') && ["", "/"].contains(&uri.path()) && uri.query().is_none();
    if !is_plain || authority.host().is_empty() || text.contains('#') {
        return Err(problem());
    }
    // Browsers leave the scheme's own port out of the origin.
    let host = authority.host().to_ascii_lowercase();
    Ok(BaseUrl(match authority.port_u16() {
        None => format!("{scheme}://{host}"),
        Some(port) if (scheme, port) == ("http", 80) || (scheme, port) == ("https", 443) => {
            format!("{scheme}://{host}")
        }
        Some(port) => format!("{scheme}://{host}:{port}"),
    }))
}

fn per_address(text: &str) -> Result<usize, String> {
    number("JOBDECK_CONNECTIONS_PER_ADDRESS", text, 1..=4096)
}

fn write_timeout(text: &str) -> Result<u64, String> {
    number("JOBDECK_WRITE_TIMEOUT_SECS", text, 1..=3600)
}

fn environment(text: &str) -> Result<String, String> {
    let label = text.trim();
    match label.chars().count() {
        1..=20 if !label.contains(char::is_control) => Ok(label.to_owned()),
        _ => Err("JOBDECK_ENVIRONMENT must be a label of 1 to 20 characters, such as production".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_url_becomes_the_origin_browsers_send() {
        for (text, origin) in [
            ("https://Deck.Example.com", "https://deck.example.com"),
            ("https://deck.example.com:443/", "https://deck.example.com"),
            ("http://localhost:80", "http://localhost"),
            ("http://[::1]:3700", "http://[::1]:3700"),
        ] {
            assert_eq!(base_url(text).unwrap().as_str(), origin, "{text}");
        }
    }

    #[test]
    fn anything_but_an_origin_is_refused() {
        for text in
            ["", "deck.example.com", "ftp://x", "https://a@b", "https://x/deck", "https://x?y=1", "https://x/#a"]
        {
            assert!(base_url(text).unwrap_err().starts_with("JOBDECK_BASE_URL must be"), "{text}");
        }
    }

    #[test]
    fn listening_everywhere_prints_an_address_that_opens() {
        assert_eq!(BaseUrl::of_listener("0.0.0.0:3700".parse().unwrap()).as_str(), "http://localhost:3700");
        assert_eq!(BaseUrl::of_listener("[::1]:3700".parse().unwrap()).as_str(), "http://[::1]:3700");
    }
}
