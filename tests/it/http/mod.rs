//! HTTP in and out: messages, bodies, connections and versions, with raw clients and the real curl on one side and raw
//! origins on the other.

mod answers;
mod big_bodies;
mod broken_origins;
mod connect;
mod exchange;
mod fields;
mod foreign;
mod forward;
mod framing;
mod h2_clients;
mod h2_floods;
mod h2_opening;
mod h2_origins;
mod heads;
mod leaving;
mod messages;
mod own_answers;
mod rewritten;
mod trailers;
mod versions;
mod websocket;
