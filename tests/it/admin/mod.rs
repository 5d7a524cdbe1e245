//! The admin address.

pub mod address;
mod admin_limits;
mod watching;
