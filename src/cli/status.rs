//! `politely status`: a running proxy's hosts, waits and refusals.

use super::admin_client::AdminArgs;
use super::{CommandError, Format, NO, counted, inert};
use crate::config::units::{parse_size, show_size};
use serde_json::Value;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Print nothing: exit with 0 if the proxy accepts requests, with 1 while it shuts down
    #[arg(long)]
    ready: bool,
    #[command(flatten)]
    admin: AdminArgs,
}

pub(super) fn run(args: &StatusArgs) -> Result<ExitCode, CommandError> {
    let StatusArgs { ready, admin } = args;
    if *ready {
        return Ok(if admin.is_ready()? { ExitCode::SUCCESS } else { ExitCode::from(NO) });
    }
    let answer = admin.ask("GET", "/api/v1/status")?;
    if answer.status == 200 && answer.body["version"].is_null() || answer.status == 400 {
        return Err(CommandError::usage(
            "the answer does not come from an admin address",
            "see `admin.address` in the configuration",
        ));
    }
    super::print(&match admin.format {
        Format::Text => {
            let (address, secret) = (&answer.address, secret(answer.token.as_deref()));
            format!("{}\ndashboard: http://{address}/{secret}\n", text(&answer.body))
        }
        Format::Json => super::inert_json(&format!("{:#}\n", answer.body)),
    })?;
    Ok(if answer.status == 200 { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// The URL fragment with the token, by which the dashboard opens without a prompt. Only for a terminal, as the token must not get into a
/// file.
fn secret(token: Option<&str>) -> String {
    token.filter(|_| io::stdout().is_terminal()).map_or(String::new(), |token| format!("#{token}"))
}

fn text(status: &Value) -> String {
    let number = |pointer: &str| status.pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    let word = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut out =
        format!("politely {}, up {} s, mode {}\n", word(&status["version"]), number("/uptime"), word(&status["mode"]));
    if let Some(failure) = status["reload_failure"].as_object() {
        let (at, error) = (word(&failure["at"]), word(&failure["error"]));
        let kept = "not reloaded, and the older configuration is in force";
        let what = if error.starts_with("needs a restart") { "reloaded in part" } else { kept };
        let _ = writeln!(out, "warning: {what} ({at}): {}", inert(&error));
    }
    if let Some(via) = status["via"].as_str() {
        let _ = writeln!(out, "name in Via: {}", inert(via));
    }
    if let Some(agent) = status.pointer("/signature/agent").and_then(Value::as_str) {
        let key = status.pointer("/signature/key").map_or_else(String::new, word);
        let _ = writeln!(out, "signs requests as {} with the key {key}", inert(agent));
    }
    if let Some(warning) = status.pointer("/ca/warning").and_then(Value::as_str) {
        let _ = writeln!(out, "warning: {}", inert(warning));
    }
    let (forwarded, failed) = (number("/requests/forwarded"), number("/requests/failed"));
    let _ = write!(out, "requests: {forwarded} forwarded, {failed} failed");
    let gone = number("/requests/client_gone");
    if gone > 0 {
        let _ = write!(out, ", {gone} aborted by clients");
    }
    for (slug, count) in status.pointer("/requests/refused").and_then(Value::as_object).into_iter().flatten() {
        let _ = write!(out, ", {count} {slug}");
    }
    let (authorities, files) = (number("/robots/authorities"), number("/robots/files"));
    let _ = writeln!(out, "\nwaiting: {}", number("/waiting"));
    let _ = writeln!(
        out,
        "robots.txt: {}, {}, {} KiB",
        counted(authorities, "authority"),
        counted(files, "different file"),
        number("/robots/memory") / 1024
    );
    if status["fleet"]["up"] == true {
        let (instances, missing) = (counted(number("/fleet/instances"), "instance"), number("/fleet/missing"));
        let _ = writeln!(out, "fleet: {instances}, {missing} missing");
    } else if !status["fleet"].is_null() {
        out.push_str("warning: the fleet's server cannot be reached; the log says why\n");
    }
    let is_failing = status["cache"]["failing"] == true;
    if status["cache"]["up"] == true || is_failing {
        let _ = writeln!(
            out,
            "cache: {}, {} of {} MiB; {} hits, {} revalidated, {} misses",
            counted(number("/cache/entries"), "page"),
            number("/cache/bytes") >> 20,
            number("/cache/max_bytes") >> 20,
            number("/cache/hits"),
            number("/cache/revalidated"),
            number("/cache/misses")
        );
        if is_failing {
            out.push_str("warning: the cache could not store the last answer; the log says why\n");
        }
    } else if !status["cache"].is_null() {
        out.push_str("cache: not in use yet, as its directory is being read or another process uses it\n");
    }
    for client in status.pointer("/distrusted/clients").and_then(Value::as_array).into_iter().flatten() {
        let (who, host, cure) = (word(&client["client"]), word(&client["host"]), word(&client["cure"]));
        let agent = client["user_agent"].as_str().map_or(String::new(), |agent| format!(" ({})", inert(agent)));
        let times = client["times"].as_u64().unwrap_or_default();
        let _ = writeln!(out, "{who}{agent} rejects the certificate for {host} ({}): {cure}", counted(times, "time"));
    }
    let users = status["users"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_in_table = |budget: &Value| users.iter().any(|user| user["budget"]["of"] == budget["of"]);
    for budget in status["budgets"].as_array().into_iter().flatten().filter(|budget| !is_in_table(budget)) {
        let _ = writeln!(out, "budget of {}: {}", word(&budget["of"]), spent(budget));
    }
    out += &user_table(users);
    let hosts = status["authorities"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !hosts.is_empty() {
        let _ = writeln!(out, "\n{:<13} {:>8} {:>8} {:>8}  authority", "robots.txt", "age", "waiting", "next in");
    }
    for host in hosts {
        let age = host["age"].as_u64().map_or_else(|| "-".to_owned(), |age| format!("{age} s"));
        let next_in = host.pointer("/pace/owed").and_then(Value::as_f64).unwrap_or_default();
        let waiting = host.pointer("/pace/waiting").and_then(Value::as_u64).unwrap_or_default();
        let _ = write!(
            out,
            "{:<13} {age:>8} {waiting:>8} {next_in:>6.1} s  {}",
            word(&host["access"]),
            word(&host["authority"])
        );
        match host["failure"].as_str() {
            Some(failure) => _ = writeln!(out, ": {failure}"),
            None if host["html"] == true => out += ": an HTML page, which usually contains no rules\n",
            None => out.push('\n'),
        }
    }
    out
}

fn spent(budget: &Value) -> String {
    let number = |name: &str| budget[name].as_u64();
    let requests =
        number("max_requests").map(|most| format!("{} of {most} requests", number("requests").unwrap_or_default()));
    let bytes = number("max_bytes").map(|most| size_of_most(number("bytes").unwrap_or_default(), most));
    let promised = budget["promised"].as_str().zip(budget["max_promised"].as_str());
    let promised = promised.map(|(promised, most)| format!("{promised} of {most} promised"));
    let parts: Vec<_> = [requests, bytes, promised].into_iter().flatten().collect();
    format!("{} in the current {}", parts.join(", "), budget["per"].as_str().unwrap_or("period"))
}

/// Formats `1.5 of 10MiB`: in the unit of the configuration, rounded down.
fn size_of_most(bytes: u64, most: u64) -> String {
    let shown = show_size(most);
    let unit = shown.trim_start_matches(|c: char| c.is_ascii_digit());
    let tenths = match parse_size(&format!("1{unit}")) {
        Ok(size) if size > 1 => u128::from(bytes) * 10 / u128::from(size),
        Ok(_) | Err(_) => return format!("{bytes} of {most} bytes"),
    };
    format!("{}.{} of {shown}", tenths / 10, tenths % 10)
}

/// Formats one line per user, with the reasons of refusals and what is spent of the budget.
fn user_table(users: &[Value]) -> String {
    let mut out = String::new();
    if !users.is_empty() {
        let _ = writeln!(out, "\n{:>9} {:>9} {:>10} {:>11}  user", "requests", "refused", "waited", "bytes");
    }
    for user in users {
        let number = |name: &str| user[name].as_u64().unwrap_or_default();
        let refused = user["refused"].as_object().into_iter().flatten();
        let refused: Vec<_> = refused.map(|(slug, count)| (count.as_u64().unwrap_or_default(), slug)).collect();
        let sum: u64 = refused.iter().map(|(count, _)| count).sum();
        let (requests, waited) = (number("requests"), user["waited"].as_f64().unwrap_or_default());
        let name = user["user"].as_str().or(user["client"].as_str()).unwrap_or("-");
        let _ = write!(out, "{requests:>9} {sum:>9} {waited:>8.1} s {:>11}  {}", number("bytes"), inert(name));
        let reasons = refused.iter().map(|(count, slug)| format!("{count} {slug}"));
        let budget = user["budget"].is_object().then(|| format!("budget: {}", spent(&user["budget"])));
        let more: Vec<_> = reasons.chain(budget).collect();
        let _ = writeln!(out, "{}{}", if more.is_empty() { "" } else { ": " }, more.join(", "));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn status_text_shows_hosts_waits_and_refusals() {
        let told = text(&json!({
            "version": "1.0.0", "uptime": 5, "mode": "enforce", "waiting": 2,
            "reload_failure": { "at": "2026-01-02T03:04:05Z", "error": "politely.yaml:3:5: unknown key `\u{1b}`" },
            "requests": { "forwarded": 10, "failed": 1, "refused": { "robots-disallowed": 3 } },
            "cache": { "up": true, "entries": 3, "bytes": 5 << 20, "max_bytes": 10 << 20, "hits": 4, "misses": 9 },
            "robots": { "authorities": 1, "files": 1, "memory": 2048 },
            "fleet": { "up": true, "instances": 3, "missing": 1 },
            "budgets": [{ "of": "user=bob\u{1b}", "per": "hour", "bytes": 9, "max_bytes": 10 }, {
                "of": "user=alice", "per": "day", "requests": 7, "max_requests": 10, "bytes": 512, "max_bytes": null,
            }, { "of": "host=b.example", "per": "hour", "bytes": 1_677_721, "max_bytes": 2 << 20 }],
            "users": [
                {
                    "user": "bob\u{1b}", "client": null, "requests": 12, "refused": { "crawl-delay": 1, "robots-disallowed": 3 },
                    "waited": 2.25, "bytes": 4096, "budget": { "of": "user=bob\u{1b}", "per": "hour", "bytes": 9, "max_bytes": 10 },
                },
                { "user": null, "client": "192.0.2.9", "requests": 1, "refused": {}, "waited": 0, "bytes": 0, "budget": null },
            ],
            "distrusted": { "total": 3, "clients": [{
                "client": "192.0.2.1", "host": "https://a.example", "user_agent": "curl/8", "times": 3, "cure": "use it",
            }] },
            "authorities": [{
                "authority": "https://a.example", "access": "rules", "age": 7, "failure": "status 503",
                "pace": { "waiting": 2, "owed": 1.25 },
            }, { "authority": "https://b.example", "access": "rules", "html": true }],
        }));
        for part in [
            "warning: not reloaded, and the older configuration is in force (2026-01-02T03:04:05Z): politely.yaml:3:5: unknown key `\\u{1b}`\n",
            "10 forwarded, 1 failed, 3 robots-disallowed",
            "waiting: 2",
            "fleet: 3 instances, 1 missing\n",
            "cache: 3 pages, 5 of 10 MiB; 4 hits, 0 revalidated, 9 misses\n",
            "1 authority, 1 different file, 2 KiB",
            "budget of user=alice: 7 of 10 requests in the current day\n",
            "budget of host=b.example: 1.5 of 2MiB in the current hour\n",
            "       12         4      2.2 s        4096  bob\\u{1b}: 1 crawl-delay, 3 robots-disallowed, budget: 9 of 10 bytes in the \
             current hour\n",
            "        1         0      0.0 s           0  192.0.2.9\n",
            "next in  authority",
            "192.0.2.1 (curl/8) rejects the certificate for https://a.example (3 times): use it",
            "https://a.example: status 503",
            "https://b.example: an HTML page, which usually",
            " 1.2 s  https://a.example",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
        assert!(!told.contains("budget of user=bob"), "the table has this budget: {told}");
    }

    #[test]
    fn unwritable_cache_is_shown_as_in_use() {
        let cache = |up, failing| text(&json!({ "cache": { "up": up, "failing": failing, "entries": 3, "hits": 4 } }));
        assert!(cache(false, false).contains("cache: not in use yet"));
        let told = cache(false, true);
        assert!(told.contains("cache: 3 pages, ") && told.contains("; 4 hits"), "{told}");
        assert!(told.contains("warning: the cache could not store the last answer"), "{told}");
        assert!(!cache(true, false).contains("warning"));
    }
}
