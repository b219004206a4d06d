//! TLS to the database, as libpq's URL parameters mean it: `sslmode` and `sslrootcert`.
//!
//! `disable`, `prefer` and `require` do not verify who answers (libpq's rule); `verify-ca` and `verify-full` do, against
//! `sslrootcert` or the machine's roots. We verify the name too in both cases: stricter than libpq for `verify-ca`.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::config::UrlError;

/// Whom to believe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verification {
    /// Encrypt if asked to, and believe whoever answers.
    None,
    /// Believe only certificates of these roots.
    Roots { file: Option<String> },
}

/// Takes `sslmode=verify-*` and `sslrootcert` out of a URL; the rest is what tokio-postgres reads.
pub(super) fn split(url: &str) -> (String, Verification) {
    let Some((base, query)) = url.split_once('?') else {
        return (url.to_owned(), Verification::None);
    };
    let mut kept = Vec::new();
    let mut file = None;
    let mut verify = false;
    for pair in query.split('&') {
        match pair.split_once('=') {
            Some(("sslmode", "verify-ca" | "verify-full")) => verify = true,
            Some(("sslrootcert", path)) => file = Some(decode(path)),
            _ => kept.push(pair),
        }
    }
    let separator = if kept.is_empty() { "" } else { "?" };
    let url = format!("{base}{separator}{}", kept.join("&"));
    // libpq: a root certificate turns `require` into verification.
    let require = kept.contains(&"sslmode=require");
    let verification =
        if verify || (require && file.is_some()) { Verification::Roots { file } } else { Verification::None };
    (url, verification)
}

fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// The connector for a verification rule.
pub(super) fn connector(
    verification: &Verification,
) -> Result<tokio_postgres_rustls::MakeRustlsConnect, UrlError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider knows the default protocol versions");
    let config = match verification {
        Verification::None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone { provider }))
            .with_no_client_auth(),
        Verification::Roots { file } => {
            builder.with_root_certificates(roots(file.as_deref())?).with_no_client_auth()
        }
    };
    Ok(tokio_postgres_rustls::MakeRustlsConnect::new(config))
}

fn roots(file: Option<&str>) -> Result<RootCertStore, UrlError> {
    let mut store = RootCertStore::empty();
    let Some(path) = file else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return Ok(store);
    };
    let error = |reason: String| UrlError::Certificates { path: path.to_owned(), reason };
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| error(e.to_string()))? {
        let certificate = certificate.map_err(|e| error(e.to_string()))?;
        store.add(certificate).map_err(|e| error(e.to_string()))?;
    }
    match store.is_empty() {
        true => Err(error("it holds no certificate".into())),
        false => Ok(store),
    }
}

/// Believes any certificate, but still checks that the peer holds its key.
#[derive(Debug)]
struct Anyone {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_parameters_leave_the_url_and_keep_their_meaning() {
        let (url, rule) =
            split("postgresql://h/db?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem&connect_timeout=3");
        assert_eq!(url, "postgresql://h/db?connect_timeout=3");
        assert_eq!(rule, Verification::Roots { file: Some("/etc/ca.pem".into()) });
        let (url, rule) = split("postgresql://h/db?sslmode=require");
        assert_eq!((url.as_str(), rule), ("postgresql://h/db?sslmode=require", Verification::None));
        let (_, rule) = split("postgresql://h/db?sslmode=require&sslrootcert=ca.pem");
        assert_eq!(rule, Verification::Roots { file: Some("ca.pem".into()) });
    }
}
