//! The engine against every case that was collected. The corpus is beside the package or where `POLITELY_CORPORA` says;
//! without it these tests say so and pass.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use politely::policy::freshness::Freshness;
use politely::policy::{Access, Authority, Entry, HostRules, PolicyOptions, Request, Ruling, SiteAnswer, decide};
use politely::robots::{ParseOptions, ProductToken, RobotsTxt};
use serde_json::Value;

/// The cases are the assertions of other implementations' test suites that agree with RFC 9309 or Google's matcher.
#[test]
fn conformance_cases_are_decided_as_collected() {
    let Some(corpora) = corpora() else { return };
    let mut tally = Tally::default();
    for case in rows(&corpora.join("conformance/cases.jsonl")) {
        let robots = RobotsTxt::parse(&bytes(&case, "robots", "robots_b64"));
        let verdict = robots.rules_for(&[text(&case, "agent")]).check(text(&case, "url")).is_allowed();
        tally.judge(&case, verdict, text(&case, "id"));
    }
    tally.conclude("conformance cases");
}

/// The questions about the files of the corpus. Where Google and the RFC agree, the deciding line is compared too.
#[test]
fn corpus_probes_are_decided_as_collected() {
    let Some(corpora) = corpora() else { return };
    let files = files(&corpora);
    let mut tally = Tally::default();
    let mut wrong_lines = Vec::new();
    let mut parsed: Option<(String, RobotsTxt)> = None;
    for probe in rows(&corpora.join("corpus/probes.jsonl.gz")) {
        let id = text(&probe, "file");
        if parsed.as_ref().is_none_or(|(last, _)| last != id) {
            parsed = Some((id.to_owned(), RobotsTxt::parse(&files[id])));
        }
        let robots = &parsed.as_ref().expect("parsed above").1;
        let rules = robots.rules_for(&[text(&probe, "agent")]);
        let verdict = rules.check(text(&probe, "url"));
        tally.judge(&probe, verdict.is_allowed(), id);
        let line = verdict.rule().map_or(0, |rule| rule.line());
        let google = probe["line"].as_u64().and_then(|line| u32::try_from(line).ok()).unwrap_or_default();
        if line != 0
            && google != line
            && is_comparable(&probe)
            && [line, google].iter().all(|&line| is_plain(&files[id], line))
        {
            wrong_lines.push(format!("{probe} decided by line {line}"));
        }
    }
    show(&wrong_lines);
    tally.conclude("corpus probes");
    assert!(wrong_lines.is_empty(), "{} lines differ", wrong_lines.len());
}

/// The cost of judging a path in the forms that servers make of it, measured on questions with one right answer.
#[test]
fn documented_counts_of_as_served_refusals_are_current() {
    let Some(corpora) = corpora() else { return };
    let (files, now) = (files(&corpora), SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000));
    let known = |robots| {
        let freshness = Freshness::new(now, Duration::from_secs(3600), 0.0);
        Entry::answered(SiteAnswer::new(Access::Rules(robots), 200, freshness))
    };
    let authority = Authority::from_url("https://example.com").unwrap();
    let mut parsed: Option<(String, Entry)> = None;
    let [mut allowed, mut refused, mut with_slashes, mut disallowed, mut let_through] = [0_u32; 5];
    for probe in rows(&corpora.join("corpus/probes.jsonl.gz")) {
        let (id, url) = (text(&probe, "file"), text(&probe, "url"));
        let Ok(token) = ProductToken::parse(text(&probe, "agent")) else { continue };
        if probe.get("google_quirk").is_some() {
            continue;
        }
        if parsed.as_ref().is_none_or(|(last, _)| last != id) {
            parsed = Some((id.to_owned(), known(RobotsTxt::parse(&files[id]))));
        }
        let (_, entry) = parsed.as_ref().expect("parsed above");
        let after = url.split_once("://").map(|(_, rest)| rest.find(['/', '?', '#']).map_or("/", |at| &rest[at..]));
        let target = after.unwrap_or(url).split('#').next().unwrap_or_default();
        let rules = HostRules::new(Arc::new(PolicyOptions { product_tokens: vec![token], ..PolicyOptions::default() }));
        let decision = decide(entry, &rules, &Request::new(&authority, target.as_bytes()), now);
        let is_refused = matches!(decision.ruling, Ruling::Refuse(_));
        if probe["allowed"] == true {
            allowed += 1;
            refused += u32::from(is_refused);
            let path = target.split('?').next().unwrap_or_default();
            with_slashes += u32::from(is_refused && path.contains("//"));
        } else {
            disallowed += 1;
            let_through += u32::from(!is_refused);
        }
    }
    assert_eq!(let_through, 0);
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/conformance.md")).unwrap();
    let page = page.replace(',', "");
    for figure in [allowed, refused, with_slashes, disallowed] {
        assert!(page.contains(&format!(" {figure} ")), "{allowed} {refused} {with_slashes} {disallowed}");
    }
}

#[test]
fn sitemaps_are_found() {
    let Some(corpora) = corpora() else { return };
    let files = files(&corpora);
    let in_suites =
        rows(&corpora.join("conformance/sitemaps.jsonl")).into_iter().filter(|row| row["dialect"] == "google");
    let in_suites = in_suites.map(|row| (row["robots"].as_str().expect("text").as_bytes().to_vec(), row));
    let in_corpus = rows(&corpora.join("corpus/sitemaps.jsonl.gz")).into_iter();
    let in_corpus = in_corpus.map(|row| (files[text(&row, "file")].clone(), row));
    let mut wrong = Vec::new();
    for (body, row) in in_suites.chain(in_corpus) {
        // Google has no limit of size, and takes `Sitemap<anything>:` for `Sitemap:`.
        if body.len() > 512_000 || row["file"] == "2edd37d130580fa8" || row["file"] == "37154a2562c05283" {
            continue;
        }
        let robots = RobotsTxt::parse(&body);
        let found: Vec<&str> = robots.sitemaps().collect();
        let expected: Vec<&str> =
            row["sitemaps"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        if found != expected {
            wrong.push(format!("{} {:?} {expected:?} found {found:?}", row["file"], row.get("id")));
        }
    }
    show(&wrong);
    assert!(wrong.is_empty(), "{} files differ", wrong.len());
}

#[test]
fn crawl_delays_are_found() {
    let Some(corpora) = corpora() else { return };
    let files = files(&corpora);
    let in_suites =
        rows(&corpora.join("conformance/crawl_delay.jsonl")).into_iter().filter(|row| row["agreed"] == true);
    let in_suites = in_suites.map(|row| (bytes(&row, "robots", "robots_b64"), row));
    let in_corpus = rows(&corpora.join("corpus/crawl_delay.jsonl.gz")).into_iter();
    let in_corpus = in_corpus.map(|row| (files[text(&row, "file")].clone(), row));
    let mut wrong = Vec::new();
    for (body, row) in in_suites.chain(in_corpus) {
        let body = without_rates(&body);
        // A delay before the first agent is nobody's to the parsers that agreed here.
        let agents = if row["source"] == "python/cpython" {
            ProductToken::from_user_agent(text(&row, "agent").as_bytes())
        } else {
            ProductToken::parse(text(&row, "agent")).into_iter().collect()
        };
        let rules = RobotsTxt::parse_with(&body, &ParseOptions::crawler_commons()).rules_for(&agents);
        let found = rules.crawl_delay().map(|delay| delay.as_secs_f64());
        if found != row["crawl_delay"].as_f64() {
            wrong.push(format!(
                "{:?} {:?} {} expected {} found {found:?}",
                row.get("id"),
                row.get("file"),
                row["agent"],
                row["crawl_delay"]
            ));
        }
    }
    show(&wrong);
    assert!(wrong.is_empty(), "{} delays differ", wrong.len());
}

/// Whether Google's line can be compared: nothing in the question that it reads otherwise, even where the answer is the same.
fn is_comparable(probe: &Value) -> bool {
    let is_token = text(probe, "agent").bytes().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'-'));
    let is_plain = text(probe, "url").bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%');
    is_token && is_plain && probe.get("google_quirk").is_none()
}

/// Whether a line is a rule that everyone reads alike: key and path as they should be, no escapes, not cut.
fn is_plain(body: &[u8], line: u32) -> bool {
    // Vertical tabs and form feeds are white space to Google; what they touch may change who a group is for.
    if body.iter().any(|byte| matches!(byte, 0x0B | 0x0C)) {
        return false;
    }
    let body = String::from_utf8_lossy(body).replace("\r\n", "\n").replace('\r', "\n");
    let Some(line) = (line as usize).checked_sub(1).and_then(|line| body.split('\n').nth(line)) else {
        return false;
    };
    let Some((key, value)) = line.split('#').next().unwrap_or_default().split_once(':') else {
        return false;
    };
    let value = value.trim_matches([' ', '\t']);
    let index = value.contains("/index.htm");
    matches!(key.trim_matches([' ', '\t']).to_lowercase().as_str(), "allow" | "disallow")
        && line.len() < 16_000
        && !index
        && value.starts_with(['/', '*'])
        && value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'%')
}

/// The file without its request rates, which the pace would count as well.
fn without_rates(body: &[u8]) -> Vec<u8> {
    let lines = body.split_inclusive(|&byte| byte == b'\n');
    let is_rate = |line: &&[u8]| line.trim_ascii_start().to_ascii_lowercase().starts_with(b"request-rate");
    lines.filter(|line| !is_rate(line)).collect::<Vec<_>>().concat()
}

/// Agreement with the collected answers, by quirk.
#[derive(Default)]
struct Tally {
    core: usize,
    quirks: BTreeMap<String, [usize; 3]>,
    wrong: Vec<String>,
}

impl Tally {
    fn judge(&mut self, case: &Value, allowed: bool, id: &str) {
        let expected = case["allowed"].as_bool().expect("an answer");
        let Some(rfc) = case.get("rfc") else {
            self.core += 1;
            if allowed != expected {
                self.wrong.push(format!("{id}: {}", brief(case)));
            }
            return;
        };
        let as_google = allowed == case.get("google").and_then(Value::as_bool).unwrap_or(expected);
        let as_rfc = rfc == "either" || rfc.as_bool() == Some(allowed);
        let labels = case.get("google_quirk").and_then(Value::as_array).cloned().unwrap_or_default();
        for label in labels.iter().filter_map(Value::as_str) {
            let counts = self.quirks.entry(label.to_owned()).or_default();
            counts[0] += 1;
            counts[1] += usize::from(as_google);
            counts[2] += usize::from(as_rfc);
        }
        if !as_google && !as_rfc {
            self.wrong.push(format!("{id}: {}", brief(case)));
        }
    }

    fn conclude(&self, what: &str) {
        println!("{what}: {} core; quirks [all, as google, as rfc]: {:?}", self.core, self.quirks);
        show(&self.wrong);
        assert!(self.core > 0, "no {what}");
        assert!(self.wrong.is_empty(), "{} {what} differ", self.wrong.len());
    }
}

fn brief(case: &Value) -> String {
    let mut case = case.clone();
    if let Some(object) = case.as_object_mut() {
        object.remove("robots_b64");
    }
    case.to_string()
}

fn show(wrong: &[String]) {
    for line in wrong.iter().take(60) {
        println!("{line}");
    }
}

fn corpora() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let beside = ["../shared/corpora", "../../shared/corpora"].map(|path| here.join(path));
    let found =
        std::env::var_os("POLITELY_CORPORA").map(PathBuf::from).into_iter().chain(beside).find(|path| path.is_dir());
    if found.is_none() {
        println!("skipped: no corpus; POLITELY_CORPORA can name its directory");
    }
    found
}

fn files(corpora: &Path) -> HashMap<String, Vec<u8>> {
    let rows = rows(&corpora.join("corpus/files.jsonl.gz"));
    rows.iter().map(|row| (text(row, "id").to_owned(), bytes(row, "text", "b64"))).collect()
}

fn rows(path: &Path) -> Vec<Value> {
    let packed = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut plain = String::new();
    let text = if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::GzDecoder::new(&*packed).read_to_string(&mut plain).expect("gzip");
        plain
    } else {
        String::from_utf8(packed).expect("UTF-8")
    };
    text.split('\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn text<'a>(row: &'a Value, name: &str) -> &'a str {
    row[name].as_str().unwrap_or_else(|| panic!("{name} of {row}"))
}

fn bytes(row: &Value, plain: &str, encoded: &str) -> Vec<u8> {
    use base64::Engine;
    match row.get(encoded).and_then(Value::as_str) {
        Some(encoded) => base64::engine::general_purpose::STANDARD.decode(encoded).expect("base64"),
        None => text(row, plain).as_bytes().to_vec(),
    }
}
