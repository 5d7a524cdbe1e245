//! The way to the origin: where the proxy may connect to, and how. Called by `gate` and `proxy`.

pub mod egress;
