//! The rules of sites, and the decisions that follow from them.

mod decide;
mod licences;
mod mining;
mod noted;
mod page;
mod usage;

pub use noted::{asked, counted};
