//! The TLS of database connections: rustls, with the verification that `sslmode` asks for.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
};

use super::ConnectError;

/// Said where the system has no certificate authorities.
pub(super) const NO_ROOTS: &str = "this system has no certificate authorities (package \
 ca-certificates); \
     name the database's with sslrootcert=/path/to/ca.pem";

/// What of a server's certificate is verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verify {
    /// `disable`: there is no TLS.
    Nothing,
    /// `verify-ca`
    Chain,
    /// `require`, `verify-full`, and `prefer` where the server has TLS.
    ChainAndName,
}

/// The authorities that are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Roots {
    System,
    /// Instead of the system's.
    File(PathBuf),
}

/// Builds the client's side. `direct` is for `sslnegotiation=direct`, which wants to be announced
/// (PostgreSQL 17, section 54.2.11).
pub(super) fn client_config(
    verify: Verify,
    roots: &Roots,
    client: Option<&(PathBuf, PathBuf)>,
    direct: bool,
    warnings: &mut Vec<String>,
) -> Result<ClientConfig, ConnectError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|source| ConnectError::Tls(source.to_string()))?;
    let store = match verify {
        Verify::Nothing => RootCertStore::empty(),
        Verify::Chain | Verify::ChainAndName => trusted(roots, warnings)?,
    };
    // The verifier can't be built over no roots at all; where it matters the caller refuses.
    let builder = if verify == Verify::Chain && !store.is_empty() {
        let whole = WebPkiServerVerifier::builder_with_provider(Arc::new(store), provider)
            .build()
            .map_err(|source| ConnectError::Tls(source.to_string()))?;
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyName { whole }))
    } else {
        builder.with_root_certificates(store)
    };
    let mut config = match client {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = certificates(cert, "sslcert")?;
            let secret = PrivateKeyDer::from_pem_file(key)
                .map_err(|source| unusable("sslkey", key, &source.to_string()))?;
            builder
                .with_client_auth_cert(chain, secret)
                .map_err(|source| unusable("sslcert", cert, &source.to_string()))?
        }
    };
    if direct {
        config.alpn_protocols = vec![b"postgresql".to_vec()];
    }
    Ok(config)
}

fn trusted(roots: &Roots, warnings: &mut Vec<String>) -> Result<RootCertStore, ConnectError> {
    let mut store = RootCertStore::empty();
    match roots {
        Roots::System => {
            // Single files that can't be read are of no interest while others can.
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                warnings.push(NO_ROOTS.to_owned());
            }
        }
        Roots::File(file) => {
            for certificate in certificates(file, "sslrootcert")? {
                store
                    .add(certificate)
                    .map_err(|source| unusable("sslrootcert", file, &source.to_string()))?;
            }
        }
    }
    Ok(store)
}

fn certificates(
    file: &Path,
    parameter: &str,
) -> Result<Vec<CertificateDer<'static>>, ConnectError> {
    let read = CertificateDer::pem_file_iter(file)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|source| unusable(parameter, file, &source.to_string()))?;
    if read.is_empty() {
        return Err(unusable(parameter, file, "holds no certificate in PEM"));
    }
    Ok(read)
}

fn unusable(parameter: &str, file: &Path, problem: &str) -> ConnectError {
    ConnectError::Parameter {
        name: parameter.to_owned(),
        problem: format!("{}: {problem}", file.display()),
    }
}

/// `verify-ca`: everything is verified but that the certificate is for this name.
#[derive(Debug)]
pub(super) struct AnyName {
    pub(super) whole: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.whole.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // The name is looked at after the chain, so the chain is good here.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.whole.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.whole.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.whole.supported_verify_schemes()
    }
}
