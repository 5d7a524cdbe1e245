//! The whole proxy, from outside: raw clients and the real curl on one side, raw origins on the other.

#[path = "../support/mod.rs"]
mod support;

mod connect;
mod fields;
mod forward;
mod harness;
mod intercept;
mod messages;
