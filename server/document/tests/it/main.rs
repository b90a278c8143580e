//! Tests through the public functions, with the files in `end2end/fixtures`.

mod bad;
mod good;
mod hostile;
mod support;
