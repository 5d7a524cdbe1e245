//! `politely print`; `politely completions` and `politely man`, for packagers.

use super::{CommandError, Explained};
use crate::{admin, config};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::roff::{Inline, Roff, bold, roman};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(super) struct Man {
    /// Write all pages to this directory: one for each command, and politely.yaml(5)
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Print {
    #[arg(value_enum)]
    document: Document,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Document {
    /// politely.yaml with every key, its default and what it does
    Config,
    /// The API of the admin address, in OpenAPI
    Openapi,
    /// A configuration for AI agents to start from
    Agent,
    /// Alerting rules for Prometheus
    Alerts,
    /// A dashboard for Grafana
    Grafana,
}

/// Prints a document that is part of the binary.
pub(super) fn print(args: &Print) -> Result<ExitCode, CommandError> {
    super::print(match args.document {
        Document::Config => config::DEFAULTS,
        Document::Openapi => admin::OPENAPI,
        Document::Agent => include_str!("../../conf/agent.yaml"),
        Document::Alerts => include_str!("../../conf/prometheus/politely.rules.yml"),
        Document::Grafana => include_str!("../../conf/grafana/politely.json"),
    })
}

/// Prints the completions of one shell. `command`: the root command.
pub(super) fn completions(args: &Completions, mut command: Command) -> Result<ExitCode, CommandError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "politely", &mut script);
    super::print_bytes(&script)
}

/// Prints the manual page of politely(1), or writes all pages to a directory.
pub(super) fn man(args: &Man, mut command: Command) -> Result<ExitCode, CommandError> {
    command.build();
    match &args.directory {
        None => {
            let mut text = Vec::new();
            page(command).render(&mut text)?;
            super::print_bytes(&text)?;
        }
        Some(directory) => {
            let written = fs::create_dir_all(directory)
                .and_then(|()| write_pages(&command, "politely", directory))
                .and_then(|()| fs::write(directory.join("politely.yaml.5"), configuration(config::DEFAULTS)));
            written.explained(directory.display(), "check that it is writable")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn page(command: Command) -> clap_mangen::Man {
    clap_mangen::Man::new(command).source(SOURCE).manual("politely")
}

/// Writes the pages of a command and of its subcommands, such as `politely-ca-rotate.1`.
fn write_pages(command: &Command, name: &str, directory: &Path) -> io::Result<()> {
    let mut bytes = Vec::new();
    page(command.clone().display_name(name.to_owned())).render(&mut bytes)?;
    fs::write(directory.join(format!("{name}.1")), bytes)?;
    let below = command.get_subcommands().filter(|below| !below.is_hide_set());
    below.into_iter().try_for_each(|below| write_pages(below, &format!("{name}-{}", below.get_name()), directory))
}

/// politely.yaml(5), generated from the shipped file: comments become text, keys become headings.
fn configuration(file: &str) -> String {
    let mut roff = Roff::new();
    roff.control("TH", ["politely.yaml", "5", "", SOURCE, "politely"]);
    roff.control("SH", ["NAME"]).text([roman("politely.yaml - the configuration of politely(1)")]);
    roff.control("SH", ["SYNOPSIS"]).text([bold("/etc/politely/politely.yaml")]);
    roff.control("SH", ["DESCRIPTION"]);
    let mut comment: Vec<&str> = Vec::new();
    for line in file.lines() {
        let text = line.trim_start();
        match text.strip_prefix('#') {
            Some(said) => comment.push(said.strip_prefix(' ').unwrap_or(said)),
            // A blank line ends the file's introduction.
            None if text.is_empty() => write_comment(&mut roff, &mut comment),
            None if line.len() == text.len() => {
                roff.control("SH", [text.split(':').next().unwrap_or(text)]);
                write_comment(&mut roff, &mut comment);
                if !text.ends_with(':') {
                    roff.control("PP", []).text([bold(text)]);
                }
            }
            None => {
                let depth = (line.len() - text.len()) / 2;
                roff.control("TP", []).text([bold(format!("{}{text}", "  ".repeat(depth - 1)))]);
                write_comment(&mut roff, &mut comment);
            }
        }
    }
    write_comment(&mut roff, &mut comment);
    roff.control("SH", ["SEE ALSO"]).text([bold("politely"), roman("(1), "), bold("politely-check"), roman("(1)")]);
    roff.render()
}

/// Writes a comment's paragraphs. Indented lines are kept as they are.
fn write_comment(roff: &mut Roff, comment: &mut Vec<&str>) {
    let mut literal = false;
    for line in comment.drain(..) {
        if line.starts_with(' ') != literal {
            literal = !literal;
            roff.control(if literal { "RS" } else { "fi" }, []);
            roff.control(if literal { "nf" } else { "RE" }, []);
        }
        match line.is_empty() {
            true => roff.control("PP", []),
            false => roff.text([Inline::Roman(line.to_owned())]),
        };
    }
    if literal {
        roff.control("fi", []).control("RE", []);
    }
}

const SOURCE: &str = concat!("politely ", env!("CARGO_PKG_VERSION"));
