//! Who may use the proxy, by address and by password (RFC 7617). A tunnel belongs to the user who opened it, for as long as that user exists.

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

/// Whether a client at this address may ask anything. No rules: this machine alone, and clients that have shown a certificate. Then
/// nothing else listens beyond loopback; but a connection may be from before a reload took the rules away.
pub fn admit(access: &AccessSettings, peer: &Peer) -> Result<(), Refusal> {
    let client = peer.address.ip().to_canonical();
    let why = if access.clients.is_empty() {
        if peer.certificate.is_some() || !access.users.is_empty() || client.is_loopback() {
            return Ok(());
        }
        format!("{client} is another machine, and `access` allows none")
    } else {
        if access.clients.iter().any(|network| network.0.contains(&client)) {
            return Ok(());
        }
        format!("{client} is not in access.clients")
    };
    Err(Refusal::ClientDenied { credentials: false, why: why.into() })
}

/// Whether the user who opened a tunnel may still use it: a reload may have removed that user, or changed the
/// settings.
pub fn readmit(access: &AccessSettings, opener: &mut Option<Arc<User>>) -> Result<(), Refusal> {
    let users = &access.users;
    if opener.as_ref().is_some_and(|opener| users.iter().any(|user| Arc::ptr_eq(user, opener))) {
        return Ok(());
    }
    let same = opener.as_ref().and_then(|opener| users.iter().find(|user| keeps_credentials(user, opener)).cloned());
    if same.is_none() && !users.is_empty() {
        let why = "the user who opened this tunnel is no longer in access.users".into();
        return Err(Refusal::ClientDenied { credentials: false, why });
    }
    *opener = same;
    Ok(())
}

/// Whether this is still the same user, who can still be identified in each way that was possible before.
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

/// Verifies passwords. Each is hashed once, right or wrong. Whatever name is given, and whether anybody has it, a try computes one hash
/// of each cost that any user's hash has: its time tells nothing of the name.
///
/// Guessing is slow, and locks nobody out: the tries at an address are judged one after the other, those under one name as well,
/// and the next one waits a while after a wrong one. Connections take turns: each has one try in these lines.
pub struct Passwords {
    /// Of this process alone, so that what is kept of a password is worth nothing elsewhere.
    key: hmac::Key,
    /// Whether they are right, by the digest of name and password.
    judged: Arc<Cache<Digest, bool>>,
    turns: Mutex<HashMap<Guesser, Arc<sync::Mutex<()>>>>,
    /// A hash takes a thread and 19 MiB or more while it is computed.
    hashing: Arc<Semaphore>,
    /// What each try has computed.
    #[cfg(test)]
    computed: Mutex<Vec<Vec<crate::config::HashCost>>>,
}

type Digest = [u8; 32];
/// An address, and the digest of a name where it is about the tries under that name.
type Guesser = (IpAddr, Option<Digest>);

impl Passwords {
    pub fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new());
        Passwords {
            key: key.expect("the system has random numbers, or TLS would have failed before"),
            judged: Arc::new(Cache::new(JUDGED)),
            turns: Mutex::default(),
            hashing: Arc::new(Semaphore::new(AT_A_TIME)),
            #[cfg(test)]
            computed: Mutex::default(),
        }
    }

    /// The user that the value of Proxy-Authorization names. `None`: there are no users, anybody may ask. `tries`: held by the one
    /// try of a connection that is judged or waits for that; `None`: it has no other.
    pub async fn identify(
        &self,
        users: &[Arc<User>],
        client: IpAddr,
        sent: Option<&[u8]>,
        tries: Option<&sync::Mutex<()>>,
    ) -> Result<Option<Arc<User>>, Refusal> {
        if users.is_empty() {
            return Ok(None);
        }
        let sent = sent.ok_or_else(|| denied("no user name and password were sent"))?;
        let (name, password) = basic(sent).ok_or_else(|| denied("the credentials are not of the Basic scheme"))?;
        let named = users.iter().find(|user| user.name.as_ref().as_bytes() == name);
        let hash = named.and_then(|user| user.password.as_ref()).map_or(&b""[..], |hash| hash.expose().as_bytes());
        let digest = self.digest(&[&name, hash, &password]);
        let is_right = match self.judged.get(&digest) {
            Some(is_right) => is_right,
            None => {
                let _only = OptionFuture::from(tries.map(sync::Mutex::lock)).await;
                self.judge(users, named, per_client::client(client), &name, password, digest).await
            }
        };
        let user = named.filter(|_| is_right).cloned();
        user.map(Some).ok_or_else(|| denied("wrong user name or password"))
    }

    async fn judge(
        &self,
        users: &[Arc<User>],
        named: Option<&Arc<User>>,
        client: IpAddr,
        name: &[u8],
        password: Vec<u8>,
        digest: Digest,
    ) -> bool {
        if let Some(is_right) = self.judged.get(&digest) {
            // By one before it on its connection.
            return is_right;
        }
        let of_name = self.turn((client, Some(self.digest(&[name])))).await;
        // A crawler opens many connections at once, and all of them show the same password.
        if let Some(is_right) = self.judged.get(&digest) {
            return is_right;
        }
        let of_address = self.turn((client, None)).await;
        let hashing = self.hashing.clone().acquire_owned().await.expect("the semaphore is never closed");
        let own = named.and_then(|user| user.password.clone());
        let others = stand_ins(users, named);
        #[cfg(test)]
        self.computed.lock().push(own.iter().chain(&others).filter_map(|hash| hash.cost().cloned()).collect());
        let verify = move || {
            let is_right = |hash: &Secret| Argon2::default().verify_password(&password, hash.expose()).is_ok();
            let right = own.as_ref().is_some_and(is_right);
            for other in &others {
                // For the time that it takes.
                std::hint::black_box(is_right(other));
            }
            drop(hashing);
            right
        };
        let (tell, told) = oneshot::channel();
        let judged = self.judged.clone();
        // Who hangs up is not judged any sooner the next time.
        tokio::spawn(async move {
            let Ok(is_right) = tokio::task::spawn_blocking(verify).await else { return };
            judged.insert(digest, is_right);
            let _ = tell.send(is_right);
            if !is_right {
                sleep(AT_AN_ADDRESS).await;
                drop(of_address);
                sleep(UNDER_A_NAME).await;
                drop(of_name);
            }
        });
        told.await.unwrap_or(false)
    }

    /// Waits for its turn, which ends with the guard.
    async fn turn(&self, guesser: Guesser) -> OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.turns.lock();
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(guesser).or_default().clone()
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

/// One hash of each cost that there is among the users, but for that of the named one's own.
fn stand_ins(users: &[Arc<User>], named: Option<&Arc<User>>) -> Vec<Secret> {
    let own = named.and_then(|user| user.password.as_ref());
    let mut all: Vec<&Secret> = own.into_iter().collect();
    for hash in users.iter().filter_map(|user| user.password.as_ref()) {
        if all.iter().all(|known| known.cost() != hash.cost()) {
            all.push(hash);
        }
    }
    all.into_iter().skip(usize::from(own.is_some())).cloned().collect()
}

/// Name and password (RFC 7617 §2).
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

fn denied(why: &str) -> Refusal {
    Refusal::ClientDenied { credentials: true, why: why.into() }
}

/// Of passwords that are not hashed again.
const JUDGED: usize = 10_000;
const AT_A_TIME: usize = 2;
/// Between a wrong password and the next try at an address, so that it takes little of the processor:
const AT_AN_ADDRESS: Duration = Duration::from_millis(100);
/// and so much longer until the next one under the same name there: twelve a minute.
const UNDER_A_NAME: Duration = Duration::from_millis(4900);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{HashCost, Settings};
    use argon2::{Params, PasswordHasher};
    use futures_util::FutureExt;
    use std::pin::pin;
    use tokio::time::Instant;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// Two with one password, hashed at the least cost that there is.
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
        let user = passwords.identify(users, client, Some(&sent(credentials)), None).await.ok()??;
        Some(user.name.as_ref().to_owned())
    }

    #[test]
    fn a_tunnel_stays_its_opener_s_while_each_of_the_credentials_does() {
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
    async fn who_has_no_password_is_known_by_none() {
        let other = ", { name: b, password: '$argon2id$v=19$m=8,t=1,p=1$c29tZXNhbHQ$BmiKRkKhzZ2NX3mIfpTMzA' }";
        for (others, hashes) in [("", 0), (other, 1)] {
            let yaml = format!("access: {{ users: [{{ name: a, certificate: x }}{others}] }}");
            let (passwords, users) = (Passwords::new(), Settings::parse("test.yaml", &yaml).unwrap().access.users);
            for credentials in ["a:", "a:x", "a:a", "nobody:x"] {
                assert_eq!(name(&passwords, &users, HERE, credentials).await, None, "{credentials}");
            }
            let computed: Vec<_> = passwords.computed.lock().iter().map(Vec::len).collect();
            assert_eq!(computed, [hashes; 4], "as where nobody has the name");
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

    /// Else names are found by the time that a refusal takes.
    #[tokio::test]
    async fn a_name_that_nobody_has_costs_what_each_users_does() {
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
        assert_eq!(name(&passwords, &users, HERE, "u3:correct horse").await.as_deref(), Some("u3"), "by its own hash");
        let of_a_try = |computed: &[HashCost]| {
            let mut computed: Vec<_> = computed.iter().map(|cost| format!("{cost:?}")).collect();
            computed.sort();
            computed
        };
        let computed: Vec<_> = passwords.computed.lock().iter().map(|computed| of_a_try(computed)).collect();
        assert_eq!(computed.len(), 8);
        assert_eq!(computed[0].len(), 3, "as many as there are costs: {:?}", computed[0]);
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
            assert!(passwords.identify(&users, HERE, Some(value), None).await.is_err(), "{}", value.escape_ascii());
        }
        assert!(passwords.identify(&users, HERE, None, None).await.is_err());
        assert!(passwords.identify(&[], HERE, None, None).await.unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn guesses_under_a_name_are_judged_seconds_apart() {
        let (passwords, users, began) = (Passwords::new(), users(), Instant::now());
        let guesses: Vec<_> = (0..12).map(|number| format!("alice:guess {number}")).collect();
        let all = guesses.iter().map(|guess| name(&passwords, &users, HERE, guess));
        assert!(futures_join(all).await.iter().all(Option::is_none));
        assert_eq!(began.elapsed().as_secs(), 55, "11 pauses of 5 seconds");
        let other = "192.0.2.7".parse().unwrap();
        assert!(name(&passwords, &users, other, "alice:correct horse").await.is_some());
        assert_eq!(began.elapsed().as_secs(), 55, "at once");
    }

    /// Also by somebody who hangs up without waiting to hear of it.
    #[tokio::test(start_paused = true)]
    async fn nor_are_they_judged_sooner_for_one_who_hangs_up() {
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
    async fn the_right_password_is_let_in_whatever_others_at_the_address_have_tried() {
        let (passwords, users) = (Passwords::new(), users());
        let began = Instant::now();
        let tried: Vec<_> = (0..20).map(|number| format!("nobody{number}:guess")).collect();
        let tried = tried.iter().map(String::as_str).chain(["bob:guess 1", "bob:guess 2", "alice:correct horse"]);
        let names = futures_join(tried.map(|tried| name(&passwords, &users, HERE, tried))).await;
        assert_eq!(names.into_iter().flatten().collect::<Vec<_>>(), ["alice"]);
        assert!(began.elapsed() < Duration::from_secs(8), "20 pauses at the address, one under the name of another");
    }

    /// However many tries wait on one connection: between two of them, the others have theirs.
    #[tokio::test(start_paused = true)]
    async fn connections_take_turns_and_not_tries() {
        for name_of in [|_| "alice".to_owned(), |number| format!("nobody{number}")] {
            let (passwords, users, began) = (Passwords::new(), users(), Instant::now());
            let connection = sync::Mutex::new(());
            let tries: Vec<_> = (0..100).map(|number| sent(&format!("{}:guess {number}", name_of(number)))).collect();
            let tries = tries.iter().map(|sent| passwords.identify(&users, HERE, Some(sent), Some(&connection)));
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
            assert!(guessing.await.iter().all(Result::is_err), "they are judged, in their turns");
        }
    }

    /// What SECURITY.md says of those who share an address with somebody who guesses: nothing tells their connections apart before
    /// a password is judged. Whoever has been let in is not judged again.
    #[tokio::test(start_paused = true)]
    async fn who_is_new_waits_for_one_try_of_each_connection_that_asked_before_and_once() {
        for (name_of, wait) in [
            ((|number| format!("nobody{number}")) as fn(usize) -> String, 9..=11),
            (|_| "alice".to_owned(), 495..=510),
            (|_| "bob".to_owned(), 0..=0),
        ] {
            let (passwords, users) = (Passwords::new(), users());
            let connections: Vec<_> = (0..100).map(|_| sync::Mutex::new(())).collect();
            let tries: Vec<_> = (0..1000).map(|number| sent(&format!("{}:guess {number}", name_of(number)))).collect();
            let tries = tries.iter().zip(connections.iter().cycle());
            let tries = tries.map(|(sent, tries)| passwords.identify(&users, HERE, Some(sent), Some(tries)));
            let mut guessing = pin!(futures_util::future::join_all(tries));
            // All of them stand in line.
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

    /// A crawler that still has last year's password asks with it again and again: that is one guess.
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
    async fn nothing_is_kept_of_those_who_have_had_their_turns() {
        let (passwords, users) = (Passwords::new(), users());
        for number in 0..100 {
            let client = IpAddr::from([192, 0, 2, number]);
            assert!(name(&passwords, &users, client, "alice:correct horse").await.is_some());
        }
        assert!(passwords.turns.lock().len() <= 2);
    }

    #[tokio::test]
    async fn many_who_come_at_once_with_the_right_password_are_let_in() {
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
    async fn a_refusal_repeats_no_secret() {
        let (passwords, users) = (Passwords::new(), users());
        let refusal = passwords.identify(&users, HERE, Some(&sent("alice:hunter2")), None).await.unwrap_err();
        assert!(!format!("{refusal} {refusal:?} {users:?}").contains("hunter2"));
        assert!(!format!("{users:?}").contains("argon2"));
    }
}
