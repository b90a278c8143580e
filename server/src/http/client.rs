//! Whose request it is: the address of the person's side of the connection.
//!
//! That is the peer's address, unless the peer is a listed proxy. Then it is the last address in `Forwarded` or
//! `X-Forwarded-For` that is no listed proxy itself, read from the right: what stands further left was sent by the client
//! and may say anything. Of a proxy that writes one of the two headers and lets the other pass, the client writes the
//! other; so where they disagree neither is believed.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use hyper::body::{Frame, SizeHint};

use super::places::{Place, Places};
use crate::config::{HttpConfig, TrustedProxies};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address, in the extensions of each request that came over a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Client(pub(super) IpAddr);

/// What [`identify`] needs.
#[derive(Clone)]
pub(super) struct Clients {
    config: Arc<HttpConfig>,
    places: Places,
}

impl Clients {
    pub(super) fn new(config: Arc<HttpConfig>) -> Self {
        let places = Places::new(config.connections.per_address);
        Self { config, places }
    }
}

/// Puts the [`Client`] into the request. Clients behind a proxy share its connections, so what is bounded for each of them
/// is the number of requests under way, streams included.
pub(super) async fn identify(State(clients): State<Clients>, mut request: Request, next: Next) -> Response {
    let Some(ConnectInfo(peer)) = request.extensions().get::<ConnectInfo<SocketAddr>>().copied() else {
        return next.run(request).await;
    };
    let peer = peer.ip().to_canonical();
    let client = address(peer, request.headers(), &clients.config.trusted_proxies);
    request.extensions_mut().insert(Client(client));
    // A listed proxy has any number of connections, so each of its requests takes a place, also one whose client it does not name.
    if client == peer && !clients.config.trusted_proxies.contains(peer) {
        return next.run(request).await;
    }
    let Some(place) = clients.places.take(client) else {
        let retry = [(header::RETRY_AFTER, HeaderValue::from_static("10"))];
        return (StatusCode::TOO_MANY_REQUESTS, retry, "too many requests at once from your address\n").into_response();
    };
    next.run(request).await.map(|body| Body::new(Held { body, _place: place }))
}

/// A reply that takes its client's place until it is sent.
struct Held {
    body: Body,
    _place: Place,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn address(peer: IpAddr, headers: &HeaderMap, proxies: &TrustedProxies) -> IpAddr {
    if !proxies.contains(peer) {
        return peer;
    }
    let of = |name: &HeaderName, read: fn(&str) -> Option<IpAddr>| {
        let lines: Option<Vec<&str>> = headers.get_all(name).iter().map(|line| line.to_str().ok()).collect();
        let lines = lines.unwrap_or_default().join(",");
        (!lines.trim().is_empty()).then(|| last_stranger(peer, &lines, read, proxies))
    };
    match (of(&header::FORWARDED, forwarded), of(&X_FORWARDED_FOR, plain)) {
        (Some(one), Some(other)) if one != other => peer,
        (Some(client), _) | (None, Some(client)) => client,
        (None, None) => peer,
    }
}

/// From the right, the first address that is no listed proxy; the proxy's own where its word makes no sense.
fn last_stranger(peer: IpAddr, list: &str, read: fn(&str) -> Option<IpAddr>, proxies: &TrustedProxies) -> IpAddr {
    let mut hop = peer;
    for entry in elements(list, ',').into_iter().rev() {
        match read(entry) {
            Some(address) => hop = address,
            None => break,
        }
        if !proxies.contains(hop) {
            break;
        }
    }
    hop
}

/// The `for` of one element of `Forwarded` (RFC 7239).
fn forwarded(element: &str) -> Option<IpAddr> {
    let mut values = elements(element, ';').into_iter().filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.trim().eq_ignore_ascii_case("for").then_some(value.trim())
    });
    let value = values.next()?;
    // Twice is not once.
    values.next().is_none().then(|| plain(value.trim_matches('"')))?
}

/// An address, perhaps with a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]:80`.
fn plain(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let address = text
        .parse()
        .ok()
        .or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()))
        .or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse::<std::net::Ipv6Addr>().ok().map(IpAddr::V6));
    address.map(|address| address.to_canonical())
}

/// The parts between separators that stand outside of quotes.
fn elements(list: &str, separator: char) -> Vec<&str> {
    let mut is_quoted = false;
    list.split(|character| {
        is_quoted ^= character == '"';
        character == separator && !is_quoted
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, lines: &[(&'static str, &'static str)]) -> String {
        let proxies = "127.0.0.1,10.0.0.0/8".parse().unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        address(peer.parse().unwrap(), &headers, &proxies).to_string()
    }

    #[test]
    fn strangers_are_not_believed() {
        assert_eq!(client("192.0.2.9", &[("x-forwarded-for", "198.51.100.1")]), "192.0.2.9");
        assert_eq!(client("192.0.2.9", &[("forwarded", "for=198.51.100.1")]), "192.0.2.9");
    }

    #[test]
    fn listed_proxies_are_believed_from_the_right() {
        for (value, expected) in [
            ("198.51.100.1", "198.51.100.1"),
            ("6.6.6.6, 198.51.100.1", "198.51.100.1"),
            ("6.6.6.6, 198.51.100.1, 10.1.2.3, 127.0.0.1", "198.51.100.1"),
            ("nonsense, 198.51.100.1:4711", "198.51.100.1"),
            ("[2001:db8::1]:80", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("::ffff:198.51.100.1", "198.51.100.1"),
            // Further than to a word that makes no sense nobody sees.
            ("198.51.100.1, unknown", "127.0.0.1"),
            ("198.51.100.1, unknown, 10.1.2.3", "10.1.2.3"),
            ("198.51.100.1,", "127.0.0.1"),
            ("10.1.2.3", "10.1.2.3"),
            ("", "127.0.0.1"),
        ] {
            assert_eq!(client("127.0.0.1", &[("x-forwarded-for", value)]), expected, "{value}");
        }
        let lines = [("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "198.51.100.1")];
        assert_eq!(client("127.0.0.1", &lines), "198.51.100.1", "lines of one name are one list");
    }

    #[test]
    fn forwarded_is_read_with_quotes_and_parameters() {
        for (value, expected) in [
            ("for=198.51.100.1;proto=https;by=10.0.0.1", "198.51.100.1"),
            ("For=\"[2001:db8::1]:4711\"", "2001:db8::1"),
            ("for=6.6.6.6, for=\"198.51.100.1:80\";host=\"a,b;for=7.7.7.7\"", "198.51.100.1"),
            ("for=6.6.6.6, for=198.51.100.1, for=10.0.0.1", "198.51.100.1"),
            ("for=198.51.100.1;for=6.6.6.6", "127.0.0.1"),
            ("for=_hidden", "127.0.0.1"),
            ("by=10.0.0.1", "127.0.0.1"),
        ] {
            assert_eq!(client("127.0.0.1", &[("forwarded", value)]), expected, "{value}");
        }
    }

    #[test]
    fn headers_that_disagree_are_not_believed() {
        let both = |forwarded, plain| client("127.0.0.1", &[("forwarded", forwarded), ("x-forwarded-for", plain)]);
        assert_eq!(both("for=198.51.100.1", "198.51.100.1"), "198.51.100.1");
        assert_eq!(both("for=6.6.6.6", "198.51.100.1"), "127.0.0.1");
        assert_eq!(both("for=198.51.100.1", "6.6.6.6"), "127.0.0.1");
    }
}
