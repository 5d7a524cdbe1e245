//! Buffers and timers, for clients and origins.

mod buffer;
mod scratch;
mod timer;

pub use buffer::Buffer;
pub use scratch::Scratch;
pub use timer::Timer;
