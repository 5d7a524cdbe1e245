//! Connections to origins: permitted destinations, trust, and upstream proxies.

mod challenges;
mod distrust;
mod egress;
mod intercept;
mod name_servers;
mod names;
mod pins;
mod signing;
mod upstream_proxy;
mod wide;
