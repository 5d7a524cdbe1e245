//! What a site says about the use of its content, beside what crawlers may fetch: in groups of robots.txt
//! for a purpose, in the heads of its answers and of its pages, and in its tdmrep.json. Pure.

mod answer;
pub(super) mod entries;
mod field;
pub mod offer;
pub mod page;
mod page_encodings;
mod page_head;
mod page_tags;
pub(super) mod policy_tokens;
mod report;
mod robots_tag;

pub use answer::UsageLines;
pub use field::{Signal, UsageField, UsageModes, Use};
pub use report::UsageReport;
