//! Pictures of the page, for whoever changes it and for the README: `make pictures`.

use std::path::Path;

use crate::harness::Bed;

use super::{browser::Browser, scene::Scene};

/// Where they are put.
const FOLDER: &str = "target/pictures";

/// Those of the README are beside each other.
const README_HEIGHT: u64 = 1290;

/// Shows the first form.
const OPEN: &str = "document.querySelector('details.act').open = true";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "makes pictures to be looked at: make pictures"]
async fn take_pictures() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let token = "listen-token-of-the-pictures";
    let scene = Scene::play("").await;
    let bed = Bed::new().await;
    let closed = bed.config("").listen("admin_token = { env = \"TOKEN\" }");
    let closed = closed.sidecar().environment("TOKEN", token).start().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(FOLDER);
    std::fs::create_dir_all(&folder).unwrap();
    let parked = format!("/calls/{}", scene.parked);
    let batch = format!("/batches/{}", scene.batch);
    for (name, url) in [
        ("overview", scene.sidecar.url("/")),
        ("call", scene.sidecar.url(&parked)),
        ("form", scene.sidecar.url(&parked)),
        ("batch", scene.sidecar.url(&batch)),
        ("calls", scene.sidecar.url("/calls")),
        ("bulk", scene.sidecar.url("/calls?state=failed")),
        ("login", closed.url("/")),
    ] {
        browser.open(&url).await;
        let first = match name {
            "form" => OPEN,
            "bulk" => {
                "const form = document.querySelector('details.act form'); \
                 form.elements.reason.value = 'their outage is over'; form.submit()"
            }
            _ => "",
        };
        browser.run(first).await;
        if name == "bulk" {
            browser.until_says("would be changed").await;
        }
        for (screen, width, height) in [("desktop", 1280, 800), ("phone", 390, 844)] {
            for scheme in ["light", "dark"] {
                browser.screen(width, height, scheme).await;
                let picture = browser.picture(u64::MAX).await;
                let file = folder.join(format!("{name}-{screen}-{scheme}.png"));
                std::fs::write(file, picture).unwrap();
            }
        }
    }
    for (name, url, width, scheme) in [
        ("readme-overview", scene.sidecar.url("/"), 1280, "light"),
        ("readme-call", scene.sidecar.url(&parked), 390, "dark"),
    ] {
        browser.open(&url).await;
        browser.screen(width, 800, scheme).await;
        if name == "readme-call" {
            browser.run(OPEN).await;
        }
        let picture = browser.picture(README_HEIGHT).await;
        std::fs::write(folder.join(format!("{name}.png")), picture).unwrap();
    }
    println!("complaints: {:#?}", browser.complaints().await);
    browser.close().await;
}
