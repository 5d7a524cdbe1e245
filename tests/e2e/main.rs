//! The whole proxy, from outside: raw clients and the real curl on one side, raw origins on the other.

#[allow(dead_code, unused_imports, reason = "the harness serves the other end-to-end tests too")]
#[path = "../support/mod.rs"]
mod support;

mod access;
mod access_log;
mod answers;
mod big_bodies;
mod commands;
mod connect;
mod decide;
mod distrust;
mod egress;
mod event_log;
mod evidence;
mod exchange;
mod explain;
mod fields;
mod foreign;
mod forward;
mod framing;
mod getting_started;
mod h2_clients;
mod h2_origins;
mod harness;
mod intercept;
mod lifecycle;
mod limits;
mod lint;
mod logging;
mod messages;
mod mining;
mod noted;
mod pacing;
mod pacing_keys;
mod pacing_many;
mod pins;
mod refresh;
mod reload;
mod robots;
mod running;
mod setup;
mod signing;
mod trailers;
mod unreachable;
mod upstream_proxy;
mod usage;
mod versions;
mod waiting;
mod websocket;
