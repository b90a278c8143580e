//! Real sockets: slow readers, crowds from one address, and clients behind a proxy.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::ConnectInfo;
use axum::routing::get;
use futures_util::stream;
use http::StatusCode;
use jobdeck::store::UserRole;
use jobdeck_server::config::{ConnectionLimits, HttpConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::support::{Deck, ORIGIN, PROXY, post};

/// Counts the replies that are being sent.
struct Sending(Arc<AtomicUsize>);

impl Drop for Sending {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Starts a server with these bounds; its address, and how many replies are being sent.
async fn start(connections: ConnectionLimits, trusted_proxies: &str) -> (SocketAddr, Arc<AtomicUsize>) {
    let sending = Arc::new(AtomicUsize::new(0));
    let counted = sending.clone();
    let body = move |n_chunks: usize, chunk: &'static [u8], pause: Duration| {
        counted.fetch_add(1, Ordering::SeqCst);
        let held = Sending(counted.clone());
        Body::from_stream(stream::unfold((n_chunks, held), move |(left, held)| async move {
            tokio::time::sleep(pause).await;
            let left = left.checked_sub(1)?;
            Some((Ok::<_, std::convert::Infallible>(Bytes::from_static(chunk)), (left, held)))
        }))
    };
    let (large, events) = (body.clone(), body);
    let app = Router::new()
        .route("/large", get(move || async move { large(512, &[b'x'; 64 * 1024], Duration::ZERO) }))
        .route("/events", get(move || async move { events(20, b"tick\n", Duration::from_millis(200)) }));
    let config = HttpConfig {
        base_url: ORIGIN.parse().unwrap(),
        base_url_is_set: true,
        environment: "test".to_owned(),
        trusted_proxies: trusted_proxies.parse().unwrap(),
        connections,
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = std::future::pending();
    tokio::spawn(jobdeck_server::http::serve(listener, app, Arc::new(config), stop, Duration::ZERO));
    (address, sending)
}

/// A connection from `source` that asked for `path`, with a small buffer for what comes.
async fn ask(address: SocketAddr, source: &str, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(32 * 1024).unwrap();
    socket.bind(SocketAddr::new(source.parse::<IpAddr>().unwrap(), 0)).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: deck.example\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{what}: not within 20 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn who_reads_nothing_loses_the_connection() {
    let limits = ConnectionLimits { write_timeout: Duration::from_secs(1), ..ConnectionLimits::default() };
    let (address, sending) = start(limits, "").await;
    let mut idle = Vec::new();
    for _ in 0..20 {
        idle.push(ask(address, "127.0.0.1", "/large").await);
    }
    until("all are being sent", || sending.load(Ordering::SeqCst) == 20).await;
    let begun = Instant::now();
    until("nobody holds a reply", || sending.load(Ordering::SeqCst) == 0).await;
    assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
    assert_eq!(idle.len(), 20, "no client has left by itself");
}

#[tokio::test]
async fn slow_readers_and_event_streams_that_go_on_are_not_cut() {
    let limits = ConnectionLimits { write_timeout: Duration::from_secs(1), ..ConnectionLimits::default() };
    let (address, _sending) = start(limits, "").await;
    let events = async {
        let mut stream = ask(address, "127.0.0.1", "/events").await;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(text.matches("tick").count(), 20, "{text}");
    };
    let slow = async {
        let mut stream = ask(address, "127.0.0.1", "/large").await;
        let (mut n_read, begun) = (0, Instant::now());
        let mut buffer = vec![0; 256 * 1024];
        // Slow for four times the timeout, then to the end.
        loop {
            let n = stream.read(&mut buffer).await.expect("the connection is not cut");
            n_read += n;
            if n == 0 {
                break;
            }
            if begun.elapsed() < Duration::from_secs(4) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        assert!(n_read >= 512 * 64 * 1024, "{n_read} bytes came");
    };
    tokio::join!(events, slow);
}

#[tokio::test]
async fn an_address_has_its_connections_and_others_have_theirs() {
    let limits = ConnectionLimits { per_address: 3, ..ConnectionLimits::default() };
    let (address, sending) = start(limits, "127.0.0.9").await;
    let refused = async |source: &str| {
        let mut byte = [0];
        // Refused ones end without a byte; served ones send a head at once.
        !matches!(ask(address, source, "/events").await.read(&mut byte).await, Ok(1))
    };
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(ask(address, "127.0.0.1", "/events").await);
    }
    until("three are served", || sending.load(Ordering::SeqCst) == 3).await;
    assert!(refused("127.0.0.1").await, "the fourth of an address");
    assert!(!refused("127.0.0.2").await, "another address");
    let mut proxied = Vec::new();
    for _ in 0..10 {
        proxied.push(ask(address, "127.0.0.9", "/events").await);
    }
    until("a listed proxy has as many as it wants", || sending.load(Ordering::SeqCst) >= 13).await;
    let begun = Instant::now();
    open.clear();
    while refused("127.0.0.1").await {
        assert!(begun.elapsed() < Duration::from_secs(10), "places do not come back");
    }
}

/// Sends a form over a socket as a browser does, which reads the reply only once everything is sent.
async fn send_whole(address: SocketAddr, cookie: &str, media: &str, parts: &[&str], repeated: (&str, usize)) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let length = parts.iter().map(|part| part.len()).sum::<usize>() + repeated.0.len() * repeated.1;
    let head = format!(
        "POST /demo HTTP/1.1\r\nHost: deck.example\r\nOrigin: {ORIGIN}\r\nCookie: {cookie}\r\nAccept: text/html\r\n\
         Connection: close\r\nContent-Type: {media}\r\nContent-Length: {length}\r\n\r\n{}",
        parts[0]
    );
    stream.write_all(head.as_bytes()).await.expect("the head is taken");
    let chunk = repeated.0.repeat(1000);
    for _ in 0..repeated.1 / 1000 {
        stream.write_all(chunk.as_bytes()).await.expect("the text is taken to its end");
    }
    stream.write_all(parts[1].as_bytes()).await.expect("the end is taken");
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.expect("a whole reply");
    reply
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_megabytes_of_chinese_end_on_a_page_in_both_encodings() {
    let deck = Deck::new().await;
    let (operator, viewer) = (deck.signed_in(UserRole::Operator).await, deck.signed_in(UserRole::Viewer).await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = HttpConfig {
        base_url: ORIGIN.parse().unwrap(),
        base_url_is_set: true,
        environment: "test".to_owned(),
        trusted_proxies: Default::default(),
        connections: Default::default(),
    };
    let (router, stop) = (deck.router.clone(), std::future::pending());
    tokio::spawn(jobdeck_server::http::serve(listener, router, Arc::new(config), stop, Duration::ZERO));

    let n = 20_000_000 / 3 / 1000 * 1000;
    let usual = "application/x-www-form-urlencoded";
    let start = "title=t&format=pdf&markdown=";
    let reply = send_whole(address, &operator, usual, &[start, ""], ("%E4%B8%AD", n)).await;
    assert!(reply.starts_with("HTTP/1.1 413") && reply.contains("the limit is 4.2 MB"), "{reply}");

    let multipart = "multipart/form-data; boundary=b0undary";
    let start = "--b0undary\r\nContent-Disposition: form-data; name=\"markdown\"\r\n\r\n";
    let end = "\r\n--b0undary--\r\n";
    let reply = send_whole(address, &operator, multipart, &[start, end], ("中", n)).await;
    assert!(reply.starts_with("HTTP/1.1 413") && reply.contains("the limit is 4.2 MB"), "{reply}");
    // Who may not export is told so, whatever the size.
    let reply = send_whole(address, &viewer, multipart, &[start, end], ("中", n)).await;
    assert!(reply.starts_with("HTTP/1.1 403") && reply.contains("You cannot export documents"), "{reply}");
    assert_eq!(deck.audit().await, ["enqueue_job refused"]);
    // As large as a text may be is not too much in either.
    let chinese = 4 * 1024 * 1024 / 3 / 1000 * 1000;
    let reply =
        send_whole(address, &operator, usual, &["title=t&format=pdf&markdown=", ""], ("%E4%B8%AD", chinese)).await;
    assert!(reply.starts_with("HTTP/1.1 303"), "{reply}");
    // The page's own form is the one that takes the least.
    let page = deck.get("/demo", Some(&operator)).await;
    assert!(page.text.contains("enctype=\"multipart/form-data\""), "{}", page.text);
}

#[tokio::test]
async fn clients_behind_a_listed_proxy_are_told_apart() {
    let deck = Deck::new().await;
    deck.user(UserRole::Admin).await;
    let guess = async |peer: &str, header: &'static str, value: &str| {
        let mut request =
            post("/sign-in", None, &[("email", "admin@example.com"), ("password", "wrong wrong wrong wrong")]);
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 4711)));
        request.headers_mut().insert(header, value.parse().unwrap());
        deck.send(request).await.location().to_owned()
    };
    for _ in 0..6 {
        assert_eq!(guess(PROXY, "x-forwarded-for", "6.6.6.6, 198.51.100.1").await, "/sign-in?error=wrong");
    }
    let delayed = |location: String| location.starts_with("/sign-in?error=wait");
    // What the client itself puts first changes nothing, and neither does the word of anyone else.
    assert!(delayed(guess(PROXY, "x-forwarded-for", "7.7.7.7, 198.51.100.1").await));
    assert!(delayed(guess("198.51.100.1", "x-forwarded-for", "7.7.7.7").await));
    assert!(delayed(guess("198.51.100.1", "forwarded", "for=7.7.7.7").await));
    assert!(!delayed(guess(PROXY, "forwarded", "for=198.51.100.2").await));
    let addresses: Vec<String> = sqlx::query_scalar("select distinct address from jobdeck.audit_log order by address")
        .fetch_all(deck.store.pool())
        .await
        .unwrap();
    assert_eq!(addresses, ["198.51.100.1", "198.51.100.2"]);
}

#[tokio::test]
async fn a_client_behind_a_proxy_has_as_many_requests_at_once() {
    let deck = Deck::with(|config| config.connections.per_address = 2).await;
    let cookie = deck.signed_in(UserRole::Admin).await;
    let open = async |client: &str| {
        let mut request = crate::support::get("/live?counts=1", Some(&cookie)).body(Body::empty()).unwrap();
        request.extensions_mut().insert(ConnectInfo(SocketAddr::new(PROXY.parse().unwrap(), 4711)));
        request.headers_mut().insert("x-forwarded-for", client.parse().unwrap());
        tower::ServiceExt::oneshot(deck.router.clone(), request).await.unwrap()
    };
    let mut streams = vec![open("198.51.100.1").await, open("198.51.100.1").await];
    assert!(streams.iter().all(|stream| stream.status() == StatusCode::OK));
    let third = open("198.51.100.1").await;
    assert_eq!(
        (third.status(), &third.headers()["retry-after"]),
        (StatusCode::TOO_MANY_REQUESTS, &"10".parse().unwrap())
    );
    assert_eq!(open("198.51.100.2").await.status(), StatusCode::OK);
    streams.pop();
    assert_eq!(open("198.51.100.1").await.status(), StatusCode::OK);
}
