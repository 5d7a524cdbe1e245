//! The arguments of `politely run`.

use super::report_to::ReportTo;
use crate::cli::{CommandError, ConfigArg, Explained, key_argument};
use crate::config::{KeyArgument, LogLevel, units};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct RunArgs {
    #[command(flatten)]
    pub config: ConfigArg,
    /// Apply robots.txt as for this crawler, whatever User-Agent the command sends; may be given several times
    #[arg(long = "product-token", value_name = "T")]
    pub product_tokens: Vec<String>,
    /// Hold a request for its crawl-delay for at most this long, such as `90s` [default: 10m, or `pace.max_wait` if longer]
    #[arg(long, value_name = "DURATION", value_parser = units::parse_duration)]
    pub max_wait: Option<Duration>,
    /// Wait at least this long between requests to a host, such as `2s`
    #[arg(long, value_name = "DURATION", aliases = ["delay", "crawl-delay", "download-delay"])]
    pub min_delay: Option<String>,
    /// Name a contact for webmasters in the User-Agent of the requests for robots.txt
    #[arg(long, value_name = "URL-OR-MAIL")]
    pub contact: Option<String>,
    /// Declare what the pages are for, such as `ai-train`, and respect what sites say about this use; may be given several times
    #[arg(long = "purpose", value_name = "USE")]
    pub purposes: Vec<String>,
    /// Record each decision in this directory, for `politely report` and `evidence`
    #[arg(long, value_name = "DIR")]
    pub evidence: Option<PathBuf>,
    /// Fetch each robots.txt anew, instead of using copies from earlier runs or other processes
    #[arg(long)]
    pub fresh: bool,
    /// Give the command a network of its own with no way out but the proxy: programs that ignore proxy variables fail
    #[arg(long)]
    pub isolate: bool,
    /// Write the summary as one JSON object: `json` to standard error instead of the text, `json=FILE` to a file
    #[arg(long, value_name = "json[=FILE]", value_parser = ReportTo::parse)]
    pub(super) report: Option<ReportTo>,
    /// Print nothing but errors and warnings
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Show each refusal as it happens, and requests that are held
    #[arg(short, long)]
    pub verbose: bool,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

impl RunArgs {
    /// The keys of the configuration that these arguments set.
    pub fn keys(&self) -> Result<Vec<KeyArgument>, CommandError> {
        let mut keys = Vec::new();
        if !self.product_tokens.is_empty() {
            keys.push(key_argument("--product-token", "identity.product_tokens", &self.product_tokens));
        }
        if !self.purposes.is_empty() {
            keys.push(key_argument("--purpose", "identity.purpose", &self.purposes));
        }
        // A relative path starts from the current directory, not from the configuration's.
        let evidence = self.evidence.as_deref().map(std::path::absolute).transpose();
        let hint = "give an absolute path, or run the command in a directory that exists";
        let evidence = evidence.explained("--evidence: no directory to start from", hint)?;
        let evidence = evidence.map(|directory| directory.into_os_string().into_string()).transpose();
        let evidence = evidence.map_err(|directory| directory.display().to_string());
        let evidence =
            evidence.explained("--evidence: this directory's name is not UTF-8", "name another directory")?;
        for (name, key, value) in [
            ("--min-delay", "pace.min_delay", &self.min_delay),
            ("--contact", "identity.contact", &self.contact),
            ("--evidence", "evidence.directory", &evidence),
        ] {
            keys.extend(value.as_ref().map(|value| key_argument(name, key, value)));
        }
        Ok(keys)
    }

    pub fn log_level(&self) -> LogLevel {
        match self.verbose {
            true => LogLevel::Info,
            false if self.is_silent() => LogLevel::Error,
            false => LogLevel::Warn,
        }
    }

    /// Whether standard error is for the JSON report only, which contains the warnings.
    pub fn is_silent(&self) -> bool {
        self.quiet && self.report == Some(ReportTo::StandardError)
    }
}
