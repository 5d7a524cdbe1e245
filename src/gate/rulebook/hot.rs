//! The hosts asked for lately, each with its place and its lane: one look-up, and no lock that another host could hold.
//! Called by `RuleBook`.
//!
//! A cache before the shelf and the pacer, which know all hosts. What it holds stays where it is in both.

use super::Slot;
use crate::gate::pacer::Pace;
use crate::policy::{Authority, KeyBy, PaceKey};
use arc_swap::{ArcSwapOption, Guard};
use hashbrown::DefaultHashBuilder;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a request goes to and what it goes by.
pub(in crate::gate) struct HotHost {
    pub slot: Arc<Slot>,
    pub pace: Arc<Pace>,
    /// What the lane was found by, beside the authority.
    pub by: KeyBy,
    /// Where the host is dialled, if paces are kept by that.
    pub address: Option<IpAddr>,
}

impl HotHost {
    /// Of its lane.
    pub fn key(&self) -> PaceKey {
        PaceKey::new(self.by, &self.slot.authority, self.address)
    }
}

/// A host that was found. Not to be held for long: each thread has a few of these only, before they cost more.
pub(in crate::gate) struct Seated(Guard<Option<Arc<HotHost>>>);

impl Seated {
    pub fn new(host: Arc<HotHost>) -> Self {
        Seated(Guard::from_inner(Some(host)))
    }

    /// The same, to hold on to.
    pub fn keep(self) -> Arc<HotHost> {
        Guard::into_inner(self.0).expect(FULL)
    }
}

impl Deref for Seated {
    type Target = HotHost;

    fn deref(&self) -> &HotHost {
        self.0.as_deref().expect(FULL)
    }
}

/// The cache: each host has a few seats that it may have, by its hash.
pub(super) struct Hot {
    seats: Box<[Seat]>,
    hasher: DefaultHashBuilder,
}

#[derive(Default)]
struct Seat {
    /// The host's hash; 0: it is free. So that nobody is looked at in vain.
    tag: AtomicU64,
    host: ArcSwapOption<HotHost>,
}

impl Hot {
    pub fn new() -> Self {
        Hot { seats: (0..SEATS).map(|_| Seat::default()).collect(), hasher: DefaultHashBuilder::default() }
    }

    pub fn get(&self, authority: &Authority, by: KeyBy, address: Option<IpAddr>) -> Option<Seated> {
        let is_it = |host: &HotHost| (host.by, host.address) == (by, address) && host.slot.authority == *authority;
        let (seats, tag) = self.seats(authority);
        let mut tagged = seats.iter().filter(|seat| seat.tag.load(Ordering::Relaxed) == tag);
        tagged.find_map(|seat| Some(seat.host.load()).filter(|host| host.as_deref().is_some_and(is_it))).map(Seated)
    }

    /// Gives the host a free seat; else, now and then, somebody else's: who is asked for often gets one soon, and who is
    /// asked for once drives few away.
    pub fn seat(&self, host: &Arc<HotHost>) {
        let (seats, tag) = self.seats(&host.slot.authority);
        let free = seats.iter().find(|seat| seat.tag.load(Ordering::Relaxed) == 0);
        if let Some(seat) = free.or_else(|| seats.get(fastrand::usize(..EACH * ONE_IN))) {
            // Two that meet here may leave one's tag with the other: both are just not found then.
            seat.host.store(Some(host.clone()));
            seat.tag.store(tag, Ordering::Relaxed);
        }
    }

    pub fn clear(&self) {
        for seat in self.seats.iter().filter(|seat| seat.tag.load(Ordering::Relaxed) != 0) {
            seat.tag.store(0, Ordering::Relaxed);
            seat.host.store(None);
        }
    }

    /// The seats that a host may have, and its tag.
    fn seats(&self, authority: &Authority) -> (&[Seat], u64) {
        let hash = self.hasher.hash_one(authority);
        let row = hash as usize % (SEATS / EACH) * EACH;
        (&self.seats[row..row + EACH], hash | 1)
    }
}

/// 256 KiB without the hosts in them. As many places and lanes stay in memory.
const SEATS: usize = 16_384;
/// They fill a line of the processor's cache.
const EACH: usize = 4;
const ONE_IN: usize = 8;
const FULL: &str = "nobody is found in an empty seat";

#[cfg(test)]
mod tests {
    use super::super::shelf::Shelf;
    use super::*;
    use crate::gate::pacer::Pacer;
    use crate::gate::store::Store;

    struct World {
        hot: Hot,
        shelf: Shelf,
        pacer: Pacer,
    }

    impl World {
        fn new() -> Self {
            Self { hot: Hot::new(), shelf: Shelf::new(), pacer: Pacer::new(Arc::new(Store::memory()), None) }
        }

        fn seat(&self, authority: &Authority, by: KeyBy, address: Option<IpAddr>) {
            let pace = self.pacer.pace(&PaceKey::new(by, authority, address));
            self.hot.seat(&Arc::new(HotHost { slot: self.shelf.slot(authority), pace, by, address }));
        }
    }

    fn authority(number: usize) -> Authority {
        Authority::from_url(&format!("https://host{number}.example")).unwrap()
    }

    #[test]
    fn a_host_is_found_with_its_own_place_and_lane() {
        let world = World::new();
        world.seat(&authority(1), KeyBy::Host, None);
        let found = world.hot.get(&authority(1), KeyBy::Host, None).expect("it has a seat");
        assert!(Arc::ptr_eq(&found.slot, &world.shelf.slot(&authority(1))));
        assert!(Arc::ptr_eq(&found.pace, &world.pacer.pace(&PaceKey::new(KeyBy::Host, &authority(1), None))));
        assert!(world.hot.get(&authority(2), KeyBy::Host, None).is_none());
    }

    #[test]
    fn another_key_of_the_pace_is_another_host() {
        let (world, address) = (World::new(), |last| Some(IpAddr::from([192, 0, 2, last])));
        world.seat(&authority(1), KeyBy::Host, None);
        world.seat(&authority(1), KeyBy::Address, address(1));
        assert!(world.hot.get(&authority(1), KeyBy::Site, None).is_none());
        assert!(world.hot.get(&authority(1), KeyBy::Address, address(2)).is_none());
        assert!(world.hot.get(&authority(1), KeyBy::Address, address(1)).is_some());
    }

    #[test]
    fn who_is_asked_for_often_gets_a_seat_though_all_are_taken() {
        let (world, often) = (World::new(), authority(0));
        for number in 1..3 * SEATS {
            world.seat(&authority(number), KeyBy::Host, None);
        }
        let is_seated = || world.hot.get(&often, KeyBy::Host, None).is_some();
        assert!(!is_seated());
        let asked = (0..10_000).take_while(|_| !is_seated()).inspect(|_| world.seat(&often, KeyBy::Host, None)).count();
        assert!((1..10_000).contains(&asked), "{asked}");
    }

    #[test]
    fn a_seat_keeps_a_place_in_memory_until_it_is_given_up() {
        let world = World::new();
        for number in 0..100 {
            world.seat(&authority(number), KeyBy::Host, None);
        }
        assert!(!world.shelf.shrink(), "all are in use");
        world.hot.clear();
        while world.shelf.shrink() {}
        assert_eq!(world.shelf.len(), 0);
    }
}
