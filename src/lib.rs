//! politely: a forward proxy that makes any crawler keep robots.txt.

pub mod policy;
pub mod robots;
#[cfg(feature = "proxy")]
pub mod upstream;
