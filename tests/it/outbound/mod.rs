//! The way to origins: where it may lead, who is believed there, and by which proxy it goes.

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
