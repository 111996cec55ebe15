//! Who is on either side of the connection to an API server, as a kubeconfig has it.

use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;
use ureq::tls::{ClientCert, PrivateKey, RootCerts, TlsConfig};

use crate::host::kubeconfig::{Access, Authorities};
use crate::probe::trust::{Trust, builder, certificates};

/// How the server is looked at, and what is shown to it.
///
/// # Errors
/// When a certificate or a key is none. Nothing of it is shown.
pub(super) fn config(access: &Access) -> Result<TlsConfig, String> {
    let config = match &access.authorities {
        Authorities::Host => Trust::Host.config()?,
        Authorities::Unasked => Trust::Anyone.config()?,
        Authorities::Pem(pem) => {
            let known = certificates(pem.as_bytes());
            let known = known.map_err(|problem| format!("certificate-authority {problem}"))?;
            builder().root_certs(RootCerts::from(known))
        }
    };
    let shown = access.certificate.as_ref().map(|(chain, key)| identity(chain, key)).transpose()?;
    Ok(config.client_cert(shown).build())
}

/// Certificates and their key, which the client takes for granted that it can use.
fn identity(chain: &str, key: &str) -> Result<ClientCert, String> {
    let chain = certificates(chain.as_bytes()).map_err(|problem| format!("client-certificate {problem}"))?;
    let none = || "client-key has no key in the form PEM".to_owned();
    let der = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|_text| none())?;
    let shown = chain.iter().map(|certificate| certificate.der().to_vec().into()).collect();
    CertifiedKey::from_der(shown, der, &ring::default_provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => "client-key is not that of client-certificate".to_owned(),
        _ => "client-certificate and client-key cannot be used".to_owned(),
    })?;
    let key = PrivateKey::from_pem(key.as_bytes()).map_err(|_text| none())?;
    Ok(ClientCert::new_with_certs(&chain, key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_and_no_key_is_named_and_not_shown() {
        let access = |authorities, certificate: Option<(&str, &str)>| Access {
            server: "https://127.0.0.1".into(),
            authorities,
            namespace: None,
            token: None,
            certificate: certificate.map(|(chain, key)| (chain.to_owned(), key.to_owned())),
        };
        let empty = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
        for (access, said) in [
            (access(Authorities::Pem("hunter2".into()), None), "certificate-authority has no certificate"),
            (access(Authorities::Unasked, Some(("hunter2", key))), "client-certificate has no certificate"),
            (access(Authorities::Unasked, Some((empty, "hunter2"))), "client-key has no key"),
            (access(Authorities::Unasked, Some((empty, key))), "cannot be used"),
        ] {
            let problem = config(&access).unwrap_err();
            assert!(problem.contains(said) && !problem.contains("hunter2"), "{problem}");
        }
        assert!(config(&access(Authorities::Pem(empty.into()), None)).is_ok());
    }
}
