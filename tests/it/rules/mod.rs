//! What sites say, and what follows for which request.

mod decide;
mod licences;
mod mining;
mod noted;
mod page;
mod usage;

pub use noted::{asked, counted};
