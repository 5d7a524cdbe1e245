//! Limits on clients: connections, certificates, and the minimum rate of bodies.

pub mod body_rate;
pub mod leaf_rate;
pub mod log_rate;
mod members;
pub mod per_client;
pub mod streams;
pub mod total;
