//! The browser refuses because of the headers: scripts in texts, requests to elsewhere, frames around the page.

use std::time::Instant;

use serde_json::json;
use sluice_testkit::browser::{PATIENCE, PAUSE, Page, Scheme};

use super::mock::{Fault, serve};
use super::opened;

/// What a hostile text may come to in a page, and the directive that refuses it.
const REFUSED: [(&str, &str); 5] = [
    (
        "const it = document.createElement('script'); it.textContent = 'window.ran = 1'; document.body.append(it)",
        "script-src-elem",
    ),
    (
        "const it = document.createElement('img'); it.setAttribute('onerror', 'window.ran = 1'); document.body.append(it)",
        "script-src-attr",
    ),
    (
        "const it = document.createElement('img'); it.src = 'http://127.0.0.1:9/'; document.body.append(it)",
        "img-src",
    ),
    ("fetch('http://127.0.0.1:9/').catch(() => {})", "connect-src"),
    (
        "const it = document.createElement('iframe'); it.src = 'http://127.0.0.1:9/'; document.body.append(it)",
        "frame-src",
    ),
];

#[tokio::test]
async fn what_a_text_might_bring_into_the_page_is_refused() {
    let mut page = opened(&serve(Fault::None).await, 1280, Scheme::Light).await;
    for (does, directive) in REFUSED {
        let script = format!(
            "new Promise((done) => {{
               const reported = (event) => done([event.effectiveDirective, window.ran ?? null]);
               document.addEventListener('securitypolicyviolation', reported, {{ once: true }});
               {does};
             }})"
        );
        assert_eq!(page.run(&script).await.unwrap(), json!([directive, null]), "{does}");
    }
}

/// A page of another server, which allows everything. Its URL.
async fn another_page() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let page = || async { axum::response::Html("<!doctype html><title>another page</title><body>") };
    let app = axum::Router::new().fallback(page);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    url
}

#[tokio::test]
async fn no_other_page_puts_a_frame_around_this_one() {
    let url = serve(Fault::None).await;
    let mut page = Page::start().await.unwrap();
    page.visit(&another_page().await).await.unwrap();
    let script = format!(
        "new Promise((done) => {{
           const frame = document.createElement('iframe');
           frame.onload = () => done(true);
           frame.src = '{url}/';
           document.body.append(frame);
         }})"
    );
    page.run(&script).await.unwrap();
    let refused = |page: &Page| {
        page.troubles().iter().any(|trouble| trouble.to_string().contains("frame-ancestors 'none'"))
    };
    // Another process of the browser reports it to the console.
    let began = Instant::now();
    while !refused(&page) {
        assert!(began.elapsed() < PATIENCE, "{:?}", page.troubles());
        page.run(&format!("{PAUSE}.then(() => null)")).await.unwrap();
    }
}
