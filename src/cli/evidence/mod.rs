//! `politely evidence`: verifies the chain of decisions, has its head time-stamped, and prints stored files.

mod source;
mod stamp;

pub(super) use source::{directory, unreadable};

use super::{CommandError, Explained, Format, NO, counted};
use crate::evidence::{Fault, Hash, Stamp, Verified, digits, from_hex, stored_file, verify};
use crate::rfc3339;
use serde_json::json;
use source::EvidenceArg;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct EvidenceArgs {
    #[command(subcommand)]
    command: EvidenceCommand,
}

#[derive(Debug, clap::Subcommand)]
enum EvidenceCommand {
    /// Check whether anything was changed, removed or lost. Exit code 1 if so
    Verify(Verify),
    /// Have a time-stamping authority (RFC 3161) sign the chain's head, and store the stamp beside the segments
    Stamp(stamp::StampArgs),
    /// Print a file that records refer to, such as a robots.txt, by the SHA-256 that `explain --at` and `report` show
    File(FileArgs),
}

#[derive(Debug, clap::Args)]
struct FileArgs {
    /// SHA-256 of the file, in hexadecimal
    #[arg(value_name = "SHA256", value_parser = parse_head)]
    sha256: Hash,
    #[command(flatten)]
    evidence: EvidenceArg,
}

#[derive(Debug, clap::Args)]
struct Verify {
    #[command(flatten)]
    evidence: EvidenceArg,
    /// A head that was noted elsewhere and must be in the chain; may be given several times
    #[arg(long = "head", value_name = "SHA256", value_parser = parse_head)]
    heads: Vec<Hash>,
    /// PEM file of the authorities that time stamps must come from; without it, their signatures are only checked for consistency
    #[arg(long, value_name = "FILE")]
    tsa_ca: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(args: &EvidenceArgs) -> Result<ExitCode, CommandError> {
    let args = match &args.command {
        EvidenceCommand::Verify(args) => args,
        EvidenceCommand::Stamp(args) => return stamp::run(args),
        EvidenceCommand::File(args) => return file(args),
    };
    let directory = args.evidence.directory()?;
    let authorities = args.tsa_ca.as_deref().map_or(Ok(Vec::new()), source::authorities)?;
    let verified = verify(&directory, &args.heads).map_err(|error| unreadable(&directory, &error))?;
    let untrusted = |stamp: &Stamp| {
        let error = stamp.authenticate(&authorities).err()?;
        let what = format!("the time stamp {}: {error}", stamp.path.display());
        Some(Fault { segment: stamp.segment, line: None, what })
    };
    let untrusted = args.tsa_ca.as_ref().map(|_| verified.stamps.iter().filter_map(untrusted).collect::<Vec<_>>());
    match args.format {
        Format::Text => super::print(&text(&directory, &verified, untrusted.as_deref()))?,
        Format::Json => {
            let mut all = as_json(&verified);
            all["untrusted_stamps"] = json!(untrusted);
            super::print(&super::inert_json(&format!("{all:#}\n")))?
        }
    };
    let is_good = verified.faults.is_empty() && untrusted.is_none_or(|all| all.is_empty());
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// Prints a stored file: byte for byte, but on a terminal with control characters escaped.
fn file(args: &FileArgs) -> Result<ExitCode, CommandError> {
    let directory = args.evidence.directory()?;
    let hint = "`politely explain URL --at TIME` names the files of a site by their SHA-256";
    let what = format!("the file {} in {}", digits(&args.sha256), directory.display());
    let bytes = stored_file(&directory, None, &args.sha256).explained(what, hint)?;
    match io::stdout().is_terminal() {
        true => super::print(&super::inert(&String::from_utf8_lossy(&bytes))),
        false => super::print_bytes(&bytes),
    }
}

/// A sentence that the chain is broken, with the first fault. `None`: the chain is whole.
pub(super) fn broken(verified: &Verified) -> Option<String> {
    verified.faults.first().map(|fault| format!("the chain of the evidence is broken ({fault})"))
}

fn parse_head(text: &str) -> Result<Hash, &'static str> {
    from_hex(text).ok_or("a SHA-256 has 64 digits, 0 to 9 and a to f")
}

/// Formats the result. `untrusted`: time stamps that the authorities of `--tsa-ca` did not sign; `None` without `--tsa-ca`.
fn text(directory: &Path, verified: &Verified, untrusted: Option<&[Fault]>) -> String {
    let Verified { segments, records, times, head, lost, removed_to, unclean, is_written, is_cut, bodies, .. } =
        verified;
    let Verified { zeros, others, faults, stamps, .. } = verified;
    let distrusted = untrusted.unwrap_or_default();
    let mut out = String::new();
    let broken = first(faults, |fault| format!("broken: {fault}"));
    broken.chain(first(distrusted, |fault| format!("not trusted: {fault}"))).for_each(|line| out += &(line + "\n"));
    let verdict = if faults.is_empty() { "whole" } else { "BROKEN" };
    let stamped = match distrusted.len() {
        0 => String::new(),
        count => format!("; {} NOT TRUSTED, by `--tsa-ca`", counted(count as u64, "time stamp")),
    };
    out += &format!("{}: {verdict}{stamped}\n", directory.display());
    let by = match untrusted {
        Some(_) => "",
        None => ", by an authority that was not verified: name it with `--tsa-ca FILE`",
    };
    let period = |(from, to): &(_, _)| format!("{} to {}", rfc3339::millis(*from), rfc3339::millis(*to));
    let said = |is: bool, what: &str| is.then(|| what.to_owned()).into_iter().collect();
    let rows: [(&str, Vec<String>); 9] = [
        (
            "records",
            vec![format!(
                "{records} in {}, which refer to {}",
                counted(*segments, "segment"),
                counted(*bodies, "file")
            )],
        ),
        ("period", times.iter().map(|times| format!("{}, by arrival of the requests", period(times))).collect()),
        (
            "lost",
            lost.iter()
                .map(|(count, from, to)| match count {
                    0 => format!(
                        "perhaps records that were not yet on the disk at {}: fsync failed",
                        rfc3339::millis(*to)
                    ),
                    count => format!("{} of {}", counted(*count, "record"), period(&(*from, *to))),
                })
                .chain(
                    (*zeros > 0)
                        .then(|| format!("the last records: a power cut has left {zeros} zero bytes in their place")),
                )
                .collect(),
        ),
        ("removed", removed_to.iter().map(|last| format!("segments up to {last}, as a record says")).collect()),
        ("killed", said(*unclean > 0, &format!("the proxy ended {} without closing the chain", times_of(*unclean)))),
        ("cut", said(*is_cut, "the last line is incomplete; the next start records this in the chain")),
        ("open", said(*is_written, "a proxy writes to it now")),
        (
            "stamped",
            stamps.iter().map(|it| format!("{} at {}{by}", digits(&it.head), rfc3339::millis(it.time))).collect(),
        ),
        ("other", first(others, |other| format!("{} is not part of the evidence", other.display())).collect()),
    ];
    for (name, said) in rows {
        said.iter().for_each(|said| out += &format!("  {:<9} {said}\n", format!("{name}:")));
    }
    if faults.is_empty() {
        out += &format!("  head:     {}\n", digits(head));
    }
    super::inert(&out)
}

/// Formats the first [`MOST_SHOWN`] items of `all`, and the number of further ones.
fn first<T>(all: &[T], shown: impl Fn(&T) -> String) -> impl Iterator<Item = String> {
    let more = all.len().saturating_sub(MOST_SHOWN);
    all.iter().take(MOST_SHOWN).map(shown).chain((more > 0).then(|| format!("… and {more} more")))
}

pub(super) fn as_json(verified: &Verified) -> serde_json::Value {
    let stamped = |stamp: &Stamp| {
        json!({
            "segment": stamp.segment, "head": digits(&stamp.head), "time": rfc3339::millis(stamp.time), "file": stamp.path,
        })
    };
    let lost = |(count, from, to): &(u64, _, _)| json!({ "count": count, "from": rfc3339::millis(*from), "to": rfc3339::millis(*to) });
    json!({
        "whole": verified.faults.is_empty(),
        "faults": verified.faults,
        "segments": verified.segments,
        "records": verified.records,
        "bodies": verified.bodies,
        "from": verified.times.map(|(from, _)| rfc3339::millis(from)),
        "to": verified.times.map(|(_, to)| rfc3339::millis(to)),
        "lost": verified.lost.iter().map(lost).collect::<Vec<_>>(),
        "removed_to": verified.removed_to,
        "unclean": verified.unclean,
        "cut": verified.is_cut,
        "zeros": verified.zeros,
        "open": verified.is_written,
        "stamps": verified.stamps.iter().map(stamped).collect::<Vec<_>>(),
        "others": verified.others,
        "head": verified.faults.is_empty().then(|| digits(&verified.head)),
    })
}

pub(super) fn times_of(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// Maximum number of faults shown, and of other files.
const MOST_SHOWN: usize = 50;
