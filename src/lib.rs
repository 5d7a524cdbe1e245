//! politely: a forward proxy that makes any crawler obey robots.txt.
//!
//! One request's way: `proxy::client` accepts, reads the head ([`http1`]) and opens CONNECT; `proxy::exchange` asks
//! [`gate::Gate::admit`], which loads the authority's entry, lets [`policy`] decide by the rules of [`robots`] and keeps the
//! host's pace; then [`upstream`] gives a connection and `exchange::carry` moves both bodies, or `proxy::respond` answers.
//!
//! Imports go down only: main → cli → server → admin → proxy → gate → {upstream, tls} → {http1, evidence, signing} → config →
//! policy → robots. Without the feature `proxy` only what is pure builds, [`robots`], [`policy`] and [`http1`], with no I/O dependency.

#[cfg(feature = "proxy")]
pub mod admin;
#[cfg(feature = "proxy")]
pub mod cli;
#[cfg(feature = "proxy")]
pub mod config;
#[cfg(feature = "proxy")]
pub mod evidence;
#[cfg(feature = "proxy")]
pub mod gate;
#[cfg(feature = "proxy")]
pub mod histogram;
pub mod http1;
pub mod policy;
#[cfg(feature = "proxy")]
pub mod proxy;
pub mod robots;
#[cfg(feature = "proxy")]
pub mod server;
#[cfg(feature = "proxy")]
pub mod signing;
#[cfg(feature = "proxy")]
pub mod telemetry;
#[cfg(feature = "proxy")]
pub mod tls;
#[cfg(feature = "proxy")]
mod tls_words;
#[cfg(feature = "proxy")]
pub mod upstream;
