//! `--format csv`: one line for each request behind a report's figures, with its URL (RFC 4180, but with this system's line endings).

use crate::cli::inert;
use crate::evidence::{Found, ReadError, Selection, Verified, report_each};
use crate::rfc3339;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes all records to standard output, one at a time, and verifies the chain. Outer `Err`: the evidence cannot be read. Inner `Err`: the
/// output cannot be written.
pub(super) fn write(directory: &Path, selection: &Selection) -> Result<io::Result<Verified>, ReadError> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut written = writeln!(out, "{}", COLUMNS.map(|(name, _)| name).join(","));
    let verified = report_each(directory, selection, |found| {
        if written.is_ok() {
            written = writeln!(out, "{}", COLUMNS.map(|(_, of)| cell(&of(found))).join(","));
        }
    })?;
    Ok(written.and_then(|()| out.flush()).map(|()| verified))
}

/// A column's name and cell.
type CsvColumn = (&'static str, fn(&Found) -> String);

const COLUMNS: [CsvColumn; 19] = [
    ("time", |found| rfc3339::millis(found.came)),
    ("figure", |found| found.decision.figure().as_str().to_owned()),
    ("url", |found| or_empty(found.decision.url.clone())),
    ("status", |found| found.decision.status.to_string()),
    ("site_status", |found| or_empty(found.decision.site_status())),
    ("bytes", |found| or_empty(found.decision.site_bytes())),
    ("reason", |found| or_empty(found.decision.reason.clone())),
    ("rule", |found| or_empty(found.decision.named_rule())),
    ("method", |found| or_empty(found.decision.method.clone())),
    ("client", |found| found.decision.client.clone()),
    ("user", |found| or_empty(found.decision.user.clone())),
    ("product_tokens", |found| found.decision.product_tokens.join(" ")),
    ("purpose", |found| found.decision.purpose.join(" ")),
    ("record", |Found { segment, line, .. }| format!("segment {segment} line {line}")),
    ("sent", |found| or_empty(found.decision.sent_ms.map(|_| rfc3339::millis(found.at())))),
    ("held_ms", |found| found.decision.held_ms.to_string()),
    ("verdict", |found| or_empty(found.decision.verdict.clone())),
    ("decided_by", |found| or_empty(found.decision.decided_by())),
    ("agent", |found| or_empty(found.decision.agent.clone())),
];

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

/// Formats a cell, in quotes if necessary. Puts an apostrophe before what a spreadsheet would take for a formula, also after `;`: a
/// spreadsheet that separates cells at `;` ignores the quotes.
fn cell(text: &str) -> String {
    let text = inert(text).replace('\n', "\\u{a}");
    let is_formula = |piece: &str| piece.trim_start_matches(['"', ' ']).starts_with(['=', '+', '-', '@']);
    let pieces = text.split(';').map(|piece| if is_formula(piece) { format!("'{piece}") } else { piece.to_owned() });
    let text = pieces.collect::<Vec<_>>().join(";");
    if text.contains(['"', ',']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untrusted_text_is_one_csv_cell_and_not_a_formula() {
        for (text, shown) in [
            ("https://a.example/x", "https://a.example/x"),
            ("a,b", "\"a,b\""),
            ("say \"no\"", "\"say \"\"no\"\"\""),
            ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
            ("a\r\u{202e}b", "a\\u{d}\\u{202e}b"),
            ("a\n=b", "a\\u{a}=b"),
            ("a\t=b", "a\\u{9}=b"),
            // In a spreadsheet that separates cells at `;`, each of these formulas would begin a cell.
            ("https://a.example/x?;=cmd|calc", "https://a.example/x?;'=cmd|calc"),
            ("a;b;+1;-1;@x", "a;b;'+1;'-1;'@x"),
            ("a;\"=1\"", "\"a;'\"\"=1\"\"\""),
            ("/;jsessionid=1?a=b", "/;jsessionid=1?a=b"),
            ("", ""),
        ] {
            assert_eq!(cell(text), shown, "{text:?}");
        }
    }
}
