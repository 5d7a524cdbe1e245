//! The test vectors of draft-ietf-webbotauth-httpsig-protocol-01, appendix E.2, with the key of RFC 9421, appendix
//! B.1.4, and the signature of RFC 9421, appendix B.2.6.

use super::key::SigningKey;
use super::message::number;
use super::message::{Component, Part, sign};
use sfv::{KeyRef, StringRef};

pub struct Request {
    pub label: &'static str,
    pub nonce: &'static str,
    pub created: u64,
    pub expires: u64,
    pub agent: &'static str,
    pub input: &'static str,
    pub signature: &'static str,
}

pub struct SignedDirectory {
    pub body: &'static str,
    pub digest: &'static str,
    pub created: u64,
    pub expires: u64,
    pub input: &'static str,
    pub signature: &'static str,
}

#[test]
fn rfc_9421_b_2_6_example_is_reproduced() {
    let component = |name, value| Component { name, part: Part::Whole, value };
    let components = [
        component("date", "Tue, 20 Apr 2021 02:07:55 GMT"),
        component("@method", "POST"),
        component("@path", "/foo"),
        component("@authority", "example.com"),
        component("content-type", "application/json"),
        component("content-length", "18"),
    ];
    let id = StringRef::from_str("test-key-ed25519").unwrap();
    let parameters = [("created", number(1_618_884_473)), ("keyid", id.into())];
    let label = KeyRef::from_str("sig-b26").unwrap();
    let (input, signature) = sign(&SigningKey::from_pem(KEY).unwrap(), label, &components, &parameters);
    assert_eq!(
        input,
        r#"sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519""#
    );
    assert_eq!(
        signature,
        "sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:"
    );
}

/// In this example the label and the covered member have different names; in our signatures they are always equal.
#[test]
fn signature_with_a_dictionary_equals_the_drafts_example() {
    let id = StringRef::from_str("poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U").unwrap();
    let text = |text| StringRef::from_str(text).unwrap().into();
    let member = KeyRef::from_str("agent2").unwrap();
    let components = [
        Component { name: "@authority", part: Part::Whole, value: "example.com" },
        Component { name: "signature-agent", part: Part::Member(member), value: "\"https://signature-agent.test\"" },
    ];
    let parameters = [
        ("created", number(1_735_689_600)),
        ("keyid", id.into()),
        ("alg", text("ed25519")),
        ("expires", number(4_889_289_600)),
        ("nonce", text("n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==")),
        ("tag", text("web-bot-auth")),
    ];
    let label = KeyRef::from_str("sig2").unwrap();
    let (input, signature) = sign(&SigningKey::from_pem(KEY).unwrap(), label, &components, &parameters);
    assert_eq!(
        input,
        r#"sig2=("@authority" "signature-agent";key="agent2");created=1735689600;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=4889289600;nonce="n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==";tag="web-bot-auth""#
    );
    assert_eq!(
        signature,
        "sig2=:RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==:"
    );
}

pub const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n\
    -----END PRIVATE KEY-----\n";

pub const STRING: Request = Request {
    label: "sig2",
    nonce: "e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==",
    created: 1_735_689_600,
    expires: 1_735_693_200,
    agent: r#""https://signature-agent.test""#,
    input: r#"sig2=("@authority" "signature-agent");created=1735689600;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";alg="ed25519";expires=1735693200;nonce="e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==";tag="web-bot-auth""#,
    signature: "sig2=:jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==:",
};

pub const DIRECTORY: SignedDirectory = SignedDirectory {
    body: r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs","use":"sig"}]}"#,
    digest: "sha-256=:CADMT2aBdV/rqQr/NIru64ERQkCobVvllA4V0fLFDu0=:",
    created: 1_735_689_600,
    expires: 4_889_289_600,
    input: r#"binding=("@authority";req "content-digest");created=1735689600;expires=4889289600;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";tag="http-message-signatures-directory""#,
    signature: "binding=:l6P8R67tm3kujAxbHWio7ll01qrEZ0dKD/WWlGhNYEmTnFZM8Wt0VQ9zqGfvo7T/UMkBxsigzChM1Gpz7gOVBg==:",
};
