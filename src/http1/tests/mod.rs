//! The readers and writers of HTTP/1, by what RFC 9112 says of messages.

mod bodies;
mod requests;
mod responses;
