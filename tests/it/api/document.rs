//! The OpenAPI document.

use std::path::Path;

use super::Client;
use crate::harness::Bed;

/// `docs/openapi.json` is what the program says; `LEAFHOPPER_UPDATE_OPENAPI=1` writes it.
#[tokio::test]
async fn the_committed_document_is_the_program_s() {
    let bed = Bed::new().await;
    let sidecar = bed.sidecar("").await;
    let (status, text) = sidecar.get("/api/v1/openapi.json").await;
    assert_eq!(status, 200, "{text}");
    let text = format!("{}\n", text.trim_end());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/openapi.json");
    if std::env::var_os("LEAFHOPPER_UPDATE_OPENAPI").is_some_and(|value| value == "1") {
        std::fs::write(&file, &text).unwrap();
    }
    let committed = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(committed, text, "LEAFHOPPER_UPDATE_OPENAPI=1 writes it");
    drop(Client::new(&sidecar));
}
