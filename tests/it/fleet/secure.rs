//! TLS, passwords, and that nobody gets to see them.

use super::get;
use crate::support::binary::politely;
use crate::support::redis::{PASSWORD, PASSWORD_IN_URL, Redis};
use crate::support::{Binary, Origin, Reply};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fleet_over_tls_with_a_password_works() {
    let Some(redis) = Redis::with_password_and_tls().await else { return };
    let origin = Origin::site("User-agent: *\nDisallow: /private\n").await;
    let fleet = super::instances(&redis, 2, "").await;
    for instance in &fleet {
        super::comes_to_say(instance, "joined the fleet at rediss://localhost").await;
        assert_eq!(get(instance, &origin.url("/private")).await.status(), 403);
        assert!(!super::says(instance, "s3cret"));
    }
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_are_asked_over_tls_without_the_servers_password() {
    let Some(redis) = Redis::with_password_and_tls().await else { return };
    let sentinel = Redis::sentinel_of(&redis).await.expect("redis-server");
    let url = sentinel.url_with(PASSWORD_IN_URL).replace("rediss://", "rediss+sentinel://");
    let instance = Binary::serve(&format!("fleet: '{url}?master=main'")).await;
    super::comes_to_say(&instance, "joined the fleet at rediss+sentinel://localhost").await;
    assert!(!super::says(&instance, "s3cret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_permissions_are_sufficient() {
    let Some(redis) = Redis::with_user().await else { return };
    // Its file is stored apart from the copy.
    let comments = (0..50).map(|number| format!("# {number}\n")).collect::<String>();
    let origin = Origin::http(move |seen| match seen.path().as_str() {
        "/robots.txt" => Reply::text(format!("User-agent: *\nCrawl-delay: 0.1\n{comments}")),
        "/refused" => Reply::status(429),
        _ => Reply::text("page"),
    })
    .await;
    let fleet = super::instances(&redis, 2, "").await;
    for page in ["/page", "/refused", "/page"] {
        super::all(&fleet, &origin.url(page)).await;
    }
    for instance in &fleet {
        super::comes_to_say(instance, "joined the fleet").await;
        assert!(!super::says(instance, "is unreachable"), "{}", instance.output());
    }
    assert_eq!(origin.log.count("/robots.txt"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_password_is_reported_with_a_hint_and_not_logged() {
    let Some(redis) = Redis::with_password_and_tls().await else { return };
    let origin = Origin::site("").await;
    for url in [redis.url_with("wrong-one"), redis.url_with("")] {
        let instance =
            Binary::serve(&format!("fleet: {{ url: '{url}', instances: 1 }}\nlog: {{ level: trace }}")).await;
        super::comes_to_say(&instance, "correct the user and the password in `fleet`").await;
        let output = instance.output();
        assert!(!output.contains("wrong-one") && !output.contains(PASSWORD), "{output}");
        assert_eq!(get(&instance, &origin.url("/page")).await.status(), 200);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_a_certificate_for_another_name_is_refused() {
    let Some(redis) = Redis::with_password_and_tls().await else { return };
    let url = redis.url().replace("localhost", "127.0.0.1");
    let instance = Binary::serve(&format!("fleet: '{url}'")).await;
    super::comes_to_say(&instance, "is unreachable").await;
    let output = instance.output();
    assert!(output.contains("certificate"), "{output}");
    assert!(!output.contains("joined"), "{output}");
}

#[tokio::test]
async fn check_shows_no_password() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("politely.yaml");
    std::fs::write(&file, "fleet: redis://user:hunter2@redis.example:6379/0\n").expect("writable");
    let told = politely(&["check", "--config", file.to_str().expect("UTF-8")]).await;
    assert_eq!(told.code, 0, "{told:?}");
    assert!(told.stdout.contains("redis://redis.example:6379/0"), "{told:?}");
    assert!(!format!("{told:?}").contains("hunter2"), "{told:?}");
}
