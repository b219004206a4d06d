//! TLS to a broker: `wss://` and `https://`. rustls with aws-lc-rs; the machine's roots, and those that the user adds.
//!
//! The broker's certificate is always verified, its name included. Nothing is loaded for addresses without TLS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

/// Certificates that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the certificates of {} cannot be used: {reason}", .file.as_ref().map_or("the options".to_owned(), |file| file.display().to_string()))]
pub struct CaError {
    /// Where they were to come from, if from a file.
    pub file: Option<PathBuf>,
    /// What is wrong with them.
    pub reason: String,
}

/// Authorities to believe beside those of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extra<'a> {
    pub file: Option<&'a Path>,
    pub pem: Option<&'a str>,
}

/// What a connection to one of these addresses needs to know.
pub(crate) fn config<'a>(
    urls: impl IntoIterator<Item = &'a str>,
    extra: Extra<'_>,
) -> Result<Arc<ClientConfig>, CaError> {
    let mut roots = RootCertStore::empty();
    add(&mut roots, extra)?;
    if urls.into_iter().any(is_secure) {
        let native = rustls_native_certs::load_native_certs();
        for error in native.errors {
            tracing::debug!(%error, "some certificates of this machine cannot be read");
        }
        roots.add_parsable_certificates(native.certs);
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider knows the default protocol versions");
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn is_secure(url: &str) -> bool {
    ["wss:", "https:"]
        .iter()
        .any(|scheme| url.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme)))
}

fn add(roots: &mut RootCertStore, extra: Extra<'_>) -> Result<(), CaError> {
    if let Some(file) = extra.file {
        let wrong = |reason: String| CaError { file: Some(file.to_owned()), reason };
        let pem = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
        add_pem(roots, &pem).map_err(wrong)?;
    }
    if let Some(pem) = extra.pem {
        add_pem(roots, pem.as_bytes()).map_err(|reason| CaError { file: None, reason })?;
    }
    Ok(())
}

fn add_pem(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), String> {
    let mut many = 0;
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
        many += 1;
    }
    match many {
        0 => Err("there is no certificate in PEM form".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_that_are_none_are_refused_with_their_place() {
        let pem = Extra { file: None, pem: Some("nonsense") };
        let error = config(["ws://localhost"], pem).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the certificates of the options cannot be used: there is no certificate in PEM form"
        );
        let file = Extra { file: Some(Path::new("/no/such/file")), pem: None };
        assert!(config([], file).unwrap_err().to_string().contains("/no/such/file"));
        assert!(is_secure("WSS://host") && is_secure("https://host") && !is_secure("ws://wss:"));
    }
}
