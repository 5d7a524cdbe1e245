//! Pacing: the gaps between requests to a site, and the queue.

mod groups;
mod pacing;
mod pacing_keys;
mod pacing_many;
mod stress;
mod waiting;
