//! A table of shared rows by key, for example of fetches in flight: all holders of a key share one row, which is removed with its last
//! holder.

use hashbrown::HashMap;
use parking_lot::Mutex;
use std::hash::Hash;
use std::ops::Deref;
use std::ptr;
use std::sync::{Arc, Weak};

/// The table of rows.
pub(super) struct SharedRows<K: Clone + Eq + Hash, V: Default>(RowTable<K, V>);

type RowTable<K, V> = Arc<Mutex<HashMap<K, Weak<SharedRow<K, V>>>>>;

/// A row. It may have been taken out of the table while it is held, and its key may have another row.
pub(super) struct SharedRow<K: Clone + Eq + Hash, V: Default> {
    all: RowTable<K, V>,
    key: K,
    value: V,
}

impl<K: Clone + Eq + Hash, V: Default> SharedRows<K, V> {
    /// The row of this key, created if nobody holds one.
    pub fn row(&self, key: &K) -> Arc<SharedRow<K, V>> {
        self.row_unless(key, || false).expect("a row is created")
    }

    /// Like [`row`](Self::row), but returns `None` if there is no row and `is_over` says that the work for this key is done.
    pub fn row_unless(&self, key: &K, is_over: impl FnOnce() -> bool) -> Option<Arc<SharedRow<K, V>>> {
        let mut all = self.0.lock();
        all.get(key).and_then(Weak::upgrade).or_else(|| {
            // `is_over` is called under the lock, as the last holder may have finished the work just before it dropped the row.
            let value = (!is_over()).then(V::default)?;
            let row = Arc::new(SharedRow { all: self.0.clone(), key: key.clone(), value });
            all.insert(key.clone(), Arc::downgrade(&row));
            Some(row)
        })
    }

    /// Takes the key's row out of the table, so that the next caller gets a new row.
    pub fn take(&self, key: &K) -> Option<Arc<SharedRow<K, V>>> {
        // Dropped after the lock is released, because dropping the last reference takes the lock.
        let row = self.0.lock().remove(key);
        row.as_ref().and_then(Weak::upgrade)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl<K: Clone + Eq + Hash, V: Default> SharedRow<K, V> {
    /// Takes this row out of the table, so that the next caller gets a new row.
    pub fn leave(&self) {
        self.leave_if(|| true);
    }

    /// Like [`leave`](Self::leave), but only if `leaves` returns true; returns its result. `leaves` is called under the lock, so that
    /// nobody gets the row meanwhile.
    pub fn leave_if(&self, leaves: impl FnOnce() -> bool) -> bool {
        let mut all = self.all.lock();
        let leaves = leaves();
        if leaves && all.get(&self.key).is_some_and(|row| ptr::eq(row.as_ptr(), self)) {
            all.remove(&self.key);
        }
        leaves
    }
}

impl<K: Clone + Eq + Hash, V: Default> Deref for SharedRow<K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<K: Clone + Eq + Hash, V: Default> Drop for SharedRow<K, V> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<K: Clone + Eq + Hash, V: Default> Default for SharedRows<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU8;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn row_exists_while_held_and_not_taken() {
        let all = SharedRows::<u8, AtomicU8>::default();
        let (one, other) = (all.row(&1), all.row(&2));
        one.store(7, Relaxed);
        let again = all.row(&1);
        assert!(Arc::ptr_eq(&one, &again) && again.load(Relaxed) == 7 && other.load(Relaxed) == 0);
        let is_alone = |row: &Arc<SharedRow<u8, AtomicU8>>| row.leave_if(|| Arc::strong_count(row) == 1);
        assert!(!is_alone(&one), "the row has a second holder");
        drop(one);
        assert_eq!(all.len(), 2);
        again.leave();
        let next = all.row(&1);
        assert!(!Arc::ptr_eq(&next, &again));
        drop(again);
        assert!(Arc::ptr_eq(&next, &all.row(&1)), "dropping a row that has left does not remove its successor");
        assert!(all.take(&1).is_some_and(|row| Arc::ptr_eq(&row, &next)) && all.take(&1).is_none());
        assert!(all.row_unless(&2, || unreachable!("the key has a row")).is_some());
        assert!(is_alone(&other) && all.row_unless(&2, || true).is_none());
        assert!(!Arc::ptr_eq(&other, &all.row(&2)));
        assert_eq!(all.len(), 0);
    }
}
