//! politely: a forward proxy that makes any crawler keep robots.txt.

#[cfg(feature = "proxy")]
pub mod config;
pub mod policy;
