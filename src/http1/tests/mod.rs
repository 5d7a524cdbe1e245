//! Tests of the HTTP/1 readers and writers against RFC 9112.

mod bodies;
mod requests;
mod responses;
