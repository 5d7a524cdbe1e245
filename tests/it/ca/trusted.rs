//! Roots for origins.

use super::*;

#[test]
fn bundle_contains_system_roots_and_the_operators_ca() {
    let home = TempDir::new().unwrap();
    let ca = Ca::open_or_create(&home.path().join("ca")).unwrap();
    let system = roots::bundle(None).unwrap();
    let both = roots::bundle(Some(ca.path())).unwrap();
    assert!(system.store.len() > 50);
    assert_eq!(both.store.len(), system.store.len() + 1);
    assert_eq!(both.pem, system.pem.clone() + ca.cert_pem());
    let bundle = home.path().join("bundle.pem");
    roots::write_bundle(&bundle, &system, ca.cert_pem()).unwrap();
    assert_eq!(fs::read_to_string(&bundle).unwrap(), both.pem);
    assert_eq!(mode(&bundle), 0o644);
}

#[test]
fn a_bad_file_of_roots_is_refused_with_the_number_of_the_certificate() {
    let home = TempDir::new().unwrap();
    let ca = Ca::open_or_create(&home.path().join("ca")).unwrap();
    let file = home.path().join("roots.pem");
    let complaint = || roots::bundle(Some(&file)).unwrap_err().to_string();
    let shown = file.display();
    assert_eq!(
        complaint(),
        format!("the certificates in {shown} cannot be read: No such file or directory (os error 2)")
    );
    fs::write(&file, "# none yet\n").unwrap();
    assert_eq!(complaint(), format!("{shown} contains no certificate"));
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(&file, format!("{}{broken}", ca.cert_pem())).unwrap();
    assert!(complaint().starts_with(&format!("certificate 2 in {shown} cannot be used: ")), "{}", complaint());
    fs::write(&file, "-----BEGIN CERTIFICATE-----\nAA").unwrap();
    assert!(complaint().starts_with(&format!("certificate 1 in {shown} cannot be used: ")), "{}", complaint());
}
