//! What needs the proxy, in one binary: each that links it takes seconds to build. A folder is a subject; `support` holds
//! the origins and clients that they share. `cargo test --test it pace::` runs one subject.

mod admin;
mod ca;
mod cache;
mod commands;
mod config;
mod connections;
mod escape;
mod fleet;
mod http;
mod life;
mod manners;
mod outbound;
mod pace;
mod rules;
mod serving;
mod support;
