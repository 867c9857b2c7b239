//! Whether a leaf can be reached, for `check`: connects as a call would, and sends nothing.

use std::sync::Arc;

use reqwest::Url;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use tokio::{
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tokio_rustls::TlsConnector;

use super::{
    LeafClient, resolve,
    setup::{Material, hint_of},
};
use crate::{
    config::{Http2, Leaf},
    tls,
};

/// Connects to the leaf, or to the proxy on the way to it, with TLS where it speaks TLS. What the text says is known so far;
/// whether a client's certificate is taken a leaf says only with an answer.
///
/// # Errors
/// Why it can't be reached, and what would be right.
pub(crate) async fn reach(leaf: &Leaf) -> Result<String, String> {
    let (what, url) = match &leaf.proxy {
        Some(proxy) => ("its proxy ", proxy),
        None => ("", &leaf.base_url),
    };
    let host = url.host_str().ok_or("its URL names no host")?;
    let port = url.port_or_known_default().ok_or("its URL names no port")?;
    let place = format!("{what}{host}:{port}");
    // An IPv6 address stands in brackets in a URL, and without them everywhere else.
    let host = host.trim_matches(['[', ']']);
    let files = leaf.clone();
    let material = tokio::task::spawn_blocking(move || {
        // What a client can't be made of is told here, too.
        LeafClient::new(&files).and_then(|_client| Material::read(&files))
    });
    let material = material.await.map_err(|error| error.to_string())?;
    let material = material.map_err(|error| error.to_string())?;
    let begun = Instant::now();
    let limit = leaf.connect_timeout;
    let all = async {
        let addresses = resolve::addresses(leaf, host, port).await;
        let addresses = addresses.map_err(|error| error.to_string())?;
        let stream = TcpStream::connect(&addresses[..]).await;
        let stream = stream.map_err(|error| error.to_string())?;
        match url.scheme() {
            "https" => handshake(leaf, &material, url, host, stream)
                .await
                .map(Some),
            _ => Ok(None),
        }
    };
    match timeout_at(begun + limit, all).await {
        Ok(Ok(tls)) => {
            let took = begun.elapsed().as_millis();
            let tls = tls.map_or(String::new(), |version| format!(" with {version}"));
            Ok(format!("{place} accepts connections{tls} ({took} ms)"))
        }
        Ok(Err(problem)) => Err(format!("{place}: {problem}")),
        Err(_elapsed) => Err(format!(
            "{place}: no connection within connect_timeout, {limit:?}"
        )),
    }
}

/// Gives the version of TLS.
async fn handshake(
    leaf: &Leaf,
    material: &Material,
    url: &Url,
    host: &str,
    stream: TcpStream,
) -> Result<String, String> {
    let config = config(leaf, material, url)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
    let connecting = TlsConnector::from(Arc::new(config)).connect(name, stream);
    let stream = connecting.await.map_err(|error| {
        let hint = tls::error_in(&error).and_then(|error| hint_of(error, leaf));
        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
        format!("{error}{hint}")
    })?;
    let version = stream.get_ref().1.protocol_version();
    let version = version.and_then(|version| version.as_str().map(str::to_owned));
    Ok(version.map_or_else(|| "TLS".to_owned(), |text| text.replace('_', ".")))
}

fn config(leaf: &Leaf, material: &Material, url: &Url) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let authorities = CertificateDer::pem_slice_iter(&material.ca).flatten();
    if leaf.tls.ca.is_some() {
        roots.add_parsable_certificates(authorities);
    } else {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = if leaf.tls.client.is_some() {
        let chain = CertificateDer::pem_slice_iter(&material.cert).flatten();
        let key = PrivateKeyDer::from_pem_slice(&material.key).map_err(|e| e.to_string())?;
        builder
            .with_client_auth_cert(chain.collect(), key)
            .map_err(|error| error.to_string())?
    } else {
        builder.with_no_client_auth()
    };
    let to_leaf = *url == leaf.base_url;
    config.alpn_protocols = match leaf.http2 {
        _ if !to_leaf => vec![b"http/1.1".to_vec()],
        Http2::Auto => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        Http2::Always => vec![b"h2".to_vec()],
        Http2::Never => vec![b"http/1.1".to_vec()],
    };
    Ok(config)
}
