//! What is kept beyond what sites ask for: in `pace`, in `hosts`, and what can be wrong with it.

use super::*;
use politely::policy::{Adaptive, Breaker, Budget, Manners, Period};
use std::num::NonZeroU32;

fn of(yaml: &str, host: &str) -> Manners {
    good(yaml).hosts.get(&Host::parse(host).unwrap()).rules.manners
}

fn adaptive(factor: u32, min: u64, max: u64) -> Option<Adaptive> {
    let [min, max] = [min, max].map(Duration::from_secs);
    Some(Adaptive::new(NonZeroU32::new(factor).unwrap(), min, max))
}

fn breaker(after: u32, pause: u64) -> Option<Breaker> {
    Some(Breaker { after: NonZeroU32::new(after).unwrap(), pause: Duration::from_secs(pause) })
}

/// The default of `max` may be longer than `max_crawl_delay`.
#[test]
fn adaptive_factor_0_is_off_with_any_max_crawl_delay() {
    for yaml in [
        "pace: { max_crawl_delay: 10s, adaptive: { factor: 0 } }",
        "pace: { max_crawl_delay: 10s }\nhosts: { a.example: { adaptive: { factor: 0 } } }",
    ] {
        assert_eq!(policy(&good(yaml), "a.example").rules.manners.adaptive, None, "{yaml}");
    }
}

#[test]
fn manners_are_off_by_default_and_missing_keys_have_defaults() {
    assert_eq!(of("", "a.example"), Manners::default());
    assert_eq!(of("pace: { adaptive: {} }", "a.example").adaptive, adaptive(500, 0, 30));
    assert_eq!(of("pace: { adaptive: { factor: 2.5, min: 1s, max: ~ } }", "a.example").adaptive, adaptive(250, 1, 30));
    let budget = |requests, bytes, per| Some(Budget { requests, bytes, per, money: None });
    assert_eq!(of("pace: { budget: { requests: 7 } }", "a.example").budget, budget(Some(7), None, Period::Day));
    let hourly = of("pace: { budget: { bytes: 1KiB, per: hour, requests: ~ } }", "a.example").budget;
    assert_eq!(hourly, budget(None, Some(1024), Period::Hour));
    assert_eq!(of("pace: { budget: {} }", "a.example").budget, None);
    assert_eq!(of("pace: { breaker: {} }", "a.example").breaker, breaker(5, 600));
    assert_eq!(of("pace: { breaker: { after: 2, pause: 1m } }", "a.example").breaker, breaker(2, 60));
}

#[test]
fn a_budget_of_money_has_one_currency_and_a_period() {
    let money = |yaml: &str| of(&format!("pace: {{ budget: {{ money: {yaml} }} }}"), "a.example").budget.unwrap();
    assert_eq!(money("{ USD: 5, per: hour }").to_string(), "USD 5 per hour");
    assert_eq!(money("{ EUR: 0.25 }").to_string(), "EUR 0.25 per day");
    let both = of("pace: { budget: { requests: 7, money: { USD: 5 } } }", "a.example").budget.unwrap();
    assert_eq!(both.to_string(), "7 requests per day; USD 5 per day");
    let forms = "write `{ USD: 5, per: day }`";
    for (yaml, fault) in [
        ("{ per: day }", "1:26 the key `USD` is missing | add `USD: …`".to_owned()),
        ("{ usd: 5 }", format!("1:28 `usd` is not a currency | {forms}")),
        ("5", format!("1:26 expected an amount and its currency, found `5` | {forms}")),
        ("{ USD: -5 }", "1:33 `-5` is not an amount | an amount is a number such as `5` or `0.25`".to_owned()),
        (
            "{ USD: 5, EUR: 5 }",
            "1:26 this budget has two currencies | keep one: a price in another currency is always refused".to_owned(),
        ),
    ] {
        assert_eq!(short(&format!("pace: {{ budget: {{ money: {yaml} }} }}")), [fault], "{yaml}");
    }
}

#[test]
fn host_and_user_manners_override_and_zero_disables() {
    let yaml = "pace: { adaptive: {}, breaker: {} }\n\
        hosts: { '*.example': { breaker: { after: 2 } }, a.example: { adaptive: { factor: 0 } } }";
    assert_eq!(
        of(yaml, "other.test"),
        Manners { adaptive: adaptive(500, 0, 30), breaker: breaker(5, 600), ..Manners::default() }
    );
    assert_eq!(
        of(yaml, "b.example"),
        Manners { adaptive: adaptive(500, 0, 30), breaker: breaker(2, 600), ..Manners::default() }
    );
    assert_eq!(of(yaml, "a.example"), Manners { breaker: breaker(2, 600), ..Manners::default() });
}

#[test]
fn invalid_manners_are_reported_with_their_places() {
    let longer = "lower the first or raise the second";
    let pause = "write `10m`; a host that still refuses requests is paused again";
    let factor = "a factor is a number from 0.01 to 1000, such as `5` or `2.5`, or 0 for none";
    let size = "a size is a whole number and its unit: `512KiB`, `1MiB`, `2GiB`, or a plain number of bytes";
    for (yaml, faults) in [
        (
            "\
pace:
  max_crawl_delay: 1m
  adaptive: { min: 10s, max: 5s }
  breaker: { after: 1, pause: 2h }
hosts:
  a.example: { adaptive: { max: 2m }, breaker: { pause: 0 } }
  c.example: { budget: { per: hour } }
",
            &[
                &*format!("3:20 `min` (10s) is longer than `max` (5s) | {longer}"),
                &format!("4:31 a pause must be longer than 0 and at most 1h, not 2h | {pause}"),
                &format!("6:33 `max` (2m) is longer than `pace.max_crawl_delay` (1m) | {longer}"),
                &format!("6:57 a pause must be longer than 0 and at most 1h, not 0 | {pause}"),
                "7:31 `per` is the period of `requests` and `bytes`, and neither is set | add `requests: …` or `bytes: …`; money has a period of its own: `money: { USD: 5, per: day }`; `{}` means no budget",
            ][..],
        ),
        ("pace: { adaptive: { factor: -1 } }", &[&format!("1:29 `-1` is not a factor | {factor}")]),
        ("pace: { adaptive: { factor: fast } }", &[&format!("1:29 expected a number, found `fast` | {factor}")]),
        ("pace: { breaker: { count: 3 } }", &["1:20 unknown key `count` | the keys here are `after` and `pause`"]),
        (
            "pace: { breaker: { after: -1 } }",
            &["1:27 expected a whole number from 0 to 4294967295, found `-1` | write 0 or more"],
        ),
        (
            "pace: { budget: { requests: 99999999999999999999999 } }",
            &["1:29 expected a whole number, found `99999999999999999999999` | write a smaller number"],
        ),
        (
            "pace: { budget: { bytes: -99999999999999999999999 } }",
            &[&format!("1:26 `-99999999999999999999999` is not a size | {size}")],
        ),
    ] {
        assert_eq!(short(yaml), faults, "{yaml}");
    }
}

#[test]
fn budget_of_a_user_requires_a_limit() {
    let user = |budget: &str| {
        let hash = "$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA";
        format!("access: {{ users: [{{ name: a, password: \"{hash}\", budget: {budget} }}] }}")
    };
    assert!(good(&user("{ requests: 0 }")).access.users[0].budget.is_some_and(|budget| budget.requests == Some(0)));
    let fault = "`per` is the period of `requests` and `bytes`, and neither is set | add `requests: …` or `bytes: …`; money has a period of its own: `money: { USD: 5, per: day }`; `{}` means no budget";
    assert!(short(&user("{ per: day }")).iter().all(|said| said.ends_with(fault)));
    assert_eq!(short(&user("{ per: day }")).len(), 1);
}
