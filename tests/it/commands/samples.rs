//! The command output shown in docs/getting-started.md and README.md is the actual output.

use crate::support::binary::open;
use crate::support::binary::politely_with;
use crate::support::{Alpn, Origin};

const GETTING_STARTED: &str = include_str!("../../../docs/getting-started.md");
const README: &str = include_str!("../../../README.md");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_print_the_output_shown_in_the_docs() {
    let origin = Origin::tls_site(Alpn::Both, "User-agent: *\nDisallow: /private/\n").await;
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("robots.txt");
    std::fs::write(&file, "User-agent: *\nDisallow: /private/\nDisallow: /b*\n\n\n\n\n\n\nDisallow: /b\n").unwrap();
    let file = file.to_str().unwrap();
    let here = |text: &str| {
        let text = text.replace("https://example.com/", &origin.url("/"));
        text.replace("lint robots.txt", &format!("lint {file}")).replace(" robots.txt:", &format!(" {file}:"))
    };
    for (page, commands) in [(GETTING_STARTED, 6), (README, 3)] {
        let mut tried = 0;
        let mut lines = page.lines().peekable();
        while let Some(line) = lines.next() {
            let Some(command) = line.strip_prefix("    $ politely ") else { continue };
            let mut shown = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("    $ ") && !line.starts_with('#')) {
                let output = line.strip_prefix("    ").unwrap_or_default();
                shown.push(here(output.split('…').next().unwrap_or_default()));
            }
            let command = here(command);
            let ended = politely_with(&command.split(' ').collect::<Vec<_>>(), &open()).await;
            let printed = format!("{}{}", ended.stdout, ended.stderr);
            // Long ones are shown in several lines.
            for line in shown.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
                assert!(printed.contains(line), "{command}: {line}: {printed}");
            }
            tried += 1;
        }
        assert_eq!(tried, commands);
    }
}
