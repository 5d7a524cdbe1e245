//! The admin address.

mod address;
mod admin_limits;
mod watching;
