//! Bytes and deadlines, the same for clients and origins.

mod buffer;
mod timer;

pub use buffer::Buffer;
pub use timer::Timer;
