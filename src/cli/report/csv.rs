//! `--format csv`: the requests behind a report's figures, with their URLs, one a line (RFC 4180, lines ended as on this system).

use crate::cli::inert;
use crate::evidence::{Found, ReadError, Selection, each_counted};
use crate::rfc3339;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Writes to standard output, record by record: however many there are, none is left out.
pub(super) fn write(directory: &Path, selection: &Selection) -> Result<(), ReadError> {
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, "{}", COLUMNS.join(","))?;
    each_counted(directory, selection, |found| writeln!(out, "{}", row(found).map(|it| cell(&it)).join(",")))?;
    Ok(out.flush()?)
}

const COLUMNS: [&str; 14] = [
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
];

fn row(found: &Found) -> [String; COLUMNS.len()] {
    let Found { segment, line, time, decision } = found;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        rfc3339::millis(*time),
        decision.figure().as_str().to_owned(),
        text(&decision.url),
        decision.status.to_string(),
        decision.site_status().map_or_else(String::new, |status| status.to_string()),
        decision.bytes_out.to_string(),
        text(&decision.reason),
        text(&decision.rule),
        text(&decision.method),
        decision.client.clone(),
        text(&decision.user),
        decision.product_tokens.join(" "),
        decision.purpose.join(" "),
        format!("segment {segment} line {line}"),
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
