//! Compares the validators of an answer, ETag and Last-Modified, with a request's conditions or a 304 (RFC 9110 §8.8.3, §13.1.2). Pure.

use super::date::http_date;

/// Whether one of the tags in these values matches, by weak comparison; `*` matches any.
pub fn matches(values: &[&[u8]], etag: Option<&[u8]>) -> bool {
    let etag = etag.map(opaque);
    values.iter().flat_map(|value| list(value)).any(|tag| tag == b"*" || Some(opaque(tag)) == etag)
}

/// Whether the client already has the answer with these validators (§13.2.2): If-None-Match decides if present, else If-Modified-Since.
pub fn is_known(
    none_match: &[&[u8]],
    modified_since: Option<&[u8]>,
    etag: Option<&[u8]>,
    modified: Option<&[u8]>,
) -> bool {
    let dates = || modified.and_then(http_date).zip(modified_since.and_then(http_date));
    match none_match {
        [] => dates().is_some_and(|(modified, since)| modified <= since),
        tags => matches(tags, etag),
    }
}

/// Whether a 304 may confirm a stored answer: its validators (the second pair) do not contradict those of the stored answer (the first
/// pair).
pub fn is_confirmed([etag, modified]: [Option<&[u8]>; 2], [said_etag, said_modified]: [Option<&[u8]>; 2]) -> bool {
    match said_etag {
        Some(said) => matches(&[said], etag),
        None => said_modified.is_none_or(|said| modified == Some(said)),
    }
}

/// Splits at commas outside quotes.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut is_quoted = false;
    let ends = move |byte: &u8| {
        is_quoted ^= *byte == b'"';
        *byte == b',' && !is_quoted
    };
    value.split(ends).map(<[u8]>::trim_ascii)
}

fn opaque(tag: &[u8]) -> &[u8] {
    let tag = tag.trim_ascii();
    tag.strip_prefix(b"W/").unwrap_or(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tag_is_found_in_a_list() {
        for (values, etag, is_found) in [
            (&["\"a\""][..], "\"a\"", true),
            (&["W/\"a\""], "\"a\"", true),
            (&["\"a\""], "W/\"a\"", true),
            (&["\"b\", \"a\""], "\"a\"", true),
            (&["\"b\"", " \"a\" "], "\"a\"", true),
            (&["\"a,b\""], "\"a,b\"", true),
            (&["\"c\" , W/\"a, b\",\"d\""], "\"a, b\"", true),
            (&["\"a,b\""], "\"b\"", false),
            (&["\"a,\"b\""], "\"b\"", false),
            (&["\"a"], "\"a\"", false),
            (&["*"], "\"a\"", true),
            (&["\"*\""], "\"a\"", false),
            (&["w/\"a\""], "\"a\"", false),
            (&["", ","], "\"a\"", false),
        ] {
            let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
            assert_eq!(matches(&values, Some(etag.as_bytes())), is_found, "{values:?} {etag}");
        }
        assert!(matches(&[b"*"], None) && !matches(&[b"\"a\""], None) && !matches(&[b""], None));
    }
}
