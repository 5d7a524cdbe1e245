//! `politely lint`: shows a robots.txt's faults, line by line, in the style of a compiler.

use super::{CommandError, ConfigArg, Explained, Format, NO, block_on, inert, read_or_input};
use crate::config::Settings;
use crate::policy::{Access, Authority, Entry, is_unseen};
use crate::robots::lint::{Finding, LintReport, Related, Severity, TextPlace};
use crate::robots::{ParseOptions, Precedence, ProductToken, RobotsTxt, UserAgentMatch};
use crate::server;
use crate::telemetry::is_colorful;
use annotate_snippets::{AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct LintArgs {
    /// A robots.txt file, `-` for standard input, or a URL: the robots.txt of its host, fetched at once, whatever the host's pace
    #[arg(value_name = "FILE|URL|-")]
    source: String,
    #[command(flatten)]
    config: ConfigArg,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: &LintArgs) -> Result<ExitCode, CommandError> {
    let (name, report) = if args.source.contains("://") {
        by_network(&args.source, &args.config)?
    } else {
        let hint = "`lint` takes a robots.txt, `-` for standard input, or a URL such as https://example.com/";
        let (name, bytes) = read_or_input(Path::new(&args.source), hint)?;
        let robots = RobotsTxt::parse(&bytes);
        (name, LintReport::with_policy_tokens(&robots, None, &policy_tokens(&args.config.load()?)))
    };
    match args.format {
        Format::Text => super::print(&text(&name, &report, is_colorful(&io::stdout())))?,
        Format::Json => super::print(&super::inert_json(&format!("{:#}\n", json(&name, &report))))?,
    };
    Ok(if report.findings().is_empty() { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// Fetches the file as the proxy does for a request: with the same address checks, redirects and limits. Parses it as most crawlers do,
/// whatever dialect is configured.
fn by_network(url: &str, config: &ConfigArg) -> Result<(String, LintReport), CommandError> {
    let hint = "write a complete URL, such as https://example.com/";
    let authority = Authority::from_url(url).explained(format!("`{url}`"), hint)?;
    let mut settings = config.load()?;
    settings.robots.user_agent_match = UserAgentMatch::default();
    settings.robots.precedence = Precedence::default();
    settings.robots.max_size = ParseOptions::MIN_SIZE as u64;
    let policy_tokens = policy_tokens(&settings);
    let entry = block_on(async {
        let gate = server::gate_alone(settings)?;
        gate.refresh(&authority).await.map_err(|why| CommandError::not_asked(&authority, &why))
    })??;
    if let Some(again) = entry.answer.as_ref().and_then(|answer| answer.asked_again) {
        let (first, version) = (again.first_status, again.first_version);
        eprintln!("note: the server answered {first} to the request over {version}; this is its answer over HTTP/1.1");
    }
    let host = authority.host().to_string();
    match entry.answer.as_ref().map(|answer| &answer.access) {
        Some(Access::Rules(robots)) => {
            Ok((authority.robots_url(), LintReport::with_policy_tokens(robots, Some(&host), &policy_tokens)))
        }
        Some(Access::Reservations(_) | Access::Licenses(_) | Access::Missing) | None => {
            Err(no_file(&authority, &entry))
        }
    }
}

fn policy_tokens(settings: &Settings) -> Vec<ProductToken> {
    settings.identity.policy_tokens.each().map(|(_, token)| token).collect()
}

fn no_file(authority: &Authority, entry: &Entry) -> CommandError {
    let url = authority.robots_url();
    match (&entry.trouble, &entry.answer) {
        (Some(trouble), _) => {
            let hint = "check the host name and the network; `egress` in the configuration says what may be reached";
            CommandError::usage(format!("cannot read {url}: {}", trouble.why), hint)
        }
        (None, Some(answer)) => {
            let hint = "without a file crawlers treat everything as allowed; create one, or lint a local file";
            CommandError::usage(format!("cannot read {url}: status {}", answer.status), hint)
        }
        (None, None) => CommandError::usage(format!("cannot read {url}"), "try again later"),
    }
}

fn json(name: &str, report: &LintReport) -> Value {
    let related = |related: &Related| {
        let TextPlace { line, column, .. } = related.place;
        json!({ "line": line, "column": column, "message": related.message })
    };
    let one = |found: &Finding| {
        let mut value = json!({
            "file": name,
            "line": found.place.line,
            "column": found.place.column,
            "code": found.code,
            "severity": found.severity.as_str(),
            "message": found.message,
            "hint": found.hint,
        });
        if let Some(other) = &found.related {
            value["related"] = related(other);
        }
        value
    };
    report.findings().iter().map(one).collect()
}

fn text(name: &str, report: &LintReport, color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let (mut out, name) = (String::new(), &*inert(name));
    for found in report.findings() {
        out += &render_finding(name, report, found, &renderer);
        out += "\n\n";
    }
    let count = |severity| report.findings().iter().filter(|found| found.severity == severity).count();
    let counted = |count: usize, one| super::counted(count as u64, one);
    out + &match (count(Severity::Error), count(Severity::Warning)) {
        (0, 0) => format!("{name}: no mistakes found\n"),
        (errors, warnings) => format!("{name}: {}, {}\n", counted(errors, "error"), counted(warnings, "warning")),
    }
}

/// Renders a finding. ASCII control characters are left to the renderer, which draws symbols for them.
fn render_finding(name: &str, report: &LintReport, found: &Finding, renderer: &Renderer) -> String {
    let level = match found.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let mut group = Group::with_title(level.primary_title(inert(&found.message)).id(found.code));
    group = group.element(excerpt(name, report, found.place, AnnotationKind::Primary, None));
    if let Some(Related { place, message }) = found.related {
        group = group.element(excerpt(name, report, place, AnnotationKind::Context, Some(message)));
    }
    let hint = Group::with_title(Level::HELP.with_name("hint").secondary_title(inert(&found.hint)));
    renderer.render(&[group]) + "\n" + &renderer.render(&[hint])
}

/// The finding's line up to [`SHOWN`] columns after the place, which is underlined. No line if the place is after column [`LONGEST`].
fn excerpt<'a>(
    name: &'a str,
    report: &LintReport,
    place: TextPlace,
    kind: AnnotationKind,
    label: Option<&'static str>,
) -> Element<'a> {
    if place.column > LONGEST {
        return Origin::path(name).line(place.line as usize).char_column(place.column as usize).into();
    }
    // Cuts off the rest of the line: the output repeats the line for each finding, of which one line may have a thousand.
    let shown = place.column - 1 + place.len + SHOWN;
    let is_hidden = |c: char| is_unseen(c) && !c.is_ascii();
    let line = report.line(place.line);
    let line = line.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).take(shown as usize).collect::<String>();
    let at = |column: u32| line.char_indices().nth(column as usize).map_or(line.len(), |(at, _)| at);
    let from = at(place.column - 1);
    let span = from..at(place.column - 1 + place.len).max(from);
    Snippet::source(line).path(name).line_start(place.line as usize).annotation(kind.span(span).label(label)).into()
}

/// Column beyond which a finding is shown without its line. Only a line with NULs can have findings there: the parser starts
/// anew after each NUL, and ignores what is more than 16 KiB after the start.
const LONGEST: u32 = 20_000;
/// Maximum number of columns shown after the place.
const SHOWN: u32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(file: &[u8]) -> String {
        text("robots.txt", &LintReport::new(&RobotsTxt::parse(file), None), false)
    }

    #[test]
    fn control_and_invisible_characters_are_escaped() {
        let unseen: String = (0..=0xffff).filter_map(char::from_u32).filter(|c| is_unseen(*c)).collect();
        let shown_of = |c: char| {
            [
                format!("User-agent: *\nDisallow: /a{c}b\nDisallow: /a{c}b\n"),
                format!("Disa{c}llow: /\n"),
                format!("User-agent: {c}\nUser-agent: {c}\n"),
                format!("Crawl-delay: {c}\n{c}\n"),
            ]
        };
        for file in unseen.chars().flat_map(shown_of) {
            let report = LintReport::new(&RobotsTxt::parse(file.as_bytes()), None);
            let text = text("robots\u{9b}.txt", &report, false)
                + &super::super::inert_json(&json("\u{202e}", &report).to_string());
            assert!(!text.contains(|c| is_unseen(c) && c != '\n'), "{file:?}: {text:?}");
        }
    }

    /// A NUL separates lines of rules without increasing the line number, so the first line may have a thousand findings.
    #[test]
    fn a_place_far_into_an_endless_line_is_shown_without_the_line() {
        let far = [&b"x".repeat(30_000)[..], b"\0here\n"].concat();
        assert!(shown(&far).contains("--> robots.txt:1:30002\nhint: "), "{}", shown(&far));
    }
}
