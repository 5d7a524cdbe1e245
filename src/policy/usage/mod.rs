//! What a site says about the use of its content, beside robots.txt: in the heads of its answers and in its tdmrep.json. Pure.

mod answer;
mod field;
pub mod offer;
mod report;
pub(super) mod tdmrep;

pub use answer::{UsageLines, Use};
pub use field::{Signal, UsageField, UsageModes};
pub use report::UsageReport;
