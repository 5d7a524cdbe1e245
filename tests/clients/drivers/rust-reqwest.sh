# Rust reqwest
#
# `timeout(None)`. With `rustls` it has roots of its own, unless told to take the system's.
family='Go and Rust'
install() { crate reqwest@0.12 --no-default-features --features blocking,rustls-tls-native-roots; }
version() { crate_version reqwest; }
recipe fetch.rs <<'END'
fn main() -> Result<(), reqwest::Error> {
    let client = reqwest::blocking::Client::builder().timeout(None).build()?;
    for url in std::env::args().skip(1) {
        println!("{url} {:?}", client.get(&url).send().map(|answer| answer.status()));
    }
    Ok(())
}
END
fetch() {
    politely run ./fetch "$@"
}
