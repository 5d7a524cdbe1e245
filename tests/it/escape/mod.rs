//! Attempts to get around the proxy, named attack by attack: to a disallowed URL, an undue address, another client's
//! data. Each must end refused, with the origin's log as witness. A table's rows are all tried before one is reported.

mod access;
mod addresses;
mod agreement;
mod authorities;
mod bodies;
pub mod frames;
mod hosts;
mod isolation;
mod loops;
mod paths;
mod redirects;
mod refused_connects;
mod responses;
mod siege;
mod smuggling;
mod streams;
mod strict;
mod waits;
