//! Remembers the crawler of the last `politely run`, for `politely explain`.

use crate::config::{private_directory, read_ours, write_whole};
use crate::robots::ProductToken;
use std::io;
use std::path::Path;

/// Stores the product tokens in the state directory, one per line, replacing those of the previous run.
///
/// # Errors
/// The state directory cannot be written.
pub(super) fn remember(directory: &Path, product_tokens: &[ProductToken]) -> io::Result<()> {
    private_directory(directory)?;
    let lines: String = product_tokens.iter().map(|token| format!("{}\n", token.as_str())).collect();
    write_whole(&directory.join(NAME), lines.as_bytes(), 0o600)
}

/// The product tokens stored in the state directory; empty if no run was stored.
pub(super) fn product_tokens(directory: &Path) -> Vec<ProductToken> {
    let kept = read_ours(&directory.join(NAME)).unwrap_or_default();
    String::from_utf8_lossy(&kept).lines().filter_map(|line| ProductToken::parse(line).ok()).collect()
}

const NAME: &str = "last-run";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_tokens_of_the_last_run_are_stored() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        assert_eq!(product_tokens(&state), []);
        for names in [&["ExampleBot", "Example"][..], &["wget"]] {
            let tokens: Vec<_> = names.iter().map(|name| ProductToken::parse(name).unwrap()).collect();
            remember(&state, &tokens).unwrap();
            assert_eq!(product_tokens(&state), tokens);
        }
    }
}
