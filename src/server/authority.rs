//! Logs each day what is wrong with the certificate authority: that it expires soon, or that its file was replaced.

use std::pin::pin;
use std::time::Duration;

/// Calls `warning` each day and logs the result, until `stopped`.
pub(super) async fn watch(
    stopped: impl Future<Output = ()>,
    warning: impl Fn() -> Option<String>,
    mut say: impl FnMut(String),
) {
    let mut stopped = pin!(stopped);
    while tokio::time::timeout(DAY, &mut stopped).await.is_err() {
        if let Some(warning) = warning() {
            say(warning);
        }
    }
}

const DAY: Duration = Duration::from_secs(86_400);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Ca;
    use time::OffsetDateTime;
    use tokio::time::{Instant, sleep};

    #[tokio::test(start_paused = true)]
    async fn expiring_authority_is_logged_daily_from_30_days_before() {
        let home = tempfile::tempdir().unwrap();
        let ca = Ca::open_or_create(&home.path().join("ca")).unwrap();
        let (began, until) = (Instant::now(), ca.validity().1);
        let now = || until - Duration::from_secs(40 * 86_400) + began.elapsed();
        let mut days = Vec::new();
        let said = |warning: String| {
            assert!(warning.contains("expires on ") && warning.contains("`politely ca rotate`"), "{warning}");
            days.push((until - now()).whole_days());
        };
        watch(sleep(Duration::from_secs(35 * 86_400 + 1)), || ca.warning(now()), said).await;
        assert_eq!(days, (5..30).rev().collect::<Vec<_>>());
        assert!(ca.warning(OffsetDateTime::now_utc()).is_none());
    }
}
