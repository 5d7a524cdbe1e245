//! `politely serve` from outside: start and end, reloads, logs, users, bounds, evidence.

pub mod access;
mod access_log;
mod client_certificates;
mod event_log;
mod evidence;
mod evidence_disk;
mod evidence_handover;
mod evidence_signed;
mod lifecycle;
mod limits;
mod logging;
mod reload;
mod report;
mod timestamp;
