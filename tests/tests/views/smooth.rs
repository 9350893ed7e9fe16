//! How smooth a large page is, compared with the same page with little content on the same machine: no tight limit in seconds holds on every machine.
//! A generous one is there, too, since a page may be slow with little content already.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use serde_json::Value;
use sluice_testkit::browser::Page;

const SCROLL: &str = include_str!("dashboard/scroll.js");
/// The table that is scrolled, if no other is named.
pub const TABLE: &str = ".rows, .grid-body";
/// The first picture of a page with much takes at most this many times as long as that of one with little.
const FACTOR: f64 = 3.0;
/// And each picture while it is scrolled. With little to do a picture still waits for the screen, on a fast and on a slow machine: on a slow one the
/// factor is larger.
const FACTOR_OF_SCROLLING: f64 = 8.0;
/// The first picture, in milliseconds, on a slow machine that is busy with other things.
const FIRST: f64 = 5_000.0;
/// Two pictures while a table is scrolled there: 95 of 100, and the longest.
const SCROLLING: [f64; 2] = [500.0, 2_000.0];
/// The number of tries, of which the best counts: other programs run on the machine, too.
const TRIES: usize = 3;
/// And of so many while the best is not good enough: these programs may be busy for some time.
const MOST_TRIES: usize = 20;

/// Whether there is to be another try after so many.
pub fn tries_again(tries: usize, is_good: bool) -> bool {
    tries < TRIES || !is_good && tries < MOST_TRIES
}

/// How long two pictures take while a table is scrolled, in milliseconds: 95 of 100, and the longest.
#[derive(Clone, Copy, Debug)]
pub struct Pace([f64; 2]);

impl Pace {
    /// It must be smooth beside a page with little to show.
    pub fn is_as_smooth_as(self, little: Self, name: &str) {
        println!("{name}: 95 of 100 and the longest in ms: {:?}, with little {:?}", self.0, little.0);
        assert!(self.is_smooth(little), "{name}: {self:?} ms, and {little:?} ms with little");
    }

    fn is_smooth(self, little: Self) -> bool {
        let most = little.0.into_iter().zip(SCROLLING);
        self.0
            .into_iter()
            .zip(most)
            .all(|(much, (little, most))| much <= most.min(FACTOR_OF_SCROLLING * little))
    }
}

/// When something was drawn first, in milliseconds from the beginning. A page that is loaded may not have been drawn yet.
pub async fn first_paint(page: &mut Page) -> f64 {
    let paint = "new Promise((done) => {
        const look = () => {
            const paint = performance.getEntriesByName('first-contentful-paint')[0];
            if (paint) done(paint.startTime);
            else requestAnimationFrame(look);
        };
        look();
    })";
    page.run(paint).await.unwrap().as_f64().unwrap()
}

/// Whether the first picture of a page with much comes as soon as that of one with little. Of each the best try counts.
pub fn is_soon(much: &[f64], little: &[f64]) -> bool {
    best(much) <= FIRST.min(FACTOR * best(little))
}

fn best(tries: &[f64]) -> f64 {
    tries.iter().copied().fold(f64::INFINITY, f64::min)
}

/// That must be so.
pub fn is_painted_as_soon(much: &[f64], little: &[f64], name: &str) {
    println!("{name}: first paint after {much:?} ms, with little after {little:?} ms");
    assert!(is_soon(much, little), "{name}: {} ms, and {} ms with little", best(much), best(little));
}

/// All of the way is scrolled, with no more rows at any time than fit, none of them missing in a picture, and little work for each picture. It is tried
/// more often while it is not smooth beside the page with `little`, if that is known.
pub async fn scrolled(page: &mut Page, name: &str, table: &str, little: Option<Pace>) -> Pace {
    let (mut found, mut tries) = (Pace([f64::INFINITY; 2]), 0);
    while tries_again(tries, little.is_none_or(|little| found.is_smooth(little))) {
        tries += 1;
        let before = page.figure("LayoutCount").await.unwrap();
        let seen: Value = page.run(&SCROLL.replace(TABLE, table)).await.unwrap();
        let layouts = page.figure("LayoutCount").await.unwrap() - before;
        println!("{name}: {seen}, {layouts} layouts");
        assert!(seen["blank"] == 0 && seen["rows"].as_u64().unwrap() < 80, "{name}: {seen}");
        assert!(layouts <= 61.0 * 6.0, "{name}: {layouts} layouts");
        for (best, figure) in found.0.iter_mut().zip(["twoFramesP95", "longest"]) {
            *best = best.min(seen[figure].as_f64().unwrap());
        }
    }
    found
}
