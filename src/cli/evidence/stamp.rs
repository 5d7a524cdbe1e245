//! `politely evidence stamp`: gets a time stamp of the chain's head (RFC 3161 §3.4). Plain HTTP suffices, as the answer is signed.

use super::source::{EvidenceArg, authorities, unreadable};
use crate::cli::http_client::{connect, exchange};
use crate::cli::{CommandError, Explained, print};
use crate::evidence::{MOST_RESPONSE, Stamp, check, digits, query, verify};
use crate::rfc3339;
use ring::rand::{SecureRandom, SystemRandom};
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use url::{Position, Url};

#[derive(Debug, clap::Args)]
pub(super) struct StampArgs {
    #[command(flatten)]
    evidence: EvidenceArg,
    /// The time-stamping authority, such as `http://tsa.example/tsr`
    #[arg(long, value_name = "URL", value_parser = parse_tsa)]
    tsa: Url,
    /// PEM file of the authorities that the time stamp must come from
    #[arg(long, value_name = "FILE")]
    tsa_ca: Option<PathBuf>,
}

pub(super) fn run(args: &StampArgs) -> Result<ExitCode, CommandError> {
    let directory = args.evidence.directory()?;
    let authorities = args.tsa_ca.as_deref().map_or(Ok(Vec::new()), authorities)?;
    let verified = verify(&directory, &[]).map_err(|error| unreadable(&directory, &error))?;
    if !verified.faults.is_empty() {
        let what = format!("the chain in {} is broken, so its head is not worth a time stamp", directory.display());
        return Err(CommandError::usage(what, "`politely evidence verify` says where"));
    }
    let (head, name) = (verified.head, digits(&verified.head));
    if verified.stamps.iter().any(|stamp| stamp.head == head) {
        return print(&format!("the head {name} has a time stamp already\n"));
    }
    let mut nonce = [0; 8];
    SystemRandom::new().fill(&mut nonce).map_err(|_| io::Error::other("the system has no random numbers"))?;
    let hint = "name an authority that answers RFC 3161 over http, and see whether it can be reached from here";
    let response = ask(&args.tsa, &query(&head, nonce)).explained(format!("no time stamp from {}", args.tsa), hint)?;
    let hint = match authorities.is_empty() {
        true => "nothing was stored; name an authority that answers RFC 3161",
        false => "nothing was stored; `--tsa-ca` must contain the authority's certificate, or its issuer's",
    };
    let time = check(&response, &head, Some(nonce), &authorities);
    let time = time.explained(format!("the answer of {} cannot be used", args.tsa), hint)?;
    let path = Stamp::store(&directory, verified.head_segment, &head, &response);
    let path = path.explained("the time stamp cannot be stored", "check the disk and the directory's permissions")?;
    let path = path.map_or(String::new(), |path| format!("\n  stored:  {}", path.display()));
    print(&format!("  head:    {name}\n  stamped: {}{path}\n", rfc3339::millis(time)))
}

fn parse_tsa(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{error}: write http://HOST/PATH"))?;
    match url.scheme() {
        "http" if !url.username().is_empty() || url.password().is_some() => {
            Err("an authority that asks for a password is not supported".to_owned())
        }
        "http" => Ok(url),
        other => Err(format!("`{other}` is not supported: plain http is enough, as the answer is signed")),
    }
}

/// Sends the query over HTTP/1.0 to the authority's addresses in turn, until one answers, within [`PATIENCE`].
fn ask(url: &Url, query: &[u8]) -> io::Result<Vec<u8>> {
    let head = format!(
        "POST {} HTTP/1.0\r\nHost: {}\r\nUser-Agent: politely/{}\r\nContent-Type: application/timestamp-query\r\n\
         Accept: application/timestamp-reply\r\nContent-Length: {}\r\n\r\n",
        &url[Position::BeforePath..Position::AfterQuery],
        &url[Position::BeforeHost..Position::AfterPort],
        env!("CARGO_PKG_VERSION"),
        query.len(),
    );
    let request = [head.as_bytes(), query].concat();
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    let until = Instant::now() + PATIENCE;
    for address in url.socket_addrs(|| None)? {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        match connect(address).and_then(|stream| exchange(stream, &request, left, MOST_RESPONSE as usize)) {
            Ok((200, body)) => return Ok(body),
            Ok((status, _)) => return Err(io::Error::other(format!("it answers with status {status}"))),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

const PATIENCE: Duration = Duration::from_secs(30);
