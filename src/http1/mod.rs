//! HTTP/1.1 messages (RFC 9112): readers for requests, answers and bodies, and functions that write them. Pure: bytes in,
//! borrowed pieces out; no I/O, and no knowledge of the purpose of a message.
//!
//! A head is read in a synchronous function, into a [`FieldRoom`] on that function's stack, so that the array of fields never
//! becomes part of a future:
//!
//! ```
//! use politely::http1::{Framing, FieldRoom, read_request};
//!
//! let input = b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello";
//! let (mut scanned, mut room) = (0, FieldRoom::new());
//! let head = read_request(input, &mut scanned, 64 * 1024, &mut room)?.expect("it is whole");
//! assert_eq!((head.method, head.framing), ("POST", Framing::Length(5)));
//! assert_eq!(&input[head.len..], b"hello");
//! # Ok::<(), politely::http1::HeadError>(())
//! ```
//!
//! Requests are read strictly: a head that two readers could read in two ways is refused. Answers are accepted if they have
//! only one meaning, and [`read_response`] normalises their fields.

mod body;
mod chunked;
mod field_lines;
mod fields;
mod request;
mod response;
mod scan;
mod write;

pub use body::{Body, BodyError, Framing};
pub use chunked::within_trailer_limits;
pub use field_lines::FieldLines;
pub use fields::{Field, FieldKind, FieldRoom, find_field, list};
pub use request::{RequestHead, find_request_end, read_request, read_whole_request};
pub use response::{ResponseHead, read_response};
pub use scan::{below, equal, number};
pub use write::{put_chunk_head, put_field, put_last_chunk, put_number, put_status_line};

/// Maximum number of fields in a head.
pub const MAX_FIELDS: usize = 1024;
/// Maximum number of interim answers before the final one: two are common (100 and 103), and each restarts the wait.
pub const MAX_INTERIM: u32 = 32;

/// Why a head cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    #[error("the head is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("more than {MAX_FIELDS} header fields")]
    TooManyFields,
    #[error("{0}")]
    Malformed(&'static str),
}

#[cfg(test)]
mod tests;
