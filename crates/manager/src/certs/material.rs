//! The CA and the serving certificate of the webhooks: creation, parsing, validity.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use x509_parser::extensions::GeneralName;
use x509_parser::pem::Pem;

const DAY: Duration = Duration::from_hours(24);
const CA_LIFETIME: Duration = DAY.saturating_mul(3650);
const CA_MARGIN: Duration = DAY.saturating_mul(400);
const SERVING_LIFETIME: Duration = DAY.saturating_mul(365);
const SERVING_MARGIN: Duration = DAY.saturating_mul(90);
/// Clocks of the API server and of the manager may differ by this much.
const SKEW: Duration = Duration::from_hours(1);

/// Why certificates could not be made.
#[derive(Debug, thiserror::Error)]
#[error("making the {what}")]
pub struct MakeError {
    what: &'static str,
    source: rcgen::Error,
}

/// The content of the Secret, all in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Material {
    /// The CA that signs, first; then the previous one, while clients may still see its certificates.
    pub ca_bundle: String,
    /// The signing CA's key.
    pub ca_key: String,
    /// The serving certificate.
    pub cert: String,
    /// The serving certificate's key.
    pub key: String,
}

/// What to do with the material.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It is valid.
    Keep,
    /// The CA is good, the serving certificate is not (any more).
    RenewServing,
    /// Both have to be made.
    RenewAll,
}

/// The relevant fields of a certificate.
struct Read {
    subject: Vec<u8>,
    issuer: Vec<u8>,
    public_key: Vec<u8>,
    from: i64,
    until: i64,
    is_ca: bool,
    names: BTreeSet<String>,
}

/// Judges what a Secret holds: is it whole, in time, and good for all `names`?
pub fn decide(material: &Material, names: &BTreeSet<String>, now: Timestamp) -> Renewal {
    let cas = read_all(&material.ca_bundle);
    let Some(ca) = cas.first() else { return Renewal::RenewAll };
    let key_fits = KeyPair::from_pem(&material.ca_key)
        .is_ok_and(|key| rcgen::PublicKeyData::subject_public_key_info(&key) == ca.public_key);
    if !ca.is_ca || !key_fits || !holds(ca, now, CA_MARGIN) {
        return Renewal::RenewAll;
    }
    let certs = read_all(&material.cert);
    let Some(cert) = certs.first() else { return Renewal::RenewServing };
    let key_fits = KeyPair::from_pem(&material.key)
        .is_ok_and(|key| rcgen::PublicKeyData::subject_public_key_info(&key) == cert.public_key);
    if !key_fits
        || cert.issuer != ca.subject
        || !holds(cert, now, SERVING_MARGIN)
        || !names.is_subset(&cert.names)
    {
        return Renewal::RenewServing;
    }
    Renewal::Keep
}

/// Renews. A new CA is put in front of those that are still valid, so that a certificate that some replica still serves is trusted at any moment.
///
/// # Errors
///
/// If the CA that is kept or its key cannot be read, a name cannot stand in a certificate, or a key cannot be generated.
pub fn renew(
    material: &Material,
    decision: Renewal,
    names: &BTreeSet<String>,
    now: Timestamp,
) -> Result<Material, MakeError> {
    if decision == Renewal::Keep {
        return Ok(material.clone());
    }
    let mut next = if decision == Renewal::RenewAll {
        let (ca_cert, ca_key) = make_ca(now)?;
        let ca_bundle = ca_cert + &still_valid(&material.ca_bundle, now);
        Material { ca_bundle, ca_key, ..Material::default() }
    } else {
        Material { ca_bundle: still_valid(&material.ca_bundle, now), ..material.clone() }
    };
    let mut all = names.clone();
    if let Some(cert) = read_all(&material.cert).into_iter().next() {
        // Another replica may have requested names that this one does not know.
        all.extend(cert.names);
    }
    let failed = |what| move |source| MakeError { what, source };
    let ca_key = KeyPair::from_pem(&next.ca_key).map_err(failed("CA's key"))?;
    let issuer = Issuer::from_ca_cert_pem(&first_pem(&next.ca_bundle), ca_key).map_err(failed("CA"))?;
    let key = KeyPair::generate().map_err(failed("serving key"))?;
    let names: Vec<String> = all.into_iter().collect();
    let common_name = names.first().cloned().unwrap_or_default();
    let mut params = CertificateParams::new(names).map_err(failed("serving certificate"))?;
    // A common name is at most 64 characters long.
    params.distinguished_name = named(&common_name.chars().take(64).collect::<String>());
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    limit(&mut params, now, SERVING_LIFETIME);
    next.cert = params.signed_by(&key, &issuer).map_err(failed("serving certificate"))?.pem();
    next.key = key.serialize_pem();
    Ok(next)
}

fn make_ca(now: Timestamp) -> Result<(String, String), MakeError> {
    let failed = |source| MakeError { what: "CA", source };
    let key = KeyPair::generate().map_err(failed)?;
    let mut params = CertificateParams::default();
    // The serial part keeps the subjects of successive CAs apart: verifiers look issuers up by subject.
    params.distinguished_name = named(&format!("sluice-webhook-ca-{:016x}", crate::random::bits()));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    limit(&mut params, now, CA_LIFETIME);
    let cert = params.self_signed(&key).map_err(failed)?;
    Ok((cert.pem(), key.serialize_pem()))
}

fn named(common_name: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common_name);
    name
}

fn limit(params: &mut CertificateParams, now: Timestamp, lifetime: Duration) {
    let now = std::time::SystemTime::from(now);
    params.not_before = (now - SKEW).into();
    params.not_after = (now + lifetime).into();
}

fn holds(cert: &Read, now: Timestamp, margin: Duration) -> bool {
    let margin = i64::try_from(margin.as_secs()).unwrap_or(i64::MAX);
    cert.from <= now.as_second() && now.as_second().saturating_add(margin) < cert.until
}

/// Whether the served certificate, and the CA that signed it, are valid now.
pub fn is_in_time(material: &Material, now: Timestamp) -> bool {
    let good = |bundle: &str| read_all(bundle).first().is_some_and(|one| holds(one, now, Duration::ZERO));
    good(&material.cert) && good(&material.ca_bundle)
}

/// The certificates of a bundle that have not expired.
fn still_valid(bundle: &str, now: Timestamp) -> String {
    let mut kept = String::new();
    for block in blocks(bundle) {
        if read_all(&block).first().is_some_and(|cert| now.as_second() < cert.until) {
            kept.push_str(&block);
        }
    }
    kept
}

fn first_pem(bundle: &str) -> String {
    blocks(bundle).next().unwrap_or_default()
}

fn blocks(bundle: &str) -> impl Iterator<Item = String> {
    const END: &str = "-----END CERTIFICATE-----";
    bundle.split_inclusive(END).filter(|part| part.contains(END)).map(|part| format!("{}\n", part.trim()))
}

/// Every readable certificate of a PEM text.
fn read_all(pem: &str) -> Vec<Read> {
    Pem::iter_from_buffer(pem.as_bytes())
        .filter_map(Result::ok)
        .filter_map(|block| {
            let cert = block.parse_x509().ok()?;
            let names = cert
                .subject_alternative_name()
                .ok()
                .flatten()
                .map(|san| san.value.general_names.iter().filter_map(general_name).collect())
                .unwrap_or_default();
            Some(Read {
                subject: cert.subject().as_raw().to_vec(),
                issuer: cert.issuer().as_raw().to_vec(),
                public_key: cert.public_key().raw.to_vec(),
                from: cert.validity().not_before.timestamp(),
                until: cert.validity().not_after.timestamp(),
                is_ca: cert.is_ca(),
                names,
            })
        })
        .collect()
}

fn general_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let ip = match bytes.len() {
                4 => IpAddr::from(<[u8; 4]>::try_from(*bytes).ok()?),
                16 => IpAddr::from(<[u8; 16]>::try_from(*bytes).ok()?),
                _ => return None,
            };
            Some(ip.to_string())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|&n| n.to_owned()).collect()
    }

    fn now() -> Timestamp {
        "2026-06-01T00:00:00Z".parse().unwrap()
    }

    fn later(days: u32) -> Timestamp {
        now().checked_add(DAY * days).unwrap()
    }

    fn fresh() -> Material {
        renew(&Material::default(), Renewal::RenewAll, &names(&["webhook.svc", "127.0.0.1"]), now()).unwrap()
    }

    #[test]
    fn nothing_or_nonsense_is_made_again() {
        let wanted = names(&["webhook.svc"]);
        assert_eq!(decide(&Material::default(), &wanted, now()), Renewal::RenewAll);
        let nonsense = Material { ca_bundle: "not PEM".to_owned(), ..fresh() };
        assert_eq!(decide(&nonsense, &wanted, now()), Renewal::RenewAll);
    }

    #[test]
    fn fresh_material_is_kept_for_its_names_and_ips() {
        assert_eq!(decide(&fresh(), &names(&["webhook.svc", "127.0.0.1"]), now()), Renewal::Keep);
    }

    #[test]
    fn a_new_name_renews_the_serving_certificate_and_keeps_the_old_names() {
        let wanted = names(&["10.0.0.7"]);
        assert_eq!(decide(&fresh(), &wanted, now()), Renewal::RenewServing);
        let renewed = renew(&fresh(), Renewal::RenewServing, &wanted, now()).unwrap();
        assert_eq!(decide(&renewed, &names(&["10.0.0.7", "webhook.svc", "127.0.0.1"]), now()), Renewal::Keep);
    }

    #[test]
    fn a_serving_certificate_near_its_end_is_renewed_under_the_same_ca() {
        let (material, wanted) = (fresh(), names(&["webhook.svc"]));
        assert_eq!(decide(&material, &wanted, later(200)), Renewal::Keep);
        assert_eq!(decide(&material, &wanted, later(300)), Renewal::RenewServing);
        let renewed = renew(&material, Renewal::RenewServing, &wanted, later(300)).unwrap();
        assert_eq!(renewed.ca_bundle, material.ca_bundle);
        assert_eq!(decide(&renewed, &wanted, later(300)), Renewal::Keep);
    }

    #[test]
    fn an_expired_serving_certificate_is_renewed() {
        assert_eq!(decide(&fresh(), &names(&["webhook.svc"]), later(400)), Renewal::RenewServing);
    }

    #[test]
    fn a_new_ca_stands_in_front_of_the_old_one_while_that_is_valid() {
        let (material, wanted) = (fresh(), names(&["webhook.svc"]));
        assert_eq!(decide(&material, &wanted, later(3400)), Renewal::RenewAll);
        let renewed = renew(&material, Renewal::RenewAll, &wanted, later(3400)).unwrap();
        assert_eq!(blocks(&renewed.ca_bundle).count(), 2);
        assert!(renewed.ca_bundle.ends_with(&material.ca_bundle));
        assert_eq!(decide(&renewed, &wanted, later(3400)), Renewal::Keep);
        let after_expiry = renew(&material, Renewal::RenewAll, &wanted, later(4000)).unwrap();
        assert_eq!(blocks(&after_expiry.ca_bundle).count(), 1);
    }

    #[test]
    fn a_key_of_another_certificate_is_not_accepted() {
        let (one, other) = (fresh(), fresh());
        let wanted = names(&["webhook.svc"]);
        let mixed = Material { key: other.key.clone(), ..one.clone() };
        assert_eq!(decide(&mixed, &wanted, now()), Renewal::RenewServing);
        let mixed = Material { ca_key: other.ca_key, ..one };
        assert_eq!(decide(&mixed, &wanted, now()), Renewal::RenewAll);
    }

    #[test]
    fn a_certificate_of_another_ca_is_not_accepted() {
        let (one, other) = (fresh(), fresh());
        let mixed = Material { cert: other.cert, key: other.key, ..one };
        assert_eq!(decide(&mixed, &names(&["webhook.svc"]), now()), Renewal::RenewServing);
    }
}
