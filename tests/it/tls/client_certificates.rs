//! How a client shows who it is: certificates, and SCRAM bound to the channel.

use super::{
    authority::Authority,
    server::{checked, shared},
};

const TLS: &str = "sees TLSv1.3";

#[tokio::test]
async fn a_server_that_wants_a_certificate() {
    let server = shared().await;
    let look = async |role: &str, words: &str| {
        let words = format!("sslmode=verify-full {} {words}", server.root());
        checked(&server.url(role, &words)).await
    };
    let ours = server.clients.signs("certified");
    // `cert` takes the common name for the role's.
    let message = look("certified", &ours.words()).await;
    assert!(
        message.contains("as role certified; it sees TLSv1.3"),
        "{message}"
    );
    let message = look("certified", &server.clients.signs("another").words()).await;
    assert!(
        message.contains("certificate authentication failed"),
        "{message}"
    );
    assert!(look("shows", &ours.words()).await.contains(TLS));
    for role in ["certified", "shows"] {
        let message = look(role, "").await;
        assert!(
            message.contains("name it with sslcert="),
            "{role}: {message}"
        );
        let hidden = format!("{} sslcertmode=disable", ours.words());
        let message = look(role, &hidden).await;
        assert!(
            message.contains("valid client certificate"),
            "{role}: {message}"
        );
    }
}

#[tokio::test]
async fn a_certificate_that_the_server_does_not_trust_is_named() {
    let server = shared().await;
    let other = Authority::new("somebody else");
    let theirs = other.signs("certified");
    let words = format!("sslmode=verify-full {} {}", server.root(), theirs.words());
    let message = checked(&server.url("certified", &words)).await;
    let named = format!(
        "refuses the client certificate of {}",
        theirs.cert.display()
    );
    assert!(message.contains(&named), "{message}");
    // A pair of which the halves do not belong together.
    let ours = server.clients.signs("certified");
    let mixed = super::authority::words(&ours.cert, &theirs.key);
    let words = format!("sslmode=verify-full {} {mixed}", server.root());
    let message = checked(&server.url("certified", &words)).await;
    assert!(
        message.contains("database.url: parameter `sslcert`"),
        "{message}"
    );
}

#[tokio::test]
async fn scram_is_bound_to_the_channel() {
    let server = shared().await;
    let wants = "wants a password kept as scram-sha-256";
    for (role, words, said) in [
        ("tls_only", "sslmode=require channel_binding=require", TLS),
        ("tls_only", "sslmode=require channel_binding=disable", TLS),
        // The server asks for the password itself.
        ("plain", "sslmode=require channel_binding=prefer", TLS),
        ("plain", "sslmode=require channel_binding=require", wants),
        // Nothing is bound where TLS is not had.
        (
            "clear_only",
            "sslmode=prefer channel_binding=require",
            wants,
        ),
        (
            "anyhow",
            "sslmode=disable channel_binding=require",
            "wants TLS",
        ),
    ] {
        let message = checked(&server.url(role, words)).await;
        assert!(message.contains(said), "{role} {words}: {message}");
    }
}
