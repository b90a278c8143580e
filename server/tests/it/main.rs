//! The web half on real Postgres, called without a socket; and the binary itself.

mod access;
mod cli;
mod connections;
mod cross_site;
mod export;
mod links;
mod live;
mod redaction;
mod replies;
mod sign_in;
mod support;
