//! docs/getting-started.md: its commands do what it shows.

use crate::support::Origin;
use crate::support::binary::open;
use crate::support::binary::politely_with;

const PAGE: &str = include_str!("../../../docs/getting-started.md");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_commands_print_what_it_shows() {
    let origin = Origin::site("User-agent: *\nDisallow: /private/\n").await;
    let here = |text: &str| text.replace("https://example.com/", &origin.url("/"));
    let mut tried = 0;
    let mut lines = PAGE.lines().peekable();
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
        for line in shown.iter().filter(|line| !line.is_empty()) {
            assert!(printed.contains(line.trim_end()), "{command}: {line}: {printed}");
        }
        tried += 1;
    }
    assert_eq!(tried, 6);
}
