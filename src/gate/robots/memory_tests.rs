//! Compares the memory that is counted for `store.memory` with the memory that is allocated.

use super::*;
use crate::gate::fleet::{Fleet, MachineLink};
use crate::gate::pacer::Pacer;
use crate::gate::store::tests::unwritten;
use crate::policy::pace::{ClientId, PaceOutcome, Terms};
use crate::policy::{Access, KeyBy, PaceKey};
use crate::tests::memory::taken;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn body(number: usize) -> Vec<u8> {
    let mut text = format!("# of {number}\nUser-agent: *\n");
    for line in 0..number % 60 {
        text += &format!("Disallow: /section-{line}/{}\n", number * 31 % 97);
    }
    text.into_bytes()
}

#[tokio::test]
async fn byte_counts_of_files_and_paces_match_the_allocations() {
    let cache = super::refresh::tests::cache();
    let RobotsCache { hosts, files, pacer, .. } = &*cache;
    let mut counted = (0, 0, 0);
    let begin = taken();
    for kind in ["files", "paces"] {
        for number in 0..4000 {
            let authority = Authority::from_url(&format!("https://www.host-{number}.example")).unwrap();
            match kind {
                "files" => cache.insert(&authority, 200, &HeaderMap::new(), &body(number)),
                _ => _ = pacer.queue(&PaceKey::new(KeyBy::Host, &authority, None)),
            }
        }
        files.sweep();
        let now = (taken() - begin, hosts.bytes() + files.bytes(), pacer.bytes());
        let taken = (now.0 - counted.0) as f64;
        let said = (now.1 + now.2 - counted.1 - counted.2) as f64;
        assert!((0.77..1.3).contains(&(said / taken)), "{kind}: counted {said}, taken {taken}");
        counted = now;
    }
}

/// A million hosts may owe an operator's or a group's delay at a time. These debts are in the machine's memory.
#[tokio::test]
async fn host_with_a_debt_takes_only_a_few_words_of_shared_memory() {
    let directory = tempfile::tempdir().unwrap();
    let machine = MachineLink::open(Some(directory.path()), Duration::from_secs(3600));
    let fleet = Arc::new(Fleet::on_machine(machine, Arc::default()));
    let delay = Duration::from_secs(3000);
    for (crawl_delay, group_delay) in [(delay, Duration::ZERO), (Duration::ZERO, delay)] {
        let pacer = Pacer::new(fleet.clone());
        let terms = Terms { crawl_delay, group_delay, max_crawl_delay: delay, ..Terms::default() };
        let (begin, mut before) = (taken(), (0, 0));
        for count in [100, 2000, 20_000] {
            for number in before.1..count {
                let key = PaceKey::from_text(&format!("host-{number}.example{}", group_delay.as_secs())).unwrap();
                let mut permit = pacer.queue(&key).turn(ClientId(1), &terms).await.unwrap();
                permit.leaves(false);
                permit.note_left();
                permit.outcome = PaceOutcome::Success;
                drop(permit);
                // Lets the queue's driver end.
                tokio::task::yield_now().await;
            }
            pacer.sweep();
            let taken = taken() - begin;
            let each = (taken - before.0) / (count - before.1);
            eprintln!("{count} hosts that owe a delay: {taken} bytes, {each} for each further one");
            before = (taken, count);
            assert!(count < 20_000 || each <= 8 && pacer.bytes() < 1 << 20, "{each}, counted {}", pacer.bytes());
        }
        // Without a shared file, debts are kept in the process's own memory, so `bytes` counts them.
        let alone = Pacer::new(Fleet::alone());
        let counted = alone.bytes();
        drop(alone.queue(&PaceKey::from_text("a.example").unwrap()).turn(ClientId(1), &terms).await.unwrap());
        assert!(alone.bytes() > counted);
    }
}

#[test]
fn rules_compiled_later_are_counted_before_many_more_files_are_read() {
    let files = Intern::default();
    let mut held = Vec::new();
    for number in 0..10_000 {
        let Access::Rules(robots) = files.intern(SiteFile::Robots, &body(number), &Default::default()) else {
            panic!("the file is a robots.txt")
        };
        robots.rules_for(&["examplebot"]);
        held.push(robots);
        if files.is_stale() {
            files.sweep();
        }
    }
    let counted = files.bytes();
    files.sweep();
    assert!(counted * 10 > files.bytes() * 9, "counted {counted} of {}", files.bytes());
}

/// A site can fill its file with lines that take the most memory.
#[test]
fn byte_count_of_a_long_file_matches_the_allocations_whatever_its_content() {
    let mut faults = Vec::new();
    for (file, begin, piece, end) in [
        (SiteFile::Robots, "User-agent: *\n", "Disallow: /N/x\n", ""),
        (SiteFile::Robots, "User-agent: *\n", "Disallow: /*N*x\n", ""),
        (SiteFile::Robots, "User-agent: *\n", "Disallow: /\u{c4}/N\n", ""),
        (SiteFile::Robots, "User-agent: *\n", "Disallow: /\u{c4}*N\n", ""),
        (SiteFile::Robots, "", "User-agent: aN\n", ""),
        (SiteFile::Robots, "", "User-agent: aN\nDisallow: /\n", ""),
        (SiteFile::Robots, "", "User-agent: aN\nDisallow: /*$\n", ""),
        (SiteFile::Robots, "", "User-agent: aN\nDisallow: /\u{c4}\n", ""),
        (SiteFile::Robots, "", "User-agent: aN\nContent-Signal: ai-train=no\n", ""),
        (SiteFile::Robots, "", "User-agent: aN\nContent-Usage: train-ai=n\n", ""),
        (SiteFile::Robots, "User-agent: *\n", "Content-Usage: /N train-ai=n\n", ""),
        (SiteFile::Robots, "User-agent: *\n", "Content-Usage: /N a=n,b=n,c=n,d=n,e=n,f=n\n", ""),
        (SiteFile::Robots, "", "Sitemap: N\n", ""),
        (SiteFile::Robots, "", "License: N\n", ""),
        (SiteFile::TdmRep, "[{}", ",{\"location\":\"/N\",\"tdm-reservation\":1}", "]"),
        (SiteFile::TdmRep, "[{}", ",{\"location\":\"/\u{c4}*N\",\"tdm-reservation\":1}", "]"),
        (
            SiteFile::license("https://a.example/l.xml"),
            "<rsl xmlns=\"https://rslstandard.org/rsl\">",
            "<content url=\"/N\"><license><prohibits type=\"usage\">all</prohibits></license></content>",
            "</rsl>",
        ),
    ] {
        let pieces = (0..).map(|number: u32| piece.replace('N', &number.to_string()));
        let mut body = begin.to_owned();
        body.extend(pieces.take_while({
            let mut length = 0;
            move |piece| {
                length += piece.len();
                length < 400_000
            }
        }));
        body += end;
        let (files, options, before) = (Intern::default(), Default::default(), taken());
        let read = files.intern(file, body.as_bytes(), &options);
        let ratio = files.bytes() as f64 / (taken() - before) as f64;
        eprintln!("{ratio:.2} {} times: {piece:?}", files.bytes() / body.len());
        if !(0.77..1.3).contains(&ratio) {
            faults.push((ratio, piece));
        }
        drop(read);
    }
    assert!(faults.is_empty(), "{faults:?}");
}

/// Clients can name millions of authorities that are never fetched, because of `robots: ignore` or an operator's `deny`.
#[tokio::test]
async fn memory_of_authorities_that_are_never_fetched_is_bounded() {
    let cache = super::refresh::tests::cache();
    let (mut settings, most) = (Settings::default(), 1 << 20);
    settings.store.memory = most;
    cache.settings.store(Arc::new(settings));
    for number in 0..20_000 {
        cache.host(SiteFile::Robots, &Authority::from_url(&format!("https://host-{number}.example")).unwrap());
        while cache.trimming.load(Ordering::Relaxed) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
    let bytes = cache.figures().bytes() as u64;
    assert!(bytes < most / 8 * 9, "{bytes} of {most}");
}

/// A file of about this length, with rules that no other file has.
fn long_body(number: usize, length: usize) -> Vec<u8> {
    let mut text = format!("# of {number}\nUser-agent: *\nCrawl-delay: 58\n");
    while text.len() < length {
        text += &format!("Disallow: /{number}/section-{}/of-the-site\n", text.len());
    }
    text.into_bytes()
}

/// A file that waits to be written shares its memory with the file in use.
#[tokio::test]
async fn file_waiting_for_the_disk_is_counted_once() {
    let cache = super::refresh::tests::cache_of(Settings::default(), unwritten(), None);
    let begin = taken();
    for number in 0..50 {
        let authority = Authority::from_url(&format!("https://host-{number}.example")).unwrap();
        cache.insert(&authority, 200, &HeaderMap::new(), &long_body(number, 40 << 10));
    }
    cache.files.sweep();
    let (taken, said) = ((taken() - begin) as f64, cache.figures().bytes() as f64);
    assert!(cache.store.queued_bytes() > 50 * (40 << 10), "the files wait to be written");
    assert!((0.77..1.3).contains(&(said / taken)), "counted {said}, taken {taken}");
}

/// A site decides how long its file is, and how long requests have to wait for it.
#[tokio::test]
async fn memory_of_long_files_is_bounded_even_if_their_hosts_are_in_use() {
    for (count, length, is_held) in
        [(100, 200 << 10, false), (100, 200 << 10, true), (10_000, 4 << 10, false), (10_000, 4 << 10, true)]
    {
        let cache = super::refresh::tests::cache();
        let (mut settings, most) = (Settings::default(), 12 << 20);
        settings.store.memory = most;
        cache.settings.store(Arc::new(settings));
        let mut held = Vec::new();
        for number in 0..count {
            let authority = Authority::from_url(&format!("https://host-{number}.example")).unwrap();
            cache.insert(&authority, 200, &HeaderMap::new(), &long_body(number, length));
            held.extend(is_held.then(|| cache.host(SiteFile::Robots, &authority)));
            while cache.trimming.load(Ordering::Relaxed) {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        }
        let bytes = cache.figures().bytes() as u64;
        assert!(bytes < most / 8 * 9, "{count} of {length}, held: {is_held}: {bytes} of {most}");
        assert!(cache.files.bytes() as u64 > most / 2, "no more is evicted than necessary");
        for host in &held {
            assert!(Arc::ptr_eq(host, &cache.host(SiteFile::Robots, &host.authority)), "hosts in use have one entry");
        }
        assert!(held.last().is_none_or(|last| !is_unknown(&last.load())), "the last host still has its file");
    }
}
