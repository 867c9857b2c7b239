//! Placeholder.
/// Connect.
#[derive(Clone)]
pub struct Connect {
    /// config
    pub config: tokio_postgres::Config,
    /// tls
    pub tls: tokio_postgres_rustls::MakeRustlsConnect,
}
