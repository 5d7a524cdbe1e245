//! Parses the files in memory again, in the background, after the options for parsing have changed.

use super::fetch_table::BACKGROUND;
use super::intern::LONG;
use super::{HostEntry, RobotsCache};
use crate::gate::compute::rethrown;
use crate::gate::fair_places::Taker;
use crate::gate::store::digest_of;
use crate::policy::{Access, Entry, SiteAnswer, SiteFile};
use std::sync::Arc;
use tokio::task::spawn_blocking;

impl RobotsCache {
    /// Call after parse options changed. Long files come last, each in turn.
    pub fn reread(self: &Arc<Self>) {
        let inner = self.clone();
        tokio::spawn(async move {
            let all = inner.clone();
            let short = move || {
                let is_long =
                    |host: &Arc<HostEntry>| host.load().robots_txt().is_some_and(|it| it.source().len() > LONG);
                let (long, short): (Vec<_>, Vec<_>) = all.hosts.latest(usize::MAX).into_iter().partition(is_long);
                short.iter().for_each(|host| all.parse_again(host));
                long
            };
            for host in spawn_blocking(short).await.map_err(rethrown).unwrap_or_default() {
                let (taker, all) = (Taker::new(BACKGROUND, &host.authority), inner.clone());
                _ = inner.workers.compute(taker, move || all.parse_again(&host)).await;
            }
            inner.files.sweep();
        });
    }

    fn parse_again(&self, host: &HostEntry) {
        let (options, old) = (self.settings.load().robots.parse_options(), host.load_full());
        let Some(answer @ SiteAnswer { access: Access::Rules(robots), .. }) = &old.answer else { return };
        let Some(name) = digest_of(&answer.access) else { return };
        let body = || Some(robots.source().into());
        let Some(access) = self.files.named(SiteFile::Robots, name, &options, body) else { return };
        let answer = old.answer.clone().map(|answer| SiteAnswer { access, ..answer });
        // A concurrent fetch uses the new settings anyway.
        self.hosts.put_over(host, &old, Arc::new(Entry { answer, ..(*old).clone() }));
    }
}
