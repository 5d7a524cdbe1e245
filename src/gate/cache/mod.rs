//! A shared cache of answers on disk (RFC 9111), for clients that fetch the same pages: its files and index. `policy::cache` decides which
//! answers may be stored and served, and `proxy::exchange` which requests may be answered from the cache.

mod entry_body;
mod entry_file;
mod in_flight;
mod index;
mod page_cache;
mod start;
mod store_answer;

pub use entry_body::EntryBody;
pub use in_flight::{OthersFetch, PageClaim};
pub use index::EntryId;
pub use page_cache::{PageCache, PageCacheFigures, StoreOrder, StoredAnswer};
pub use store_answer::StoringAnswer;

use crate::policy::cache::StoredHead;
use ring::digest::{SHA256, digest};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::task::spawn_blocking;

/// The cache's result for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheResult {
    Hit,
    Revalidated,
    Miss,
}

impl PageCache {
    /// The hash of a URL.
    pub fn key(url: &[u8]) -> u128 {
        let hash = digest(&SHA256, url);
        u128::from_be_bytes(*hash.as_ref().first_chunk().expect("SHA-256 has 32 bytes"))
    }

    /// Changes the limit. `size`: in bytes.
    pub fn resize(self: &Arc<Self>, size: u64) {
        if std::mem::replace(&mut self.index.lock().limit, size) == size {
            return;
        }
        let cache = self.clone();
        drop(spawn_blocking(move || cache.evict()));
    }

    /// The newest stored answer of this URL for which `is_wanted` returns true. Removes damaged files.
    pub async fn find(
        self: &Arc<Self>,
        key: u128,
        is_wanted: impl Fn(&StoredHead) -> bool + Send + 'static,
    ) -> Option<StoredAnswer> {
        if !self.is_ready.load(Relaxed) {
            return None;
        }
        let ids: Vec<_> = self.index.lock().of(key).collect();
        if ids.is_empty() {
            return None;
        }
        let cache = self.clone();
        let newest = spawn_blocking(move || {
            let opened = ids.into_iter().filter_map(|id| Some((id, cache.open_entry(id)?)));
            let wanted = opened.filter(|(_, entry)| is_wanted(&entry.head));
            let (id, entry) = wanted.max_by_key(|(_, entry)| entry.head.received)?;
            cache.begin(id, entry)
        });
        let newest = newest.await.ok()??;
        self.index.lock().touch(newest.id);
        Some(newest)
    }

    /// The answer of the URL that was stored last.
    pub fn latest(&self, key: u128) -> Option<EntryId> {
        self.index.lock().of(key).next_back()
    }

    /// Claims the right to store an answer of this URL. Call before the request is sent.
    pub fn claim(&self, key: u128) -> PageClaim {
        PageClaim::new(&self.in_flight, key)
    }

    /// Like [`claim`](Self::claim), unless another request fetches the page. `is_fetch`: others wait for this request.
    ///
    /// # Errors
    /// The other request's fetch.
    pub fn fetch(&self, key: u128, is_fetch: bool) -> Result<PageClaim, OthersFetch> {
        PageClaim::unless_fetched(&self.in_flight, key, is_fetch)
    }

    /// Begins to store an answer, if the cache is ready.
    pub fn store(self: &Arc<Self>, head: StoredHead, order: StoreOrder) -> Option<StoringAnswer> {
        self.is_ready.load(Relaxed).then(|| StoringAnswer::begin(self, head, order))
    }

    /// Stores a revalidated answer again, with its new head.
    pub fn confirm(self: &Arc<Self>, stored: &StoredAnswer, head: StoredHead, order: StoreOrder) {
        let order = StoreOrder { replaces: Some(stored.id), ..order };
        tokio::spawn(store_answer::confirm(self.clone(), stored.entry.clone(), head, order));
    }

    /// Invalidates the URL's stored answers and those being written (RFC 9111 §4.4).
    pub fn invalidate(self: &Arc<Self>, key: u128) {
        PageClaim::end_all(&self.in_flight, key);
        let mut index = self.index.lock();
        if !self.is_ready.load(Relaxed) {
            index.invalidate_found(key);
        }
        let ids = index.remove_all(key);
        drop(index);
        if !ids.is_empty() {
            let cache = self.clone();
            drop(spawn_blocking(move || ids.into_iter().for_each(|id| cache.unlink(id))));
        }
    }

    pub fn count(&self, result: CacheResult) {
        let figures = &mut *self.figures.lock();
        *match result {
            CacheResult::Hit => &mut figures.hits,
            CacheResult::Revalidated => &mut figures.revalidated,
            CacheResult::Miss => &mut figures.misses,
        } += 1;
    }

    pub fn figures(&self) -> PageCacheFigures {
        let ((entries, bytes), limit) = {
            let index = self.index.lock();
            (index.figures(), index.limit)
        };
        let is_failing = self.is_failing.load(Relaxed);
        let is_ready = self.is_ready.load(Relaxed) && !is_failing;
        PageCacheFigures { entries, bytes, limit, is_ready, is_failing, ..*self.figures.lock() }
    }
}

impl CacheResult {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Revalidated => "revalidated",
            Self::Miss => "miss",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::cache::Received;
    use bytes::Bytes;
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    fn head() -> StoredHead {
        let at = SystemTime::now();
        let received =
            Received { url: b"http://a.example/", status: 200, version: 11, at, delay: Duration::ZERO, fetch: "x-1" };
        StoredHead::new(&received, |_| (), |_| None)
    }

    async fn store(cache: &Arc<PageCache>, key: u128) {
        let claim = cache.fetch(key, true).ok().expect("nobody else fetches it");
        let order = StoreOrder { key, replaces: None, claim };
        let mut storing = cache.store(head(), order).expect("the cache is ready");
        storing.push(Bytes::from_static(b"page"));
        storing.finish();
        if let Err(others) = cache.fetch(key, true) {
            others.end().await;
        }
    }

    fn latest(cache: &PageCache, key: u128) -> EntryId {
        cache.latest(key).expect("the answer is stored")
    }

    #[tokio::test]
    async fn unwritable_cache_is_down_until_it_can_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let cache = ready(directory.path()).await;
        let unfinished = directory.path().join("unfinished");
        std::fs::remove_dir(&unfinished).unwrap();
        std::fs::write(&unfinished, "no folder").unwrap();
        store(&cache, 1).await;
        assert_eq!((cache.figures().is_ready, cache.figures().failed), (false, 1));
        std::fs::remove_file(&unfinished).unwrap();
        std::fs::create_dir(&unfinished).unwrap();
        store(&cache, 1).await;
        assert_eq!((cache.figures().is_ready, cache.figures().stored), (true, 1));
    }

    /// The index may be built long after the start, for example while another process uses the directory.
    #[tokio::test]
    async fn invalidation_before_the_index_is_built_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = ready(directory.path()).await;
        store(&cache, 1).await;
        store(&cache, 2).await;
        let other = PageCache::open(directory.path(), 1 << 20).unwrap();
        other.invalidate(1);
        drop(cache);
        while !other.figures().is_ready {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(other.find(1, |_| true).await.is_none() && other.find(2, |_| true).await.is_some());
        assert_eq!(std::fs::read_dir(directory.path().join("00")).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn cache_restarts_after_its_files_are_removed() {
        let above = tempfile::tempdir().unwrap();
        let directory = above.path().join("cache");
        let cache = ready(&directory).await;
        store(&cache, 1).await;
        let removals: [&dyn Fn(); 4] = [
            &|| std::fs::remove_dir_all(&directory).unwrap(),
            &|| std::fs::rename(&directory, above.path().join("elsewhere")).unwrap(),
            &|| std::fs::remove_dir_all(directory.join("unfinished")).unwrap(),
            &|| std::fs::remove_file(directory.join("lock")).unwrap(),
        ];
        for (number, remove) in removals.iter().enumerate() {
            let found = cache.figures().entries;
            remove();
            store(&cache, 2).await;
            while !cache.figures().is_ready {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(cache.figures().entries, if directory.join("00").exists() { found } else { 0 }, "{number}");
            store(&cache, 1).await;
            assert!(cache.find(1, |_| true).await.is_some(), "{number}");
            let other = PageCache::open(&directory, 1 << 20).unwrap();
            assert!(!other.figures().is_ready, "{number}: the first cache has locked the directory");
        }
    }

    /// A file is removed after its entry in the index. By then, a newer answer may be stored.
    #[tokio::test]
    async fn answer_stored_after_an_invalidation_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = PageCache::open(directory.path(), 1 << 20).unwrap();
        store(&cache, 1).await;
        let before = cache.index.lock().remove_all(1);
        store(&cache, 1).await;
        // A torn or missing file of the removed entry does not affect the entry that replaced it.
        std::fs::write(cache.path(before[0]), "").unwrap();
        assert!(cache.open_entry(before[0]).is_none());
        before.iter().for_each(|id| cache.unlink(*id));
        assert!(cache.open_entry(before[0]).is_none());
        assert!(cache.find(1, |_| true).await.is_some());
        let id = latest(&cache, 1);
        std::fs::write(cache.path(id), "").unwrap();
        assert!(cache.find(1, |_| true).await.is_none());
        assert_eq!((cache.latest(1), cache.path(id).exists()), (None, false));
    }

    /// Tests that there are as many files as entries, and at most `MOST_ANSWERS` for one URL.
    #[tokio::test]
    async fn file_is_removed_with_its_entry() {
        let directory = tempfile::tempdir().unwrap();
        let cache = PageCache::open(directory.path(), 1 << 20).unwrap();
        for _ in 0..12 {
            store(&cache, 1).await;
        }
        let stored = cache.find(1, |_| true).await.expect("the answer is stored");
        let order = StoreOrder { key: 1, replaces: Some(stored.id), claim: cache.claim(1) };
        store_answer::confirm(cache.clone(), stored.entry, head(), order).await;
        let files = std::fs::read_dir(cache.path(stored.id).parent().unwrap()).unwrap().count();
        assert_eq!((files, cache.figures().entries, cache.figures().evicted), (8, 8, 0));
        assert!(!cache.path(stored.id).exists() && latest(&cache, 1) > stored.id);
    }

    /// Opens the cache, and waits until it is ready: another cache may still use the directory.
    async fn ready(directory: &Path) -> Arc<PageCache> {
        let cache = PageCache::open(directory, 1 << 20).unwrap();
        while !cache.figures().is_ready {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        cache
    }

    #[tokio::test]
    async fn link_in_place_of_a_folder_is_not_followed() {
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(other.path().join("theirs"), "kept").unwrap();
        let unfinished = directory.path().join("unfinished");
        std::os::unix::fs::symlink(other.path(), &unfinished).unwrap();
        assert!(PageCache::open(directory.path(), 1 << 20).is_err());
        std::fs::remove_file(unfinished).unwrap();
        let cache = ready(directory.path()).await;
        let folder = cache.path(EntryId { key: 1, number: 0 }).parent().unwrap().to_owned();
        std::os::unix::fs::symlink(other.path(), folder).unwrap();
        store(&cache, 1).await;
        assert_eq!(std::fs::read_dir(other.path()).unwrap().count(), 1, "nothing is removed or stored behind the link");
    }

    #[tokio::test]
    async fn answer_is_kept_if_this_process_has_no_descriptor_or_memory_to_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let cache = ready(directory.path()).await;
        store(&cache, 1).await;
        let id = latest(&cache, 1);
        for limit in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            assert!(cache.intact::<()>(id, Err(std::io::Error::from_raw_os_error(limit))).is_none());
            assert_eq!(cache.latest(1), Some(id));
        }
        assert!(cache.find(1, |_| true).await.is_some());
        assert!(cache.intact::<()>(id, Err(std::io::ErrorKind::UnexpectedEof.into())).is_none());
        assert_eq!(cache.latest(1), None);
    }

    /// Only root can give files to another user.
    #[tokio::test]
    async fn file_of_another_user_is_neither_served_nor_removed() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: needs root");
        }
        let directory = tempfile::tempdir().unwrap();
        let cache = ready(directory.path()).await;
        store(&cache, 1).await;
        store(&cache, 2).await;
        let path = |key| cache.path(latest(&cache, key));
        let theirs = |path: &Path| std::os::unix::fs::chown(path, Some(61184), None).unwrap();
        let (one, two) = (path(1), path(2));
        theirs(&one);
        assert!(cache.find(1, |_| true).await.is_none() && cache.find(2, |_| true).await.is_some());
        assert_eq!((cache.latest(1), one.exists()), (None, true));
        // Also at the start, nothing is read from the other user's files, even if their folder is that user's, too.
        theirs(two.parent().unwrap());
        theirs(&two);
        drop(cache);
        let cache = ready(directory.path()).await;
        assert_eq!(cache.figures().entries, 0);
        assert!(one.exists() && two.exists());
        store(&cache, 1).await;
        assert!(cache.find(1, |_| true).await.is_some(), "a file of ours replaces the other user's");
    }
}
