//! The rules of a shared cache (RFC 9111): whether an answer is stored, for how long it is fresh, and which requests it answers.
//! Pure; time is an argument.
//!
//! Does not use `http-cache-semantics` 3.0: it stores answers with `Private` and `NO-STORE`, as it compares directives case-sensitively; of
//! a field with several lines it keeps only the last, so that an `X-Robots-Tag` is lost; and it writes Date in a form that is not an HTTP
//! date. Does not use `pingora-cache` 0.9 either: its storage and locks have to be `'static`, and it supports neither Age nor the
//! Cache-Control of requests.

mod control;
mod range;
mod request_wish;
mod storable;
mod stored_head;

pub use control::CacheControl;
pub use range::BodyPart;
pub use request_wish::{Wanted, is_of_one_client};
pub use stored_head::{Received, StoredHead};
