//! Authorities and certificates, made anew for each run.

use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    DistinguishedName, DnType, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SerialNumber, date_time_ymd,
};

use crate::harness::folder::Folder;

/// One that signs, with a folder for what it has made.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: Folder,
}

/// A certificate and its key: as PEM, and where they are.
pub(crate) struct Pair {
    pub(crate) cert_pem: String,
    pub(crate) key_pem: String,
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// One that nobody knows yet.
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name = named(name);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        let folder = Folder::new();
        folder.write("ca.pem", &issuer.pem());
        Self { issuer, folder }
    }

    /// Its own certificate.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// The same, in a file.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// A certificate for a name or an address, which is its common name, too.
    pub(crate) fn signs(&self, name: &str) -> Pair {
        self.signs_with(name, |_| {})
    }

    /// One whose time is over.
    pub(crate) fn signs_expired(&self, name: &str) -> Pair {
        self.signs_with(name, |params| {
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(2021, 1, 1);
        })
    }

    /// One with a serial number, by which it can be revoked.
    pub(crate) fn signs_number(&self, name: &str, number: u64) -> Pair {
        self.signs_with(name, |params| {
            params.serial_number = Some(SerialNumber::from(number));
        })
    }

    /// One that nobody else has signed, in the name of an authority or not; and its file, as it is its own root.
    pub(crate) fn self_signed(&self, name: &str, is_ca: IsCa) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name = named(name);
        params.is_ca = is_ca;
        let certificate = params.self_signed(&key).unwrap();
        self.written(certificate.pem(), key.serialize_pem())
    }

    fn signs_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.distinguished_name = named(name);
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        self.written(certificate.pem(), key.serialize_pem())
    }

    fn written(&self, cert_pem: String, key_pem: String) -> Pair {
        let unique = uuid::Uuid::now_v7();
        Pair {
            cert: self.folder.write(&format!("{unique}.crt"), &cert_pem),
            key: self.folder.write(&format!("{unique}.key"), &key_pem),
            cert_pem,
            key_pem,
        }
    }

    /// A file that revokes the certificate with this number.
    pub(crate) fn revokes(&self, number: u64) -> PathBuf {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(number),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(2100, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&self.issuer).unwrap().pem().unwrap();
        self.folder.write(&format!("{number}.crl"), &list)
    }
}

impl Pair {
    /// As `sslcert` and `sslkey` of a connection string.
    pub(crate) fn words(&self) -> String {
        words(&self.cert, &self.key)
    }
}

/// As `sslcert` and `sslkey` of a connection string.
pub(crate) fn words(cert: &Path, key: &Path) -> String {
    format!("sslcert={} sslkey={}", cert.display(), key.display())
}

fn named(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}
