//! A file per route.

#![allow(unreachable_pub, reason = "the component macro makes its own items public")]

pub(crate) mod demo;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod not_found;
pub(crate) mod set_up;
pub(crate) mod sign_in;
