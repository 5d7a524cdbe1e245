//! Access control by client address and by password (RFC 7617). A tunnel keeps the user who opened it, as long as
//! that user exists.

use super::super::limits::per_client;
use super::Peer;
use crate::config::{AccessSettings, Secret, User};
use crate::policy::Refusal;
use crate::tls::ClientCertificate;
use argon2::{Argon2, PasswordVerifier};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::future::OptionFuture;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use ring::{hmac, rand};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{self, OwnedMutexGuard, Semaphore, oneshot};
use tokio::time::sleep;

/// Checks a client's address. If `access` names neither clients nor users, only loopback and clients with a certificate are allowed. Called
/// for each request, so that a reload also applies to open connections.
pub fn admit(access: &AccessSettings, peer: &Peer) -> Result<(), Refusal> {
    let client = peer.address.ip().to_canonical();
    let why = if access.clients.is_empty() {
        if peer.certificate.is_some() || access.needs_user() || client.is_loopback() {
            return Ok(());
        }
        format!("{client} is not this machine, and `access` names neither clients nor users")
    } else {
        if access.clients.iter().any(|network| network.0.contains(&client)) {
            return Ok(());
        }
        format!("{client} is not in access.clients")
    };
    Err(Refusal::ClientDenied { credentials: false, why: why.into() })
}

/// Checks that the user who opened a tunnel still exists: a reload may have removed or changed the user.
pub fn readmit(access: &AccessSettings, opener: &mut Option<Arc<User>>) -> Result<(), Refusal> {
    let users = &access.users;
    if opener.as_ref().is_some_and(|opener| users.iter().any(|user| Arc::ptr_eq(user, opener))) {
        return Ok(());
    }
    let same = opener.as_ref().and_then(|opener| users.iter().find(|user| keeps_credentials(user, opener)).cloned());
    if same.is_none() && access.needs_user() {
        let why = "the user who opened this tunnel is no longer in access.users with the same credentials".into();
        return Err(Refusal::ClientDenied { credentials: false, why });
    }
    *opener = same;
    Ok(())
}

/// Whether `now` has the name and all credentials of `before`.
fn keeps_credentials(now: &User, before: &User) -> bool {
    let is_kept = (before.password.is_none() || now.password == before.password)
        && (before.certificate.is_none() || now.certificate == before.certificate);
    now.name == before.name && is_kept
}

/// The user whom the client's certificate names.
pub fn certified(users: &[Arc<User>], shown: &ClientCertificate) -> Result<Arc<User>, Refusal> {
    let mut named =
        users.iter().filter(|user| user.certificate.as_ref().is_some_and(|name| shown.is_named(name.as_ref())));
    match (named.next(), named.next()) {
        (Some(user), None) => Ok(user.clone()),
        (Some(_), Some(_)) => Err(denied("the client certificate names more than one user")),
        (None, _) => Err(denied("the client certificate names no user, and no user name and password were sent")),
    }
}

/// Verifies passwords and caches the results, right or wrong. Each attempt computes one hash for every hash cost in use,
/// so that its duration does not show whether the name exists.
///
/// Attempts from one address are verified one after the other. A wrong password delays the next attempt, and delays the
/// next attempt under the same name for longer. This slows guessing and locks nobody out. Each connection has at most one
/// attempt in the queue.
pub struct Passwords {
    /// Random per process, so that the cached digests are useless elsewhere.
    key: hmac::Key,
    /// Whether a password was right, by digest of name, stored hash and password.
    results: Arc<Cache<Digest, bool>>,
    turns: Mutex<HashMap<AttemptKey, Arc<sync::Mutex<()>>>>,
    /// Limits concurrent hashes: each takes a thread and, with the usual hash cost, 19 MiB.
    hashing: Arc<Semaphore>,
    /// The hash costs that each attempt computed.
    #[cfg(test)]
    computed: Mutex<Vec<Vec<crate::config::HashCost>>>,
}

type Digest = [u8; 32];
/// Key of a lock that serializes attempts: all attempts from the address or, with the digest of a user name, those under that name.
type AttemptKey = (IpAddr, Option<Digest>);

impl Passwords {
    pub fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new());
        Passwords {
            key: key.expect("the system has random numbers, or TLS would have failed before"),
            results: Arc::new(Cache::new(CACHED_RESULTS)),
            turns: Mutex::default(),
            hashing: Arc::new(Semaphore::new(CONCURRENT_HASHES)),
            #[cfg(test)]
            computed: Mutex::default(),
        }
    }

    /// Returns the user that Proxy-Authorization names. `tries`: the connection's lock, which limits the connection to one attempt at a
    /// time.
    pub async fn user(
        &self,
        users: &[Arc<User>],
        client: IpAddr,
        sent: Option<&[u8]>,
        tries: Option<&sync::Mutex<()>>,
    ) -> Result<Arc<User>, Refusal> {
        let sent = sent.ok_or_else(|| denied("no user name and password were sent"))?;
        let (name, password) = basic(sent).ok_or_else(|| denied("the credentials are not of the Basic scheme"))?;
        let named = users.iter().find(|user| user.name.as_ref().as_bytes() == name);
        let hash = named.and_then(|user| user.password.as_ref()).map_or(&b""[..], |hash| hash.expose().as_bytes());
        let digest = self.digest(&[&name, hash, &password]);
        let is_right = match self.results.get(&digest) {
            Some(is_right) => is_right,
            None => {
                let _only = OptionFuture::from(tries.map(sync::Mutex::lock)).await;
                self.verify(users, named, per_client::client(client), &name, password, digest).await
            }
        };
        named.filter(|_| is_right).cloned().ok_or_else(|| denied("wrong user name or password"))
    }

    async fn verify(
        &self,
        users: &[Arc<User>],
        named: Option<&Arc<User>>,
        client: IpAddr,
        name: &[u8],
        password: Vec<u8>,
        digest: Digest,
    ) -> bool {
        if let Some(is_right) = self.results.get(&digest) {
            // An earlier attempt on this connection has verified the same password.
            return is_right;
        }
        let of_name = self.turn((client, Some(self.digest(&[name])))).await;
        // A crawler opens many connections at once with the same password: another connection may have verified it
        // meanwhile.
        if let Some(is_right) = self.results.get(&digest) {
            return is_right;
        }
        let of_address = self.turn((client, None)).await;
        let hashing = self.hashing.clone().acquire_owned().await.expect("the semaphore is never closed");
        let own = named.and_then(|user| user.password.clone());
        let others = decoy_hashes(users, named);
        #[cfg(test)]
        self.computed.lock().push(own.iter().chain(&others).filter_map(|hash| hash.cost().cloned()).collect());
        let verify = move || {
            let is_right = |hash: &Secret| Argon2::default().verify_password(&password, hash.expose()).is_ok();
            let right = own.as_ref().is_some_and(is_right);
            for other in &others {
                // The result is unused; only the duration matters.
                std::hint::black_box(is_right(other));
            }
            drop(hashing);
            right
        };
        let (tell, told) = oneshot::channel();
        let results = self.results.clone();
        // The pause applies even if the client hangs up.
        tokio::spawn(async move {
            let Ok(is_right) = tokio::task::spawn_blocking(verify).await else { return };
            results.insert(digest, is_right);
            let _ = tell.send(is_right);
            if !is_right {
                sleep(ADDRESS_PAUSE).await;
                drop(of_address);
                sleep(NAME_PAUSE).await;
                drop(of_name);
            }
        });
        told.await.unwrap_or(false)
    }

    /// Locks the key: attempts with the same key wait until the guard is dropped.
    async fn turn(&self, key: AttemptKey) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(key).or_default().clone()
        };
        turn.lock_owned().await
    }

    fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut context = hmac::Context::with_key(&self.key);
        for part in parts {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
    }
}

/// One stored hash for each cost in use, except the cost of the named user's hash.
fn decoy_hashes(users: &[Arc<User>], named: Option<&Arc<User>>) -> Vec<Secret> {
    let own = named.and_then(|user| user.password.as_ref());
    let mut all: Vec<&Secret> = own.into_iter().collect();
    for hash in users.iter().filter_map(|user| user.password.as_ref()) {
        if all.iter().all(|known| known.cost() != hash.cost()) {
            all.push(hash);
        }
    }
    all.into_iter().skip(usize::from(own.is_some())).cloned().collect()
}

/// Decodes Basic credentials (RFC 7617 §2).
fn basic(sent: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, coded) = sent.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let mut name = BASE64_STANDARD.decode(coded.trim_ascii()).ok()?;
    let colon = memchr::memchr(b':', &name)?;
    let password = name.split_off(colon + 1);
    name.pop();
    Some((name, password))
}

pub(super) fn denied(why: &str) -> Refusal {
    Refusal::ClientDenied { credentials: true, why: why.into() }
}

/// Maximum number of cached results.
const CACHED_RESULTS: usize = 10_000;
const CONCURRENT_HASHES: usize = 2;
/// Pause before the next attempt from the same address after a wrong password. Bounds the CPU time.
const ADDRESS_PAUSE: Duration = Duration::from_millis(100);
/// Further pause before the next attempt under the same name: with `ADDRESS_PAUSE`, 12 attempts a minute.
const NAME_PAUSE: Duration = Duration::from_millis(4900);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HashCost, Settings};
    use argon2::{Params, PasswordHasher};
    use futures_util::FutureExt;
    use std::pin::pin;
    use tokio::time::Instant;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// Two users with the same password, hashed at the lowest cost.
    fn users() -> Vec<Arc<User>> {
        let cheap = Params::new(8, 1, 1, None).unwrap();
        let hash = Argon2::from(cheap).hash_password(b"correct horse").unwrap().to_string();
        let yaml = format!(
            "access: {{ users: [{{ name: alice, password: '{hash}' }}, {{ name: bob, password: '{hash}' }}] }}"
        );
        Settings::parse("test.yaml", &yaml).unwrap().access.users
    }

    fn sent(credentials: &str) -> Vec<u8> {
        format!("Basic {}", BASE64_STANDARD.encode(credentials)).into_bytes()
    }

    async fn name(passwords: &Passwords, users: &[Arc<User>], client: IpAddr, credentials: &str) -> Option<String> {
        let user = passwords.user(users, client, Some(&sent(credentials)), None).await.ok()?;
        Some(user.name.as_ref().to_owned())
    }

    #[test]
    fn tunnel_keeps_its_user_while_her_credentials_are_unchanged() {
        let hash = users()[0].password.as_ref().unwrap().expose().to_owned();
        let other = hash.replace("m=8", "m=16");
        let access = |keys: &str| {
            Settings::parse("test.yaml", &format!("access: {{ users: [{{ name: a, {keys} }}] }}")).unwrap().access
        };
        let [both, certificate, password] =
            [format!("certificate: x, password: '{hash}'"), "certificate: x".to_owned(), format!("password: '{hash}'")];
        for (before, now, is_kept) in [
            (&both, both.clone(), true),
            (&certificate, both.clone(), true),
            (&password, both.clone(), true),
            (&both, certificate.clone(), false),
            (&both, password.clone(), false),
            (&both, both.replace('x', "y"), false),
            (&certificate, "certificate: y".into(), false),
            (&certificate, password.clone(), false),
            (&password, certificate.clone(), false),
            (&password, format!("password: '{other}'"), false),
        ] {
            let mut opener = Some(access(before).users[0].clone());
            assert_eq!(readmit(&access(&now), &mut opener).is_ok(), is_kept, "{before} and then {now}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn user_without_a_password_cannot_log_in_with_one() {
        let other = ", { name: b, password: '$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA' }";
        for (others, hashes) in [("", 0), (other, 1)] {
            let yaml = format!("access: {{ users: [{{ name: a, certificate: x }}{others}] }}");
            let (passwords, users) = (Passwords::new(), Settings::parse("test.yaml", &yaml).unwrap().access.users);
            for credentials in ["a:", "a:x", "a:a", "nobody:x"] {
                assert_eq!(name(&passwords, &users, HERE, credentials).await, None, "{credentials}");
            }
            let computed: Vec<_> = passwords.computed.lock().iter().map(Vec::len).collect();
            assert_eq!(computed, [hashes; 4], "each name costs as many hashes as an unknown one");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_user_is_known_by_name_and_password() {
        let (passwords, users) = (Passwords::new(), users());
        for _ in 0..2 {
            assert_eq!(name(&passwords, &users, HERE, "alice:correct horse").await.as_deref(), Some("alice"));
            assert_eq!(name(&passwords, &users, HERE, "bob:correct horse").await.as_deref(), Some("bob"));
        }
        for wrong in ["alice:correct", "alice:", "carol:correct horse", ":correct horse", "alice"] {
            assert_eq!(name(&passwords, &users, HERE, wrong).await, None, "{wrong}");
        }
    }

    /// If an unknown name cost less, the response time would reveal which names exist.
    #[tokio::test]
    async fn an_unknown_name_costs_as_much_as_a_known_one() {
        let hash = |memory, passes| {
            let params = Params::new(memory, passes, 1, None).unwrap();
            Argon2::from(params).hash_password(b"correct horse").unwrap().to_string()
        };
        let costs = [(8, 1), (64, 2), (8, 1), (8, 3), (64, 2)];
        let all = costs
            .iter()
            .enumerate()
            .map(|(number, (memory, passes))| format!("{{ name: u{number}, password: '{}' }}", hash(*memory, *passes)));
        let yaml = format!("access: {{ users: [{}] }}", all.collect::<Vec<_>>().join(", "));
        let users = Settings::parse("test.yaml", &yaml).unwrap().access.users;
        let passwords = Passwords::new();
        for (number, user) in ["u0", "u1", "u2", "u3", "u4", "nobody", ""].into_iter().enumerate() {
            let client = IpAddr::from([192, 0, 2, u8::try_from(number).unwrap()]);
            assert_eq!(name(&passwords, &users, client, &format!("{user}:wrong")).await, None);
        }
        assert_eq!(
            name(&passwords, &users, HERE, "u3:correct horse").await.as_deref(),
            Some("u3"),
            "the user's own hash is verified"
        );
        let of_a_try = |computed: &[HashCost]| {
            let mut computed: Vec<_> = computed.iter().map(|cost| format!("{cost:?}")).collect();
            computed.sort();
            computed
        };
        let computed: Vec<_> = passwords.computed.lock().iter().map(|computed| of_a_try(computed)).collect();
        assert_eq!(computed.len(), 8);
        assert_eq!(computed[0].len(), 3, "one hash for each cost: {:?}", computed[0]);
        assert!(computed.iter().all(|one| *one == computed[0]), "{computed:?}");
    }

    #[tokio::test]
    async fn many_users_of_one_cost_cost_one_hash() {
        let hash = users()[0].password.as_ref().unwrap().expose().to_owned();
        let all: Vec<_> = (0..1000).map(|number| format!("{{ name: u{number}, password: '{hash}' }}")).collect();
        let yaml = format!("access: {{ users: [{}] }}", all.join(", "));
        let (users, passwords) = (Settings::parse("test.yaml", &yaml).unwrap().access.users, Passwords::new());
        for credentials in ["nobody:wrong", "u999:wrong"] {
            assert_eq!(name(&passwords, &users, HERE, credentials).await, None);
        }
        assert!(passwords.computed.lock().iter().all(|computed| computed.len() == 1));
    }

    #[tokio::test]
    async fn other_schemes_and_no_credentials_are_refused() {
        let (passwords, users) = (Passwords::new(), users());
        for value in [&b"Bearer x"[..], b"Basic", b"Basic ", b"Basic !!!", b"", b"Digest username=\"alice\""] {
            assert!(passwords.user(&users, HERE, Some(value), None).await.is_err(), "{}", value.escape_ascii());
        }
        assert!(passwords.user(&users, HERE, None, None).await.is_err());
        assert!(passwords.user(&[], HERE, Some(&sent("alice:correct horse")), None).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_under_a_name_are_verified_seconds_apart() {
        let (passwords, users, began) = (Passwords::new(), users(), Instant::now());
        let guesses: Vec<_> = (0..12).map(|number| format!("alice:guess {number}")).collect();
        let all = guesses.iter().map(|guess| name(&passwords, &users, HERE, guess));
        assert!(futures_join(all).await.iter().all(Option::is_none));
        assert_eq!(began.elapsed().as_secs(), 55, "11 pauses of 5 seconds");
        let other = "192.0.2.7".parse().unwrap();
        assert!(name(&passwords, &users, other, "alice:correct horse").await.is_some());
        assert_eq!(began.elapsed().as_secs(), 55, "at once");
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_up_does_not_shorten_the_pause() {
        let (passwords, users, began) = (Passwords::new(), users(), Instant::now());
        for number in 0..12 {
            let guess = format!("alice:guess {number}");
            let mut guess = pin!(name(&passwords, &users, HERE, &guess));
            while passwords.computed.lock().len() <= number {
                assert!(guess.as_mut().now_or_never().is_none());
                sleep(Duration::from_millis(10)).await;
            }
        }
        assert_eq!(began.elapsed().as_secs(), 55);
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_password_passes_whatever_others_at_the_address_tried() {
        let (passwords, users) = (Passwords::new(), users());
        let began = Instant::now();
        let tried: Vec<_> = (0..20).map(|number| format!("nobody{number}:guess")).collect();
        let tried = tried.iter().map(String::as_str).chain(["bob:guess 1", "bob:guess 2", "alice:correct horse"]);
        let names = futures_join(tried.map(|tried| name(&passwords, &users, HERE, tried))).await;
        assert_eq!(names.into_iter().flatten().collect::<Vec<_>>(), ["alice"]);
        assert!(began.elapsed() < Duration::from_secs(8), "20 pauses of the address, one of the name bob");
    }

    /// Each connection has one attempt in the queue, even if it has sent many.
    #[tokio::test(start_paused = true)]
    async fn connections_take_turns_however_many_attempts_they_queue() {
        for name_of in [|_| "alice".to_owned(), |number| format!("nobody{number}")] {
            let (passwords, users, began) = (Passwords::new(), users(), Instant::now());
            let connection = sync::Mutex::new(());
            let tries: Vec<_> = (0..100).map(|number| sent(&format!("{}:guess {number}", name_of(number)))).collect();
            let tries = tries.iter().map(|sent| passwords.user(&users, HERE, Some(sent), Some(&connection)));
            let mut guessing = pin!(futures_util::future::join_all(tries));
            assert!(guessing.as_mut().now_or_never().is_none());
            let mut asking = pin!(name(&passwords, &users, HERE, "alice:correct horse"));
            let asked = tokio::select! {
                _ = &mut guessing => None,
                asked = &mut asking => asked,
            };
            assert_eq!(asked.as_deref(), Some("alice"));
            let computed = passwords.computed.lock().len();
            assert!(computed <= 3 && began.elapsed() <= Duration::from_secs(5), "{computed} in {:?}", began.elapsed());
            assert!(guessing.await.iter().all(Result::is_err), "every guess is verified in its turn, and wrong");
        }
    }

    /// SECURITY.md describes this wait: until a password is verified, the proxy cannot tell the users of one address apart.
    /// A verified password causes no further wait.
    #[tokio::test(start_paused = true)]
    async fn a_new_user_waits_once_for_one_attempt_of_each_earlier_connection() {
        for (name_of, wait) in [
            ((|number| format!("nobody{number}")) as fn(usize) -> String, 9..=11),
            (|_| "alice".to_owned(), 495..=510),
            (|_| "bob".to_owned(), 0..=0),
        ] {
            let (passwords, users) = (Passwords::new(), users());
            let connections: Vec<_> = (0..100).map(|_| sync::Mutex::new(())).collect();
            let tries: Vec<_> = (0..1000).map(|number| sent(&format!("{}:guess {number}", name_of(number)))).collect();
            let tries = tries.iter().zip(connections.iter().cycle());
            let tries = tries.map(|(sent, tries)| passwords.user(&users, HERE, Some(sent), Some(tries)));
            let mut guessing = pin!(futures_util::future::join_all(tries));
            // All attempts are queued.
            assert!(tokio::time::timeout(Duration::from_millis(50), &mut guessing).await.is_err());
            for wait in [wait, 0..=0] {
                let began = Instant::now();
                let mut asking = pin!(name(&passwords, &users, HERE, "alice:correct horse"));
                let asked = tokio::select! {
                    _ = &mut guessing => None,
                    asked = &mut asking => asked,
                };
                assert_eq!(asked.as_deref(), Some("alice"));
                assert!(wait.contains(&began.elapsed().as_secs()), "{wait:?}: {:?}", began.elapsed());
            }
        }
    }

    /// A crawler that repeats an outdated password makes one guess.
    #[tokio::test(start_paused = true)]
    async fn one_wrong_password_is_one_guess() {
        let (passwords, users, began) = (Passwords::new(), users(), Instant::now());
        for _ in 0..1000 {
            assert_eq!(name(&passwords, &users, HERE, "alice:horse").await, None);
        }
        assert_eq!((passwords.computed.lock().len(), began.elapsed().as_secs()), (1, 0));
        assert!(name(&passwords, &users, HERE, "alice:correct horse").await.is_some());
        assert_eq!(began.elapsed().as_secs(), 5);
    }

    #[tokio::test]
    async fn finished_turns_take_no_memory() {
        let (passwords, users) = (Passwords::new(), users());
        for number in 0..100 {
            let client = IpAddr::from([192, 0, 2, number]);
            assert!(name(&passwords, &users, client, "alice:correct horse").await.is_some());
        }
        assert!(passwords.turns.lock().len() <= 2);
    }

    #[tokio::test]
    async fn concurrent_right_passwords_take_one_hash() {
        let (passwords, users) = (Passwords::new(), users());
        let all = (0..50).map(|_| name(&passwords, &users, HERE, "alice:correct horse"));
        assert!(futures_join(all).await.iter().all(Option::is_some));
        assert_eq!(passwords.computed.lock().len(), 1);
    }

    async fn futures_join<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
        let mut all: Vec<_> = all.map(Box::pin).collect();
        let mut done = Vec::new();
        std::future::poll_fn(|cx| {
            all.retain_mut(|one| match one.as_mut().poll(cx) {
                std::task::Poll::Ready(output) => {
                    done.push(output);
                    false
                }
                std::task::Poll::Pending => true,
            });
            if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
        done
    }

    #[tokio::test]
    async fn a_refusal_contains_no_secret() {
        let (passwords, users) = (Passwords::new(), users());
        let refusal = passwords.user(&users, HERE, Some(&sent("alice:hunter2")), None).await.unwrap_err();
        assert!(!format!("{refusal} {refusal:?} {users:?}").contains("hunter2"));
        assert!(!format!("{users:?}").contains("argon2"));
    }
}
