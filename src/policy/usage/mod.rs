//! Reads what a site says about the use of its content: in robots.txt groups for a purpose, in the heads of answers and
//! pages, in tdmrep.json and in licence files. Pure.

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
