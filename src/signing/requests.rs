//! Signatures of requests. One covers the authority alone, so it is good for any request to it until it expires: it is made once
//! and kept for half of that time, unless each is to have a nonce.

use super::challenge::{SignatureRequest, TAG};
use super::key::SigningKey;
use super::message::{Component, Fields, Part, number, sign, string};
use super::{Directory, KeyError};
use crate::config::{AgentForm, SignWhen, SignatureSettings};
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

/// Signs as `identity.signature` says.
pub struct Signer {
    own: Arc<OwnKeys>,
    authorities: Cache<Authority, Arc<RequestSigner>>,
}

/// By what is signed. What a signer remembers of authorities holds this alone, and not the signer: one that is replaced goes,
/// with its keys.
struct OwnKeys {
    settings: SignatureSettings,
    directory: Directory,
    counts: Arc<SignatureCounts>,
}

/// Since the start, whatever is reloaded.
#[derive(Default)]
struct SignatureCounts {
    signed: AtomicU64,
    challenges: [AtomicU64; 3],
}

/// What came of an answer that asks for a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// What is sent from now on is signed as it asks.
    Met,
    /// It asks for what is not given.
    Unmet,
    /// The request was signed as it asks.
    Rejected,
}

/// The same for one authority: what it has asked for, and the last signature.
pub struct RequestSigner {
    own: Arc<OwnKeys>,
    authority: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None`: it has asked for none.
    wanted: Option<SignatureRequest>,
    /// Until when it may be taken again.
    last: Option<(u64, Arc<Signed>)>,
    /// A request that was repeated with a signature was challenged all the same.
    repeat_was_rejected: bool,
}

/// The fields of a signed request, as they are sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Signed {
    pub agent: String,
    pub input: String,
    pub signature: String,
}

impl Signer {
    /// `None`: nothing is to be signed. `before`: the one of earlier settings, which stays if nothing has changed.
    ///
    /// # Errors
    /// A key cannot be read, or may be read by others.
    pub fn of(settings: &SignatureSettings, before: Option<&Arc<Self>>) -> Result<Option<Arc<Self>>, KeyError> {
        let (Some(path), Some(agent)) = (&settings.key, &settings.agent) else { return Ok(None) };
        let keys = [path].into_iter().chain(&settings.other_keys).enumerate();
        let keys = keys
            .map(|(number, path)| SigningKey::read(path).map_err(|error| error.named_at(settings.places.get(number))));
        let settings = &SignatureSettings { places: Vec::new(), ..settings.clone() };
        let directory = Directory::new(agent.clone(), keys.collect::<Result<_, _>>()?);
        let is_same = |own: &OwnKeys| own.settings == *settings && own.directory.ids().eq(directory.ids());
        if let Some(before) = before.filter(|before| is_same(&before.own)) {
            return Ok(Some(before.clone()));
        }
        let counts = before.map_or_else(Arc::default, |before| before.own.counts.clone());
        let own = Arc::new(OwnKeys { settings: settings.clone(), directory, counts });
        Ok(Some(Arc::new(Self { own, authorities: Cache::new(AUTHORITIES) })))
    }

    pub fn directory(&self) -> &Directory {
        &self.own.directory
    }

    /// Requests that were signed, and challenges by what came of them.
    pub fn figures(&self) -> (u64, [(Challenge, u64); 3]) {
        let SignatureCounts { signed, challenges } = &*self.own.counts;
        let of = |challenge: Challenge| (challenge, challenges[challenge as usize].load(Relaxed));
        (signed.load(Relaxed), [Challenge::Met, Challenge::Unmet, Challenge::Rejected].map(of))
    }

    /// For requests to this authority.
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
    fn signed(&self, authority: &str, wanted: &SignatureRequest, created: u64, expires: u64) -> Signed {
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
            Component { name: "@authority", part: Part::Whole, value: authority },
            Component { name: "signature-agent", part, value: &value },
        ];
        let Fields { input, signature } = sign(key, &wanted.label, &components, &parameters);
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
    /// Whether requests are signed at the moment.
    pub fn is_wanted(&self) -> bool {
        self.own.settings.when == SignWhen::Always || self.state.lock().wanted.is_some()
    }

    /// What a request that leaves now is sent with. `None`: nobody has asked for it.
    pub fn sign(&self, now: SystemTime) -> Option<Arc<Signed>> {
        let mut state = self.state.lock();
        if self.own.settings.when == SignWhen::OnChallenge && state.wanted.is_none() {
            return None;
        }
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let validity = self.own.settings.validity.as_secs();
        if let Some((created, signed)) = &state.last
            // A clock may have been put back.
            && (*created..*created + validity.div_ceil(2)).contains(&now)
        {
            self.own.counts.signed.fetch_add(1, Relaxed);
            return Some(signed.clone());
        }
        let wanted = state.wanted.clone().unwrap_or_default();
        let signed = Arc::new(self.own.signed(&self.authority, &wanted, now, now + validity));
        state.last = (!self.own.settings.nonce).then(|| (now, signed.clone()));
        self.own.counts.signed.fetch_add(1, Relaxed);
        Some(signed)
    }

    /// An answer asks for a signature with `Accept-Signature`: what is sent from now on has one of that kind. Tells whether it is
    /// worth the while to send the request again, which has not been `repeated` yet.
    pub fn challenged(&self, value: &[u8], was_signed: bool, repeated: bool) -> bool {
        let OwnKeys { settings, directory, counts, .. } = &*self.own;
        let count = |challenge: Challenge| counts.challenges[challenge as usize].fetch_add(1, Relaxed);
        let Some(wanted) = SignatureRequest::parse(value, directory.first().id(), settings.form) else {
            count(Challenge::Unmet);
            return false;
        };
        let mut state = self.state.lock();
        let is_new =
            state.wanted.as_ref().map_or_else(|| wanted != SignatureRequest::default(), |before| wanted != *before);
        if is_new {
            state.last = None;
        }
        state.wanted = Some(wanted);
        state.repeat_was_rejected |= repeated;
        let is_met = is_new || !was_signed;
        count(if is_met && !repeated { Challenge::Met } else { Challenge::Rejected });
        !state.repeat_was_rejected && is_met
    }

    /// A request that was repeated with a signature has got another answer than that.
    pub fn satisfied(&self) {
        self.state.lock().repeat_was_rejected = false;
    }
}

fn nonce() -> String {
    let mut bytes = [0; 32];
    // Where there are no random numbers there is no TLS either.
    let _ = SystemRandom::new().fill(&mut bytes);
    BASE64_STANDARD.encode(bytes)
}

/// Whose last signatures, and wishes, are remembered.
const AUTHORITIES: usize = 4096;

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

    const CHALLENGE: &[u8] = br#"sig1=("@authority");tag="web-bot-auth""#;

    #[test]
    fn one_signature_serves_an_authority_for_half_of_its_validity() {
        let signer = signer("validity: 60s");
        let requests = to_example(&signer);
        let first = requests.sign(at(0)).unwrap();
        assert!(
            first.input.contains(";created=1735689600;") && first.input.contains(";expires=1735689660;"),
            "{first:?}"
        );
        assert!(Arc::ptr_eq(&first, &requests.sign(at(29)).unwrap()));
        let next = requests.sign(at(30)).unwrap();
        assert!(next.input.contains(";created=1735689630;"), "{next:?}");
        let earlier = requests.sign(at(10)).unwrap();
        assert!(earlier.input.contains(";created=1735689610;"), "a clock was put back: {earlier:?}");
        assert!(Arc::ptr_eq(&to_example(&signer), &requests), "whoever asks");
        let other = signer.requests_to(&Authority::new(Scheme::Https, "example.com", Some(8443)).unwrap());
        assert_ne!(other.sign(at(10)).unwrap().signature, earlier.signature);
    }

    #[test]
    fn with_nonces_no_signature_is_sent_twice() {
        let requests = to_example(&signer("nonce: true"));
        let [one, other] = [0, 0].map(|seconds| requests.sign(at(seconds)).unwrap());
        assert!(one.input.contains(";nonce=\"") && one.input != other.input && one.signature != other.signature);
    }

    #[test]
    fn on_challenge_only_clients_that_ask_get_one() {
        let requests = to_example(&signer("when: on-challenge"));
        assert!(!requests.is_wanted() && requests.sign(at(0)).is_none());
        assert!(!requests.challenged(br#"a=("@method")"#, false, false), "what we cannot give is not tried");
        assert!(requests.sign(at(0)).is_none());
        assert!(requests.challenged(CHALLENGE, false, false));
        assert!(requests.is_wanted() && requests.sign(at(0)).is_some());
    }

    #[test]
    fn a_request_is_repeated_once_and_not_at_all_where_that_was_in_vain() {
        let requests = to_example(&signer("when: on-challenge"));
        assert!(requests.challenged(CHALLENGE, false, false));
        assert!(requests.challenged(CHALLENGE, false, false), "another that had left without one meanwhile");
        assert!(!requests.challenged(CHALLENGE, true, true));
        assert!(!requests.challenged(CHALLENGE, false, false), "it does not help there");
        requests.satisfied();
        assert!(requests.challenged(CHALLENGE, false, false));
        assert!(!to_example(&signer("when: always")).challenged(CHALLENGE, true, false), "it has had what it asks for");
    }

    #[test]
    fn one_that_is_replaced_goes_with_its_keys_and_the_count_goes_on() {
        let before = signer("");
        let requests = to_example(&before);
        requests.sign(at(0)).unwrap();
        requests.sign(at(1)).unwrap();
        assert!(!requests.challenged(br#"a=("@method")"#, true, false));
        assert!(requests.challenged(br#"a=();nonce="n""#, true, false));
        assert!(!requests.challenged(br#"a=();nonce="n""#, true, true));
        let settings = SignatureSettings { nonce: true, ..before.own.settings.clone() };
        // Its file is gone by now.
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
    fn the_name_and_the_nonce_are_those_that_were_asked_for() {
        let requests = to_example(&signer(""));
        let before = requests.sign(at(0)).unwrap();
        assert!(requests.challenged(br#"x9=("@authority");nonce="n1""#, true, false));
        let signed = requests.sign(at(0)).unwrap();
        assert_ne!(signed, before);
        assert_eq!(signed.agent, r#"x9="https://signature-agent.test""#);
        assert!(signed.input.starts_with(r#"x9=("@authority" "signature-agent";key="x9");"#), "{signed:?}");
        assert!(signed.input.contains(r#";nonce="n1""#) && signed.signature.starts_with("x9=:"), "{signed:?}");
    }

    #[test]
    fn the_bare_string_is_for_older_verifiers() {
        let signed = to_example(&signer("form: string")).sign(at(0)).unwrap();
        assert_eq!(signed.agent, r#""https://signature-agent.test""#);
        assert!(signed.input.starts_with(r#"sig1=("@authority" "signature-agent");"#), "{signed:?}");
    }

    #[test]
    fn the_drafts_request_with_a_bare_string_comes_out_byte_for_byte() {
        let vector = super::super::vectors::STRING;
        let label = sfv::KeyRef::from_str(vector.label).unwrap().to_owned();
        let wanted = SignatureRequest { label, nonce: Some(vector.nonce.to_owned()) };
        let signed = signer("form: string").own.signed("example.com", &wanted, vector.created, vector.expires);
        assert_eq!((&*signed.agent, &*signed.input), (vector.agent, vector.input));
        assert_eq!(signed.signature, vector.signature);
    }
}
