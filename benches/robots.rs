//! The engine beside the crates texting_robots and robotstxt, on the same inputs in the same run.

mod support;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use politely::robots::RobotsTxt;
use robotstxt::DefaultMatcher;
use support::TWENTY;
use texting_robots::Robot;

const AGENT: &str = "ExampleBot";

criterion_group!(benches, parse, check, worst_case);
criterion_main!(benches);

/// Parse and compile for one agent.
fn parse(criterion: &mut Criterion) {
    let small = support::large(600);
    let medium = support::large(2_000);
    let large = support::large(500_000);
    for (name, text) in [("600 B", &small), ("2 KB", &medium), ("500 KB", &large)] {
        let mut group = group(criterion, &format!("parse {name}"));
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function("politely", |bencher| {
            bencher.iter(|| {
                let rules = RobotsTxt::parse(black_box(text.as_bytes())).rules_for(&[AGENT]);
                // Rules are compiled when they are first asked.
                rules.check("/").is_allowed()
            });
        });
        group.bench_function("texting_robots", |bencher| {
            bencher.iter(|| Robot::new(AGENT, black_box(text.as_bytes())).expect("parses"));
        });
        group.bench_function("robotstxt, one answer", |bencher| {
            bencher.iter(|| {
                DefaultMatcher::default().one_agent_allowed_by_robots(black_box(text), AGENT, "https://example.com/a")
            });
        });
    }
}

/// One check; the time is that of all paths.
fn check(criterion: &mut Criterion) {
    let mixed = support::mixed(5_000);
    let stars = support::leading_stars(5_000);
    for (name, text) in [("20 rules", TWENTY), ("5,000 rules", &mixed), ("5,000 leading stars", &stars)] {
        let mut group = group(criterion, &format!("check {name}"));
        group.throughput(Throughput::Elements(PATHS.len() as u64));
        let rules = RobotsTxt::parse(text.as_bytes()).rules_for(&[AGENT]);
        group.bench_function("politely", |bencher| {
            bencher.iter(|| PATHS.iter().filter(|path| rules.check(black_box(path)).is_allowed()).count());
        });
        let robot = Robot::new(AGENT, text.as_bytes()).expect("parses");
        group.bench_function("texting_robots", |bencher| {
            bencher.iter(|| PATHS.iter().filter(|path| robot.allowed(black_box(path))).count());
        });
    }
}

/// What a hostile site could write.
fn worst_case(criterion: &mut Criterion) {
    let text = support::file(["/*a*a*a*a*a*a*a*a*a*a*a*b".to_owned()]);
    let path = format!("/{}", "a".repeat(8 * 1024));
    let rules = RobotsTxt::parse(text.as_bytes()).rules_for(&[AGENT]);
    let robot = Robot::new(AGENT, text.as_bytes()).expect("parses");
    let mut group = group(criterion, "check an 8 KB path against eleven stars");
    group.bench_function("politely", |bencher| bencher.iter(|| rules.check(black_box(&path)).is_allowed()));
    group.bench_function("texting_robots", |bencher| bencher.iter(|| robot.allowed(black_box(&path))));
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(30);
    group
}

/// Paths as crawlers ask for them; some of each outcome for the twenty rules.
const PATHS: &[&str] = &[
    "/",
    "/blog/2024/05/a-day-at-the-seaside",
    "/products/blue-widget-42",
    "/products/blue-widget-42/reviews/new",
    "/products?sort=price&page=3",
    "/wp-admin/admin-ajax.php?action=x",
    "/api/public/v1/items?limit=100",
    "/account/orders/1234567",
    "/media/brochure-2024.pdf",
    "/en/articles/4711/print/",
];
