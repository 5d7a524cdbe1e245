//! How often a site is asked, and who waits.

mod groups;
mod pacing;
mod pacing_keys;
mod pacing_many;
mod stress;
mod waiting;
