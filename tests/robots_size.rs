//! Compiled rules take bytes in proportion to what they were made of.

#[path = "../benches/support/mod.rs"]
mod support;

use politely::robots::RobotsTxt;

#[test]
fn compiled_rules_take_at_most_forty_bytes_a_rule_and_twice_their_patterns() {
    let files = [
        ("twenty rules", support::TWENTY.to_owned()),
        ("5,000 mixed rules", support::mixed(5_000)),
        ("5,000 leading stars", support::leading_stars(5_000)),
        ("500 KB", support::large(500_000)),
        ("one rule", "User-agent: *\nDisallow: /\n".to_owned()),
        ("no rule", String::new()),
        ("eleven stars", support::file(["/*a*a*a*a*a*a*a*a*a*a*a*b".to_owned()])),
    ];
    for (name, text) in files {
        let rules = RobotsTxt::parse(text.as_bytes()).rules_for(&["ExampleBot"]);
        let group = text.split("\nUser-agent: ").find(|group| group.contains('*')).unwrap_or_default();
        let rule = |line: &str| {
            line.split_once(": ").filter(|(key, _)| key.ends_with("llow")).map_or(0, |(_, path)| path.len())
        };
        let patterns: usize = group.lines().map(rule).sum();
        let bound = 2 * patterns + 40 * rules.len() + 256;
        println!("{name}: {} bytes of patterns, {} compiled", patterns, rules.heap_size());
        assert!(rules.heap_size() <= bound, "{name}: {} for {patterns} bytes of patterns", rules.heap_size());
    }
}
