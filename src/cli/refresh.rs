//! `politely refresh AUTHORITY`: makes a running proxy fetch a robots.txt again, and the site's tdmrep.json and licence file if the proxy
//! uses them.

use super::admin_client::{AdminArgs, segment};
use super::{CommandError, Explained, Format, NO};
use crate::policy::Authority;
use serde_json::Value;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct RefreshArgs {
    /// The host, such as `https://example.com`; https if no scheme is given
    authority: String,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(super) fn run(args: &RefreshArgs) -> Result<ExitCode, CommandError> {
    let authority = Authority::named(&args.authority);
    let authority = authority.explained(format!("`{}`", args.authority), "write it as https://example.com")?;
    let answer = args.admin.ask("POST", &format!("/api/v1/authorities/{}/refresh", segment(&authority)))?;
    let word = |key: &str| answer.body[key].as_str().unwrap_or_default();
    let mut out = match args.admin.format {
        Format::Json => super::inert_json(&format!("{:#}\n", answer.body)),
        Format::Text if answer.status != 200 => format!("not refreshed: {}\n", word("detail")),
        Format::Text => match word("failure") {
            "" => format!("{}: {} (status {})\n", word("robots_url"), word("access"), answer.body["status"]),
            failure => {
                let effect = effect_until_fetch(&answer.body);
                format!("{}: {failure}; until the next fetch succeeds: {effect}\n", word("robots_url"))
            }
        },
    };
    let others = ["tdmrep", "license"].map(|kind| &answer.body[kind]);
    for file in others {
        let (Format::Text, Some(url)) = (args.admin.format, file["url"].as_str()) else { continue };
        let said = file["failure"].as_str().or(file["fault"].as_str());
        out += &match (said, &file["status"]) {
            (Some(said), _) => format!("{url}: {said}\n"),
            (None, status) => format!("{url}: {} (status {status})\n", file["access"].as_str().unwrap_or_default()),
        }
    }
    super::print(&out)?;
    let has_failed = |file: &Value| !file["failure"].is_null();
    let done = answer.status == 200 && !has_failed(&answer.body) && !others.into_iter().any(has_failed);
    Ok(if done { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// Describes the rules that apply while the file cannot be fetched.
fn effect_until_fetch(body: &Value) -> &'static str {
    if body["usable"] == true {
        "the last good copy"
    } else {
        "nothing is allowed (after 30 days: `on_long_unreachable`)"
    }
}
