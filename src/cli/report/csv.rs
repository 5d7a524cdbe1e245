//! `--format csv`: the requests behind a report's figures, with their URLs, one a line (RFC 4180, lines ended as on this system).

use crate::cli::inert;
use crate::evidence::{Found, ReadError, Selection, each_counted};
use crate::rfc3339;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes to standard output, record by record: however many there are, none is left out. The inner result is that of writing.
pub(super) fn write(directory: &Path, selection: &Selection) -> Result<io::Result<()>, ReadError> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut written = writeln!(out, "{}", COLUMNS.join(","));
    let read = each_counted(directory, selection, |found| {
        if written.is_ok() {
            written = writeln!(out, "{}", row(found).map(|it| cell(&it)).join(","));
        }
        written.as_ref().copied().map_err(|error| error.kind().into())
    });
    if written.is_ok() {
        read?;
        written = out.flush();
    }
    Ok(written)
}

const COLUMNS: [&str; 19] = [
    "time",
    "figure",
    "url",
    "status",
    "site_status",
    "bytes",
    "reason",
    "rule",
    "method",
    "client",
    "user",
    "product_tokens",
    "purpose",
    "record",
    "sent",
    "held_ms",
    "verdict",
    "decided_by",
    "agent",
];

fn row(found: &Found) -> [String; COLUMNS.len()] {
    let Found { segment, line, came, decision } = found;
    let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
    let sent = decision.sent_ms.map(|_| found.at());
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        rfc3339::millis(*came),
        decision.figure().as_str().to_owned(),
        text(&decision.url),
        decision.status.to_string(),
        number(decision.site_status().map(u64::from)),
        number(decision.site_bytes()),
        text(&decision.reason),
        text(&decision.named_rule()),
        text(&decision.method),
        decision.client.clone(),
        text(&decision.user),
        decision.product_tokens.join(" "),
        decision.purpose.join(" "),
        format!("segment {segment} line {line}"),
        sent.map_or_else(String::new, rfc3339::millis),
        decision.held_ms.to_string(),
        text(&decision.verdict),
        text(&decision.decided_by()),
        text(&decision.agent),
    ]
}

/// Quoted where it has to be. What a spreadsheet would take for a formula begins with an apostrophe.
fn cell(text: &str) -> String {
    let text = inert(text);
    let formula = if text.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    match text.contains(['"', ',', '\n']) {
        true => format!("\"{formula}{}\"", text.replace('"', "\"\"")),
        false => format!("{formula}{text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_written_is_one_cell_and_no_formula() {
        for (text, shown) in [
            ("https://a.example/x", "https://a.example/x"),
            ("a,b", "\"a,b\""),
            ("say \"no\"", "\"say \"\"no\"\"\""),
            ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
            ("a\r\u{202e}b", "a\\u{d}\\u{202e}b"),
            ("a\nb", "\"a\nb\""),
            ("", ""),
        ] {
            assert_eq!(cell(text), shown, "{text:?}");
        }
    }
}
