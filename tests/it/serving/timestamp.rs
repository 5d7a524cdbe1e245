//! `politely evidence stamp` and `verify` with `openssl ts` as the time-stamping authority, behind a small HTTP server.

use super::report::{asked, chain};
use crate::support::binary::{Ended, politely};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// An authority with its own CA. Its paths answer in different ways.
struct Tsa {
    home: Arc<TempDir>,
    url: String,
}

impl Tsa {
    fn start() -> Self {
        let home = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        let config = "[tsa]\ndefault_tsa = one\n[one]\nserial = serial\nsigner_digest = sha256\ndefault_policy = 1.2.3.4\n\
                      digests = sha256\naccuracy = secs:1\ness_cert_id_alg = sha256\n";
        let files = [
            ("tsa.cnf", config),
            ("sha512.cnf", &config.replace("digests = sha256", "digests = sha512")),
            ("stamps.cnf", "keyUsage=critical,digitalSignature\nextendedKeyUsage=critical,timeStamping\n"),
            ("server.cnf", "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth\n"),
            ("other", "other data"),
        ];
        for (name, text) in files {
            fs::write(home.path().join(name), text).expect("it is writable");
        }
        const KEY: &str = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        for name in ["ca", "another"] {
            openssl(
                home.path(),
                &format!("req -x509 {KEY} -subj /CN={name} -days 2 -keyout {name}.key -out {name}.pem"),
            );
        }
        for name in ["stamps", "server"] {
            openssl(home.path(), &format!("req {KEY} -subj /CN={name} -keyout {name}.key -out {name}.csr"));
            openssl(
                home.path(),
                &format!(
                    "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile {name}.cnf -out {name}.pem"
                ),
            );
        }
        openssl(home.path(), "ts -query -data other -sha256 -cert -out other.tsq");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it listens"));
        let at = home.clone();
        std::thread::spawn(move || listener.incoming().flatten().for_each(|stream| serve(stream, at.path())));
        Tsa { home, url }
    }

    fn file(&self, name: &str) -> String {
        self.home.path().join(name).to_str().expect("UTF-8").to_owned()
    }

    async fn stamp(&self, directory: &Path, path: &str, more: &[&str]) -> Ended {
        let url = format!("{}{path}", self.url);
        politely(&[&["evidence", "stamp", text(directory), "--tsa", &url], more].concat()).await
    }
}

fn serve(mut stream: TcpStream, home: &Path) {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
    let body = loop {
        let Ok(read @ 1..) = stream.read(&mut piece) else { return };
        bytes.extend_from_slice(&piece[..read]);
        let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&bytes[..head]).into_owned();
        assert!(text.contains("Content-Type: application/timestamp-query"), "{text}");
        let length: usize = text.split("Content-Length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
        if bytes.len() >= head + 4 + length {
            break bytes[head + 4..].to_vec();
        }
    };
    let path = String::from_utf8_lossy(&bytes).split(' ').nth(1).unwrap_or_default().to_owned();
    fs::write(home.join("query"), body).unwrap();
    let reply = |config: &str, query: &str| {
        let signer = "-signer stamps.pem -inkey stamps.key -chain ca.pem";
        openssl(home, &format!("ts -reply -config {config} -queryfile {query} {signer} -out reply"));
        fs::read(home.join("reply")).unwrap()
    };
    let (status, body) = match path.as_str() {
        "/other-data" => ("200 OK", reply("tsa.cnf", "other.tsq")),
        // An earlier answer.
        "/again" => ("200 OK", fs::read(home.join("reply")).unwrap()),
        "/refuses" => ("200 OK", reply("sha512.cnf", "query")),
        "/server" => {
            reply("tsa.cnf", "query");
            ("200 OK", by_server(home))
        }
        "/long" => ("200 OK", vec![b'0'; 2 << 20]),
        "/html" => ("200 OK", b"<html>".to_vec()),
        "/error" => ("500 Internal Server Error", Vec::new()),
        _ => ("200 OK", reply("tsa.cnf", "query")),
    };
    let length = if path == "/cut" { body.len() + 1 } else { body.len() };
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/timestamp-reply\r\nContent-Length: {length}\r\n\r\n"
    );
    let _ = stream.write_all(&body);
}

/// The last reply, signed by a certificate of the same CA that is not for time stamps.
fn by_server(home: &Path) -> Vec<u8> {
    openssl(home, "ts -reply -in reply -token_out -out token");
    openssl(home, "cms -verify -noverify -inform DER -in token -binary -out info");
    let kind = "-econtent_type 1.2.840.113549.1.9.16.1.4";
    openssl(
        home,
        &format!(
            "cms -sign -cades -in info -binary -nodetach {kind} -signer server.pem -inkey server.key -certfile ca.pem -outform DER -out token"
        ),
    );
    let token = fs::read(home.join("token")).unwrap();
    let length = u16::try_from(token.len() + 5).unwrap().to_be_bytes();
    [b"\x30\x82".as_slice(), &length, b"\x30\x03\x02\x01\x00", &token].concat()
}

fn openssl(home: &Path, command: &str) {
    let ended = Command::new("openssl").current_dir(home).args(command.split(' ')).output().expect("it is installed");
    assert!(ended.status.success(), "openssl {command}: {}", String::from_utf8_lossy(&ended.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn example() -> TempDir {
    chain(&[asked(0, "https://a.example/", &json!({})), asked(1, "https://a.example/b", &json!({}))])
}

fn segment(directory: &Path) -> PathBuf {
    directory.join("00000001-20261122T090000Z.jsonl")
}

fn stamps(directory: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "tsr")).collect()
}

/// The last line, its end included.
fn last_of(lines: &str) -> &str {
    lines.split_inclusive('\n').next_back().expect("it has lines")
}

/// The faults that `verify` finds in a directory; `None` if there are none.
async fn faults(directory: &Path, more: &[&str]) -> Option<String> {
    let ended = politely(&[&["evidence", "verify", text(directory), "--format", "json"], more].concat()).await;
    let verified: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{}", ended.stderr));
    (ended.code != 0).then(|| format!("{}{}", verified["faults"], verified["untrusted_stamps"]))
}

#[tokio::test]
async fn time_stamp_of_the_head_is_stored_and_verified_by_openssl() {
    let (tsa, directory) = (Tsa::start(), example());
    let [ca, another] = ["ca.pem", "another.pem"].map(|name| tsa.file(name));
    let ended = tsa.stamp(directory.path(), "/tsr", &["--tsa-ca", &ca]).await;
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    let [stamp] = &*stamps(directory.path()) else { panic!("{:?}", stamps(directory.path())) };
    // The data is the last line, its end included.
    let lines = fs::read_to_string(segment(directory.path())).unwrap();
    let last = last_of(&lines);
    fs::write(tsa.file("last"), last).unwrap();
    openssl(tsa.home.path(), &format!("ts -verify -data last -in {} -CAfile ca.pem", text(stamp)));
    assert_eq!(faults(directory.path(), &["--tsa-ca", &ca]).await, None);
    assert_eq!(faults(directory.path(), &[]).await, None);
    let shown = politely(&["evidence", "verify", text(directory.path())]).await.stdout;
    let head = super::report::hex(&openssl::sha::sha256(last.as_bytes()));
    assert!(shown.contains(&format!("  stamped:  {head} at 20")) && shown.contains("was not verified"), "{shown}");
    let untrusted = faults(directory.path(), &["--tsa-ca", &another]).await;
    assert!(untrusted.as_ref().is_some_and(|it| it.contains("its authority is not trusted")), "{untrusted:?}");
    let verify = ["evidence", "verify", text(directory.path()), "--tsa-ca", &another];
    let ended = politely(&verify).await;
    let [first, second, ..] = &*ended.stdout.lines().collect::<Vec<_>>() else { panic!("{}", ended.stdout) };
    assert!(first.starts_with("not trusted: segment 1: the time stamp "), "{first}");
    assert!(second.ends_with(": whole; 1 time stamp NOT TRUSTED, by `--tsa-ca`"), "{second}");
    assert!(ended.code == 1 && ended.stdout.ends_with(&format!("\n  head:     {head}\n")), "{}", ended.stdout);
    let json: Value =
        serde_json::from_str(&politely(&[&verify[..], &["--format", "json"]].concat()).await.stdout).unwrap();
    let said = ["whole", "faults", "head"].map(|name| json[name].clone());
    assert_eq!(said, [json!(true), json!([]), json!(head)], "what is not good is the time stamp: {json}");
    let again = tsa.stamp(directory.path(), "/tsr", &[]).await;
    assert!(again.code == 0 && again.stdout.contains("has a time stamp already"), "{}", again.stdout);
}

#[tokio::test]
async fn rewritten_chain_fails_its_time_stamp() {
    let (tsa, directory) = (Tsa::start(), example());
    assert_eq!(tsa.stamp(directory.path(), "/tsr", &[]).await.code, 0);
    let (file, stamp) = (segment(directory.path()), stamps(directory.path()).pop().unwrap());
    let whole = fs::read_to_string(&file).unwrap();
    // Another chain, in place of the stamped one.
    let others = chain(&[
        asked(0, "https://a.example/", &json!({ "status": 404 })),
        asked(1, "https://a.example/b", &json!({})),
    ]);
    let rewritten = fs::read_to_string(segment(others.path())).unwrap();
    let cut = whole.split_inclusive('\n').take(2).collect::<String>();
    for text in [&rewritten, &cut] {
        fs::write(&file, text).unwrap();
        let said = faults(directory.path(), &[]).await;
        assert!(said.as_ref().is_some_and(|it| it.contains("the chain was rewritten, or cut")), "{said:?}");
    }
    // A time stamp is not valid for another line.
    let other_head = super::report::hex(&openssl::sha::sha256(last_of(&rewritten).as_bytes()));
    fs::write(&file, &rewritten).unwrap();
    let renamed = directory.path().join(format!("00000001-{other_head}.tsr"));
    fs::rename(&stamp, &renamed).unwrap();
    let said = faults(directory.path(), &[]).await;
    assert!(said.as_ref().is_some_and(|it| it.contains("it is for other data")), "{said:?}");
    // A changed time stamp is not valid.
    fs::write(&file, &whole).unwrap();
    fs::rename(&renamed, &stamp).unwrap();
    assert_eq!(faults(directory.path(), &[]).await, None);
    let good = fs::read(&stamp).unwrap();
    let stamped =
        super::report::hex(&good).find(&super::report::hex(&openssl::sha::sha256(last_of(&whole).as_bytes())));
    // The hash in it, and the signature, which is its end.
    for place in [stamped.expect("it is for that line") / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[place] ^= 1;
        fs::write(&stamp, bad).unwrap();
        assert!(
            faults(directory.path(), &["--tsa-ca", &tsa.file("ca.pem")]).await.is_some(),
            "byte {place} of {}",
            good.len()
        );
    }
    // A time stamp of a removed segment is ignored.
    fs::write(directory.path().join(format!("00000000-{other_head}.tsr")), &good).unwrap();
    fs::write(&stamp, &good).unwrap();
    assert_eq!(faults(directory.path(), &[]).await, None);
}

#[tokio::test]
async fn invalid_time_stamp_answers_are_not_stored() {
    let (tsa, directory) = (Tsa::start(), example());
    let ca = tsa.file("ca.pem");
    assert_eq!(tsa.stamp(example().path(), "/tsr", &[]).await.code, 0, "so that it has answered once");
    for (path, said) in [
        ("/again", "it answers another request: its nonce differs"),
        ("/other-data", "it is for other data"),
        ("/refuses", "the authority refused with status 2"),
        ("/server", "its authority is not trusted"),
        ("/html", "malformed time stamp: it is not DER"),
        ("/long", "the answer is too long"),
        ("/cut", "the answer is cut off"),
        ("/error", "it answers with status 500"),
    ] {
        let ended = tsa.stamp(directory.path(), path, &["--tsa-ca", &ca]).await;
        let is_said = ended.stderr.contains(said) && ended.stderr.contains("hint: ");
        assert!(ended.code == 2 && is_said, "{path}: {}{}", ended.stdout, ended.stderr);
    }
    for (url, said) in [
        ("http://127.0.0.1:1/".to_owned(), "Connection refused"),
        ("https://tsa.example/".to_owned(), "plain http is enough"),
        ("tsa.example".to_owned(), "write http://HOST/PATH"),
    ] {
        let ended = politely(&["evidence", "stamp", text(directory.path()), "--tsa", &url]).await;
        assert!(ended.code == 2 && ended.stderr.contains(said), "{url}: {}", ended.stderr);
    }
    let ended = tsa.stamp(directory.path(), "/tsr", &["--tsa-ca", &tsa.file("tsa.cnf")]).await;
    assert!(ended.code == 2 && ended.stderr.contains("has no certificate"), "{}", ended.stderr);
    assert!(stamps(directory.path()).is_empty(), "nothing is stored");
    fs::write(segment(directory.path()), "{}\n").unwrap();
    let ended = tsa.stamp(directory.path(), "/tsr", &[]).await;
    assert!(
        ended.code == 2 && ended.stderr.contains("is broken, so its head is not worth a time stamp"),
        "{}",
        ended.stderr
    );
}
