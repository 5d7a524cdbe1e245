//! `politely report`: a summary of the evidence for people: what was requested from which site, and what was refused.

mod csv;
mod html;
mod json;
mod overrides;
mod page;
mod training;

use super::evidence::{broken, directory, unreadable};
use super::{CommandError, ConfigArg, counted};
use crate::evidence::{By, Group, Selection, Verified, report};
use crate::rfc3339;
use page::{MOST_SHOWN, Page, let_through, meaning, named, refused as refused_how, undeclared};
pub(super) use page::{outcomes, size};
use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

#[derive(Debug, clap::Args)]
pub(super) struct ReportArgs {
    /// The directory of the evidence [default: evidence.directory of the configuration]
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
    /// The directory of the evidence, as an option
    #[arg(long, value_name = "DIR", conflicts_with = "directory")]
    evidence: Option<PathBuf>,
    #[command(flatten)]
    config: ConfigArg,
    #[command(flatten)]
    selection: Selection,
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// Output format; html is one self-contained page
    #[arg(long, value_enum, default_value_t)]
    format: Form,
}

#[derive(Debug, Clone, Copy, Default, clap::ValueEnum)]
enum Form {
    #[default]
    Text,
    Json,
    Html,
    /// Each request behind the figures, with its URL, whatever `--by` says
    Csv,
    /// A Markdown draft of what a crawler can contribute to the summary required by AI Act Art. 53(1)(d); it lists domains, whatever
    /// `--by` says
    TrainingSummary,
}

/// The exit code is 0, or 1 if the chain is broken, which the report also says.
pub(super) fn run(args: &ReportArgs) -> Result<ExitCode, CommandError> {
    let selection = &args.selection;
    if let (Some(since), Some(until)) = (selection.since, selection.until)
        && since >= until
    {
        let [since, until] = [since, until].map(rfc3339::millis);
        let what = format!("`--since` ({since}) is not before `--until` ({until})");
        return Err(CommandError::usage(
            what,
            "name an earlier `--since`: requests at the time of `--until` are not included",
        ));
    }
    let by = if matches!(args.format, Form::TrainingSummary) { By::Domain } else { args.by };
    let directory = directory(args.directory.as_deref().or(args.evidence.as_deref()), &args.config)?;
    let failed = |error| unreadable(&directory, &error);
    let code = |verified: &Verified| match verified.faults.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(super::NO),
    };
    let render: fn(&Page<'_>) -> String = match args.format {
        Form::Text => |page| super::inert(&text(page)),
        Form::Json => |page| super::inert_json(&format!("{:#}\n", json::all_as_json(page))),
        Form::Html => html::render,
        Form::TrainingSummary => training::render,
        Form::Csv => {
            let verified = csv::write(&directory, selection).map_err(failed)?.map_err(CommandError::not_written)?;
            if let Some(broken) = broken(&verified) {
                eprintln!("warning: {}: do not rely on these lines", super::inert(&broken));
            }
            return Ok(code(&verified));
        }
    };
    let mut report = report(&directory, by, selection).map_err(failed)?;
    if !matches!(args.format, Form::Text) {
        report.basis.read_files(&directory).map_err(failed)?;
    }
    let page = Page { directory: &directory, by, selection, made: SystemTime::now(), report: &report };
    super::print(&render(&page))?;
    Ok(code(&report.verified))
}

fn text(page: &Page<'_>) -> String {
    let report = page.report;
    let mut out = String::new();
    let total = &report.total;
    let whole = if report.verified.faults.is_empty() { "the chain is whole" } else { "THE CHAIN IS BROKEN" };
    match total.times {
        Some((from, to)) => {
            let _ = writeln!(
                out,
                "{}, {} to {}; {whole}",
                counted(total.requests, "request"),
                rfc3339::millis(from),
                rfc3339::millis(to)
            );
        }
        None => _ = writeln!(out, "no requests; {whole}"),
    }
    if report.lost > 0 {
        let _ = writeln!(out, "{} more requests are not recorded: the disk was full or too slow", report.lost);
    }
    let turned_away: u64 = report.turned_away.iter().map(|client| client.requests).sum();
    if turned_away > 0 {
        let are = if turned_away == 1 { "is" } else { "are" };
        let more = counted(turned_away, "more request");
        let _ = writeln!(out, "{more} from clients that may not use the proxy {are} not counted");
    }
    let _ = writeln!(
        out,
        "\n{:>9} {:>9} {:>6} {:>6} {:>8} {:>8} {:>9} {:>10}  {}",
        "requests",
        "delivered",
        "4xx",
        "5xx",
        "answered",
        "refused",
        "failed",
        "received",
        page.what()
    );
    for group in report.groups.iter().take(MOST_SHOWN) {
        let Group { requests, status_4xx, status_5xx, answered, refused, failed, .. } = group;
        let (delivered, received, name) = (group.delivered(), size(group.bytes_out), named(&group.name));
        let _ = writeln!(
            out,
            "{requests:>9} {delivered:>9} {status_4xx:>6} {status_5xx:>6} {answered:>8} {refused:>8} {failed:>9} {received:>10}  {name}"
        );
    }
    if report.groups.len() > MOST_SHOWN {
        let _ = writeln!(out, "… and {} more", report.groups.len() - MOST_SHOWN);
    }
    if total.refused > 0 {
        let _ = writeln!(out, "\n{} refused: {}", total.refused, refused_how(total));
    }
    if total.let_through > 0 {
        let _ = writeln!(out, "{}", let_through(total));
    }
    undeclared(total).iter().for_each(|said| _ = writeln!(out, "{said}"));
    let _ = writeln!(out, "\nwhy:");
    for (reason, count) in &total.reasons {
        let _ = writeln!(out, "{count:>9} {reason}: {}", meaning(reason));
    }
    out
}
