//! The whole proxy, from outside: raw clients and the real curl on one side, raw origins on the other.

#[path = "../support/mod.rs"]
mod support;

mod harness;
