//! Signatures of requests. A signature covers only the authority, so until it expires it is valid for every request to that authority.
//! Reuses a signature for half of its validity, unless it has a nonce.

use super::challenge::{SignatureRequest, TAG};
use super::key::SigningKey;
use super::message::{Component, Part, number, sign, string};
use super::{Directory, LABEL};
use crate::config::{AgentForm, Settings, SignWhen, SignatureSettings, UnusableFile};
use crate::policy::Authority;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use ring::rand::{SecureRandom, SystemRandom};
use sfv::{DictSerializer, ItemSerializer};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{SystemTime, UNIX_EPOCH};

/// Signs as configured in `identity.signature`.
pub struct Signer {
    own: Arc<OwnKeys>,
    authorities: Cache<Authority, Arc<RequestSigner>>,
}

/// Keys and settings of a signer. Each [`RequestSigner`] refers to these and not to the signer: a reference cycle would keep a replaced
/// signer and its keys in memory.
struct OwnKeys {
    settings: SignatureSettings,
    directory: Directory,
    counts: Arc<SignatureCounts>,
}

/// Counts since the start, across reloads.
#[derive(Default)]
struct SignatureCounts {
    signed: AtomicU64,
    challenges: [AtomicU64; 3],
}

/// The result of a challenge, which is an answer that asks for a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// Later requests are signed as the answer asks.
    Met,
    /// The answer asks for something unsupported.
    Unmet,
    /// The request was already signed as the answer asks.
    Rejected,
}

/// Signs requests to one authority; keeps the authority's last challenge and the last signature.
pub struct RequestSigner {
    own: Arc<OwnKeys>,
    authority: String,
    state: Mutex<State>,
}

/// A request whose answer asks for a signature.
#[derive(Debug, Clone, Copy)]
pub struct ChallengedRequest {
    /// Signed by this proxy.
    pub was_signed: bool,
    /// Already sent again after a challenge.
    pub is_repeated: bool,
}

#[derive(Default)]
struct State {
    /// The last challenge, if any. Its nonce is for the next request if the challenged one is not repeated.
    wanted: Option<SignatureRequest>,
    /// The last signature and its creation time, which limits its reuse.
    last: Option<(u64, Arc<Signed>)>,
    /// A request that was repeated with a signature was challenged again.
    repeat_was_rejected: bool,
}

/// A price that the request offers (Cloudflare's pay per crawl), which the signature has to cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriceField<'a> {
    pub name: &'static str,
    pub value: &'a str,
}

/// The signature fields of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Signed {
    pub agent: String,
    pub input: String,
    pub signature: String,
}

impl Signer {
    /// Makes a signer as [`of`](Self::of) does; errors also name the place in the configuration.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn configured(settings: &Settings, before: Option<&Arc<Self>>) -> Result<Option<Arc<Self>>, UnusableFile> {
        Self::of(&settings.identity.signature, before).map_err(|error| error.placed(&settings.places))
    }

    /// The signer of these settings. `None`: nothing is signed. `before`: the earlier signer, kept if unchanged.
    ///
    /// # Errors
    /// A key cannot be read, or others can read it.
    pub fn of(settings: &SignatureSettings, before: Option<&Arc<Self>>) -> Result<Option<Arc<Self>>, UnusableFile> {
        let (Some(path), Some(agent)) = (&settings.key, &settings.agent) else { return Ok(None) };
        let keys = [path].into_iter().chain(&settings.other_keys);
        let keys = keys.map(|path| SigningKey::read(path).map_err(|error| error.about(path)));
        let directory = Directory::new(agent.clone(), keys.collect::<Result<_, _>>()?);
        let is_same = |own: &OwnKeys| own.settings == *settings && own.directory.ids().eq(directory.ids());
        if let Some(before) = before.filter(|before| is_same(&before.own)) {
            return Ok(Some(before.clone()));
        }
        let counts = before.map_or_else(Arc::default, |before| before.own.counts.clone());
        let own = Arc::new(OwnKeys { settings: settings.clone(), directory, counts });
        let authorities = Cache::new(MAX_AUTHORITIES);
        // Keeps the challenges of the earlier signer, so that origins need not ask again.
        for (of, requests) in before.iter().flat_map(|before| before.authorities.iter()) {
            let state = State { wanted: requests.state.lock().wanted.clone(), ..State::default() };
            let (own, authority, state) = (own.clone(), requests.authority.clone(), Mutex::new(state));
            authorities.insert(of, Arc::new(RequestSigner { own, authority, state }));
        }
        Ok(Some(Arc::new(Self { own, authorities })))
    }

    pub fn directory(&self) -> &Directory {
        &self.own.directory
    }

    /// Returns the number of signed requests, and of challenges by result.
    pub fn figures(&self) -> (u64, [(Challenge, u64); 3]) {
        let SignatureCounts { signed, challenges } = &*self.own.counts;
        let of = |challenge: Challenge| (challenge, challenges[challenge as usize].load(Relaxed));
        (signed.load(Relaxed), [Challenge::Met, Challenge::Unmet, Challenge::Rejected].map(of))
    }

    /// The signer for requests to this authority.
    pub fn requests_to(&self, authority: &Authority) -> Arc<RequestSigner> {
        let make = || {
            let (own, authority, state) = (self.own.clone(), authority.host_header(), Mutex::default());
            Ok::<_, std::convert::Infallible>(Arc::new(RequestSigner { own, authority, state }))
        };
        match self.authorities.get_or_insert_with(authority, make) {
            Ok(requests) => requests,
            Err(never) => match never {},
        }
    }
}

impl OwnKeys {
    fn signed(
        &self,
        authority: &str,
        wanted: &SignatureRequest,
        price: Option<PriceField<'_>>,
        created: u64,
        expires: u64,
    ) -> Signed {
        let url = string(self.directory.agent().as_str());
        let value = ItemSerializer::new().bare_item(url).finish();
        let (part, agent) = match self.settings.form {
            AgentForm::String => (Part::Whole, value.clone()),
            AgentForm::Dictionary => {
                let mut agent = DictSerializer::new();
                let _ = agent.bare_item(&wanted.label, url).finish();
                (Part::Member(&wanted.label), agent.finish().unwrap_or_default())
            }
        };
        let nonce = wanted.nonce.clone().or_else(|| self.settings.nonce.then(nonce));
        let key = self.directory.first();
        let parameters = [
            Some(("created", number(created))),
            Some(("keyid", string(key.id()).into())),
            Some(("alg", string("ed25519").into())),
            Some(("expires", number(expires))),
            nonce.as_deref().map(|nonce| ("nonce", string(nonce).into())),
            Some(("tag", string(TAG).into())),
        ];
        let parameters: Vec<_> = parameters.into_iter().flatten().collect();
        let components = [
            Some(Component { name: "@authority", part: Part::Whole, value: authority }),
            Some(Component { name: "signature-agent", part, value: &value }),
            price.map(|PriceField { name, value }| Component { name, part: Part::Whole, value }),
        ];
        let components: Vec<_> = components.into_iter().flatten().collect();
        let (input, signature) = sign(key, &wanted.label, &components, &parameters);
        Signed { agent, input, signature }
    }
}

impl Challenge {
    /// The label in metrics. Stable.
    pub fn slug(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Unmet => "unmet",
            Self::Rejected => "rejected",
        }
    }
}

impl RequestSigner {
    /// Whether requests are currently signed.
    pub fn is_wanted(&self) -> bool {
        self.own.settings.when == SignWhen::Always || self.state.lock().wanted.is_some()
    }

    /// The signature for a request that is sent now. `asked`: the challenge, if the request is repeated after one. `price`: the price that
    /// the request offers. Returns `None` if requests are signed only on challenge, and this authority has sent none.
    pub fn sign(
        &self,
        now: SystemTime,
        asked: Option<&SignatureRequest>,
        price: Option<PriceField<'_>>,
    ) -> Option<Arc<Signed>> {
        let mut state = self.state.lock();
        if self.own.settings.when == SignWhen::OnChallenge && state.wanted.is_none() {
            return None;
        }
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let validity = self.own.settings.validity.as_secs();
        let wanted = match (asked, &mut state.wanted) {
            (Some(asked), _) => asked.clone(),
            (None, Some(wanted)) => SignatureRequest { label: wanted.label.clone(), nonce: wanted.nonce.take() },
            (None, None) => SignatureRequest::default(),
        };
        if wanted.nonce.is_none()
            && price.is_none()
            && let Some((created, signed)) = &state.last
            // The clock may have been set back.
            && (*created..*created + validity.div_ceil(2)).contains(&now)
        {
            self.own.counts.signed.fetch_add(1, Relaxed);
            return Some(signed.clone());
        }
        let signed = Arc::new(self.own.signed(&self.authority, &wanted, price, now, now + validity));
        // A nonce or a price ties a signature to one request.
        if wanted.nonce.is_none() && price.is_none() && !self.own.settings.nonce {
            state.last = Some((now, signed.clone()));
        }
        self.own.counts.signed.fetch_add(1, Relaxed);
        Some(signed)
    }

    /// Handles an `Accept-Signature` challenge: later requests are signed as it asks. Its nonce is for one request: this request if it is
    /// repeated, otherwise the next request. Returns the signature to repeat the request with, if repeating may help. `may_repeat`: prepares
    /// the repetition; returns false if that is impossible.
    pub fn challenged(
        &self,
        value: &[u8],
        request: ChallengedRequest,
        may_repeat: impl FnOnce() -> bool,
    ) -> Option<SignatureRequest> {
        let OwnKeys { settings, directory, counts, .. } = &*self.own;
        let count = |challenge: Challenge| counts.challenges[challenge as usize].fetch_add(1, Relaxed);
        let Some(wanted) = SignatureRequest::parse(value, directory.first().id(), settings.form) else {
            count(Challenge::Unmet);
            return None;
        };
        let mut state = self.state.lock();
        let before = state.wanted.as_ref().map_or(LABEL, |before| before.label.as_str());
        let is_renamed = wanted.label.as_str() != before;
        if is_renamed {
            state.last = None;
        }
        state.repeat_was_rejected |= request.is_repeated;
        let is_met = is_renamed || wanted.nonce.is_some() || !request.was_signed;
        count(if is_met && !request.is_repeated { Challenge::Met } else { Challenge::Rejected });
        let is_sent_again = is_met && !request.is_repeated && !state.repeat_was_rejected && may_repeat();
        let nonce = wanted.nonce.clone().filter(|_| !is_sent_again);
        state.wanted = Some(SignatureRequest { label: wanted.label.clone(), nonce });
        is_sent_again.then_some(wanted)
    }

    /// Notes that a request repeated with a signature was not challenged again.
    pub fn satisfied(&self) {
        self.state.lock().repeat_was_rejected = false;
    }
}

fn nonce() -> String {
    let mut bytes = [0; 32];
    // Ignores an error: without random numbers, TLS does not work either.
    let _ = SystemRandom::new().fill(&mut bytes);
    BASE64_STANDARD.encode(bytes)
}

/// Maximum number of remembered authorities.
const MAX_AUTHORITIES: usize = 4096;

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::policy::Scheme;
    use std::time::Duration;

    pub fn signer(more: &str) -> Arc<Signer> {
        let file = tempfile::Builder::new().permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600)).tempfile();
        let file = file.unwrap();
        std::fs::write(file.path(), super::super::vectors::KEY).unwrap();
        let yaml = format!("{{ key: {}, agent: 'https://signature-agent.test', {more} }}", file.path().display());
        let settings = crate::config::Settings::parse("", &format!("identity: {{ signature: {yaml} }}")).unwrap();
        Signer::of(&settings.identity.signature, None).unwrap().unwrap()
    }

    fn to_example(signer: &Arc<Signer>) -> Arc<RequestSigner> {
        signer.requests_to(&Authority::new(Scheme::Https, "example.com", None).unwrap())
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_735_689_600 + seconds)
    }

    fn first(was_signed: bool) -> ChallengedRequest {
        ChallengedRequest { was_signed, is_repeated: false }
    }

    fn challenged(requests: &RequestSigner, value: &[u8], was_signed: bool, is_repeated: bool) -> bool {
        requests.challenged(value, ChallengedRequest { is_repeated, ..first(was_signed) }, || true).is_some()
    }

    const CHALLENGE: &[u8] = br#"sig1=("@authority");tag="web-bot-auth""#;

    #[test]
    fn one_signature_serves_an_authority_for_half_of_its_validity() {
        let signer = signer("validity: 60s");
        let requests = to_example(&signer);
        let first = requests.sign(at(0), None, None).unwrap();
        assert!(
            first.input.contains(";created=1735689600;") && first.input.contains(";expires=1735689660;"),
            "{first:?}"
        );
        assert!(Arc::ptr_eq(&first, &requests.sign(at(29), None, None).unwrap()));
        let next = requests.sign(at(30), None, None).unwrap();
        assert!(next.input.contains(";created=1735689630;"), "{next:?}");
        let earlier = requests.sign(at(10), None, None).unwrap();
        assert!(earlier.input.contains(";created=1735689610;"), "the clock was set back: {earlier:?}");
        assert!(Arc::ptr_eq(&to_example(&signer), &requests), "the authority's signer is shared");
        let other = signer.requests_to(&Authority::new(Scheme::Https, "example.com", Some(8443)).unwrap());
        assert_ne!(other.sign(at(10), None, None).unwrap().signature, earlier.signature);
    }

    #[test]
    fn with_nonces_no_signature_is_sent_twice() {
        let requests = to_example(&signer("nonce: true"));
        let [one, other] = [0, 0].map(|seconds| requests.sign(at(seconds), None, None).unwrap());
        assert!(one.input.contains(";nonce=\"") && one.input != other.input && one.signature != other.signature);
    }

    #[test]
    fn on_challenge_only_origins_that_ask_get_a_signature() {
        let requests = to_example(&signer("when: on-challenge"));
        assert!(!requests.is_wanted() && requests.sign(at(0), None, None).is_none());
        assert!(!challenged(&requests, br#"a=("@method")"#, false, false), "an unsupported challenge is not met");
        assert!(requests.sign(at(0), None, None).is_none());
        assert!(challenged(&requests, CHALLENGE, false, false));
        assert!(requests.is_wanted() && requests.sign(at(0), None, None).is_some());
    }

    #[test]
    fn challenged_origins_are_remembered_after_a_reload() {
        let before = signer("when: on-challenge");
        assert!(challenged(&to_example(&before), CHALLENGE, false, false));
        let file = tempfile::tempdir().unwrap();
        let path = file.path().join("key");
        super::super::SigningKey::make(&path).unwrap();
        let settings = SignatureSettings { key: Some(path), ..before.own.settings.clone() };
        let next = Signer::of(&settings, Some(&before)).unwrap().unwrap();
        assert!(to_example(&next).is_wanted() && to_example(&next).sign(at(0), None, None).is_some());
        let other = Authority::new(Scheme::Https, "example.net", None).unwrap();
        assert!(!next.requests_to(&other).is_wanted());
    }

    #[test]
    fn a_request_is_repeated_once_unless_that_failed_before() {
        let requests = to_example(&signer("when: on-challenge"));
        assert!(challenged(&requests, CHALLENGE, false, false));
        assert!(
            challenged(&requests, CHALLENGE, false, false),
            "another request was sent unsigned before the challenge"
        );
        assert!(!challenged(&requests, CHALLENGE, true, true));
        assert!(!challenged(&requests, CHALLENGE, false, false), "repeating did not help before");
        requests.satisfied();
        assert!(challenged(&requests, CHALLENGE, false, false));
        assert!(
            !challenged(&to_example(&signer("when: always")), CHALLENGE, true, false),
            "the request already had this signature"
        );
    }

    #[test]
    fn a_replaced_signer_is_dropped_with_its_keys_and_counts_continue() {
        let before = signer("");
        let requests = to_example(&before);
        requests.sign(at(0), None, None).unwrap();
        requests.sign(at(1), None, None).unwrap();
        assert!(!challenged(&requests, br#"a=("@method")"#, true, false));
        assert!(challenged(&requests, br#"a=();nonce="n""#, true, false));
        assert!(!challenged(&requests, br#"a=();nonce="n""#, true, true));
        let settings = SignatureSettings { nonce: true, ..before.own.settings.clone() };
        // The key file of `before` has been deleted.
        let file = tempfile::tempdir().unwrap();
        let path = file.path().join("key");
        super::super::SigningKey::make(&path).unwrap();
        let next = Signer::of(&SignatureSettings { key: Some(path), ..settings }, Some(&before)).unwrap().unwrap();
        let figures = [(Challenge::Met, 1), (Challenge::Unmet, 1), (Challenge::Rejected, 1)];
        assert_eq!(next.figures(), (2, figures));
        let (gone, own) = (Arc::downgrade(&before), Arc::downgrade(&before.own));
        drop((before, requests));
        assert!(gone.upgrade().is_none() && own.upgrade().is_none());
    }

    #[test]
    fn signature_uses_the_requested_label_and_nonce() {
        let requests = to_example(&signer(""));
        let before = requests.sign(at(0), None, None).unwrap();
        let wanted = requests.challenged(br#"x9=("@authority");nonce="n1""#, first(true), || true);
        let signed = requests.sign(at(0), wanted.as_ref(), None).unwrap();
        assert_ne!(signed, before);
        assert_eq!(signed.agent, r#"x9="https://signature-agent.test""#);
        assert!(signed.input.starts_with(r#"x9=("@authority" "signature-agent";key="x9");"#), "{signed:?}");
        assert!(signed.input.contains(r#";nonce="n1""#) && signed.signature.starts_with("x9=:"), "{signed:?}");
    }

    #[test]
    fn nonce_of_a_site_is_used_in_one_signature() {
        let nonce = |signed: &Signed| signed.input.split(";nonce=").nth(1).map(|rest| rest[..4].to_owned());
        let requests = to_example(&signer("when: on-challenge"));
        let [one, other] = [&b"s=();nonce=\"n1\""[..], b"s=();nonce=\"n2\""]
            .map(|value| requests.challenged(value, first(false), || true).expect("the challenge is met"));
        let signed =
            [Some(&one), None, Some(&other), None, None].map(|asked| requests.sign(at(0), asked, None).unwrap());
        let nonces: Vec<_> = signed.iter().map(|signed| nonce(signed)).collect();
        assert_eq!(nonces, [Some("\"n1\"".into()), None, Some("\"n2\"".into()), None, None]);
        assert!(
            Arc::ptr_eq(&signed[3], &signed[4]) && Arc::ptr_eq(&signed[1], &signed[3]),
            "a signature without a nonce is reused"
        );
        // The nonce for a request that must not be repeated goes to the next request, even if that is the client's own retry.
        assert_eq!(requests.challenged(b"s=();nonce=\"n3\"", first(true), || false), None);
        let signed = [(); 2].map(|()| requests.sign(at(0), None, None).unwrap());
        assert_eq!(signed.map(|signed| nonce(&signed)), [Some("\"n3\"".into()), None]);
    }

    /// As Cloudflare requires, the signature covers the price field, so that nobody can raise the price on the way.
    #[test]
    fn price_is_covered_and_its_signature_is_not_reused() {
        let requests = to_example(&signer(""));
        let price = |name, value| requests.sign(at(0), None, Some(PriceField { name, value })).unwrap();
        let plain = requests.sign(at(0), None, None).unwrap();
        let max = price("crawler-max-price", "USD 0.01");
        let covered = r#"sig1=("@authority" "signature-agent";key="sig1" "crawler-max-price");"#;
        assert!(max.input.starts_with(covered), "{max:?}");
        assert_ne!(max.signature, price("crawler-max-price", "USD 0.02").signature);
        assert!(price("crawler-exact-price", "USD 0.01").input.contains(r#" "crawler-exact-price");"#));
        assert!(
            Arc::ptr_eq(&plain, &requests.sign(at(0), None, None).unwrap()),
            "requests without a price still share a signature"
        );
    }

    #[test]
    fn the_bare_string_is_for_older_verifiers() {
        let signed = to_example(&signer("form: string")).sign(at(0), None, None).unwrap();
        assert_eq!(signed.agent, r#""https://signature-agent.test""#);
        assert!(signed.input.starts_with(r#"sig1=("@authority" "signature-agent");"#), "{signed:?}");
    }

    #[test]
    fn signature_with_a_bare_string_equals_the_drafts_example() {
        let vector = super::super::vectors::STRING;
        let label = sfv::KeyRef::from_str(vector.label).unwrap().to_owned();
        let wanted = SignatureRequest { label, nonce: Some(vector.nonce.to_owned()) };
        let signed = signer("form: string").own.signed("example.com", &wanted, None, vector.created, vector.expires);
        assert_eq!((&*signed.agent, &*signed.input), (vector.agent, vector.input));
        assert_eq!(signed.signature, vector.signature);
    }
}
