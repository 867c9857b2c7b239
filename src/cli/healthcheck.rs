//! `healthcheck`: what `/livez` of the sidecar beside it says. For images without a shell, whose health is a command.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, bail};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::{body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::{Exit, output::Out, settings};
use crate::present::text::clean;

/// Shorter than what asks for it usually waits.
const PATIENCE: Duration = Duration::from_secs(3);

/// Its own answer is some words.
const ANSWER_MAX: usize = 4096;

/// Done where it lives.
pub(crate) async fn healthcheck(path: &Path, out: &mut Out<'_>) -> anyhow::Result<Exit> {
    let address = reachable(settings::listen_only(path)?.address);
    if address.port() == 0 {
        bail!("listen.address has port 0, so nobody can say where the sidecar listens");
    }
    let asked = tokio::time::timeout(PATIENCE, ask(address)).await;
    let asked = asked.map_err(|_elapsed| anyhow::anyhow!("no answer within {PATIENCE:?}"));
    let (status, text) = asked
        .and_then(|answer| answer)
        .with_context(|| format!("http://{address}/livez"))?;
    writeln!(out.out, "{}", clean(text.trim_end()))?;
    Ok(if status == StatusCode::OK {
        Exit::Done
    } else {
        Exit::Failed
    })
}

/// Where one that listens everywhere is reached from here.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

async fn ask(address: SocketAddr) -> anyhow::Result<(StatusCode, String)> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let request = Request::get("/livez")
        .header(header::HOST, address.to_string())
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())?;
    let exchange = async move {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_MAX)
            .collect()
            .await;
        let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
        anyhow::Ok((status, String::from_utf8_lossy(&body).into_owned()))
    };
    let (answer, connection) = tokio::join!(exchange, connection);
    // Where the exchange was cut short, its own error says less.
    answer.map_err(|error| connection.err().map_or(error, Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_listens_everywhere_is_asked_on_the_loopback_address() {
        for (listens, asked) in [
            ("0.0.0.0:9187", "127.0.0.1:9187"),
            ("[::]:9187", "[::1]:9187"),
            ("10.1.2.3:80", "10.1.2.3:80"),
            ("127.0.0.1:9187", "127.0.0.1:9187"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), asked);
        }
    }
}
