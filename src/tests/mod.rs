//! Support for unit tests.

pub mod memory;
