//! The engine beside others in Rust, on the same inputs in one run: the least time of many rounds, which says what each takes
//! on a machine that does other things too. Prints the tables of docs/benchmarks.md.
//!
//! `cargo run --release --manifest-path benches/engines/Cargo.toml`

#[path = "../../support/mod.rs"]
#[allow(dead_code, reason = "the other benches' inputs")]
mod support;

use politely::robots::RobotsTxt;
use robotstxt::DefaultMatcher;
use std::hint::black_box;
use std::time::{Duration, Instant};

const AGENT: &str = "ExampleBot";
const ROUNDS: usize = 300;

fn main() {
    let parses =
        [("600 bytes", support::large(600)), ("2 KB", support::large(2_000)), ("500 KB", support::large(500_000))];
    table("read a file, without making rules for a crawler of it", &["politely", "fast-robots"], |row| {
        for (name, text) in &parses {
            row(
                name,
                &mut [&mut || _ = black_box(RobotsTxt::parse(black_box(text.as_bytes()))), &mut || {
                    _ = black_box(fast_robots::RobotsTxt::parse(black_box(text)))
                }],
            );
        }
    });
    let all = ["politely", "fast-robots", "texting_robots", "robotxt", "robotstxt"];
    table("read a file for one crawler, and answer once", &all, |row| {
        for (name, text) in &parses {
            let path = "/blog/2024/05/a-day-at-the-seaside";
            let url = format!("https://example.com{path}");
            row(
                name,
                &mut [
                    &mut || _ = black_box(politely_rules(black_box(text)).check(path).is_allowed()),
                    &mut || _ = black_box(fast_robots::RobotsTxt::parse(black_box(text)).is_allowed(AGENT, path)),
                    &mut || _ = black_box(texting(black_box(text)).allowed(path)),
                    &mut || _ = black_box(robotxt::Robots::parse(black_box(text.as_bytes()), AGENT).is_allowed(path)),
                    &mut || _ = black_box(google(black_box(text), &url)),
                ],
            );
        }
    });
    let stars = support::file(["/*a*a*a*a*a*a*a*a*a*a*a*b".to_owned()]);
    let plain = support::file(["/private/".to_owned()]);
    let long = format!("/{}", "a".repeat(8 * 1024));
    let escaped = format!("/{}", "a%62".repeat(2 * 1024));
    let ten: Vec<&str> = PATHS.to_vec();
    let cases: [(&str, &str, &[&str]); 5] = [
        ("ten paths against 20 rules", support::TWENTY, &ten),
        ("ten paths against 5,000 rules, half with stars", &support::mixed(5_000), &ten),
        ("an 8 KB path against eleven stars", &stars, &[&long]),
        ("an 8 KB path against one plain rule", &plain, &[&long]),
        ("the same, every second byte escaped", &plain, &[&escaped]),
    ];
    table("answer, the rules being at hand", &all[..4], |row| {
        for (name, text, paths) in cases {
            let rules = politely_rules(text);
            let parsed = fast_robots::RobotsTxt::parse(text);
            let (matcher, robot, other) =
                (parsed.matcher(), texting(text), robotxt::Robots::parse(text.as_bytes(), AGENT));
            row(
                name,
                &mut [
                    &mut || {
                        _ = black_box(paths.iter().filter(|path| rules.check(black_box(path)).is_allowed()).count())
                    },
                    &mut || {
                        _ = black_box(paths.iter().filter(|path| matcher.is_allowed(AGENT, black_box(path))).count())
                    },
                    &mut || _ = black_box(paths.iter().filter(|path| robot.allowed(black_box(path))).count()),
                    &mut || _ = black_box(paths.iter().filter(|path| other.is_allowed(black_box(path))).count()),
                ],
            );
        }
    });
    // What is faster because it answers something else is not.
    let answers = |path: &str| {
        let rules = politely_rules("User-agent: *\nDisallow: /private/\n");
        let parsed = fast_robots::RobotsTxt::parse("User-agent: *\nDisallow: /private/\n");
        (rules.check(path).is_allowed(), parsed.matcher().is_allowed(AGENT, path))
    };
    println!(
        "\n`/%70rivate/` where `/private/` is disallowed, allowed by politely and by fast-robots: {:?}",
        answers("/%70rivate/")
    );
}

fn politely_rules(text: &str) -> politely::robots::RuleSet {
    RobotsTxt::parse(text.as_bytes()).rules_for(&[AGENT])
}

fn texting(text: &str) -> texting_robots::Robot {
    texting_robots::Robot::new(AGENT, text.as_bytes()).expect("it can be read")
}

fn google(text: &str, url: &str) -> bool {
    DefaultMatcher::default().one_agent_allowed_by_robots(text, AGENT, url)
}

type Row<'a> = dyn FnMut(&str, &mut [&mut dyn FnMut()]) + 'a;

fn table(title: &str, engines: &[&str], rows: impl FnOnce(&mut Row<'_>)) {
    println!("\n| {title} | {} |\n|---|{}", engines.join(" | "), "---|".repeat(engines.len()));
    rows(&mut |name, works| {
        let least = least(works);
        let cells: Vec<_> = least.iter().map(|took| shown(*took)).collect();
        println!("| {name} | {} |", cells.join(" | "));
    });
}

/// Of each, by turns.
fn least(works: &mut [&mut dyn FnMut()]) -> Vec<Duration> {
    let counts: Vec<u32> = works
        .iter_mut()
        .map(|work| {
            let start = Instant::now();
            work();
            (Duration::from_micros(200).as_nanos() / start.elapsed().as_nanos().max(50)).clamp(1, 2000) as u32
        })
        .collect();
    let mut least = vec![Duration::MAX; works.len()];
    for _ in 0..ROUNDS {
        for (number, work) in works.iter_mut().enumerate() {
            let start = Instant::now();
            (0..counts[number]).for_each(|_| work());
            least[number] = least[number].min(start.elapsed() / counts[number]);
        }
    }
    least
}

fn shown(took: Duration) -> String {
    match took.as_nanos() {
        nanos @ ..10_000 => format!("{:.2} µs", nanos as f64 / 1e3),
        nanos @ ..1_000_000 => format!("{:.0} µs", nanos as f64 / 1e3),
        nanos => format!("{:.2} ms", nanos as f64 / 1e6),
    }
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
