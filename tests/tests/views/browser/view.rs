//! The report of `probe.js` about a page. Positions and sizes in pixels of the window.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// Something drawn.
#[derive(Clone, Debug, Deserialize)]
pub struct Mark {
    pub left: f64,
    pub right: f64,
    pub bottom: f64,
    pub height: f64,
    pub fill: String,
    pub opacity: String,
    /// What it shows when the mouse is on it.
    pub tip: String,
}

/// The part of a picture that time runs over.
#[derive(Clone, Debug, Deserialize)]
pub struct Plot {
    pub left: f64,
    pub top: f64,
    pub width: f64,
}

/// One picture.
#[derive(Clone, Debug, Deserialize)]
pub struct Picture {
    /// The ClusterQueue, empty for a picture of all.
    pub queue: String,
    pub title: String,
    pub plot: Plot,
    /// The texts in front of it, the scale's end first.
    pub labels: Vec<String>,
    pub bars: Vec<Mark>,
    pub used: Vec<Mark>,
    pub borrowed: Vec<Mark>,
    pub depth: Vec<Mark>,
    pub crosses: Vec<Mark>,
    pub nominal: Vec<Mark>,
}

/// What happened to nodes, queues or quota.
#[derive(Clone, Debug, Deserialize)]
pub struct Moment {
    pub kind: String,
    /// What it shows when the mouse is on it.
    pub tip: String,
}

/// What is shown beside the mouse.
#[derive(Clone, Debug, Deserialize)]
pub struct Tip {
    pub shown: bool,
    pub text: String,
    pub left: f64,
    pub right: f64,
    pub bottom: f64,
}

/// The whole page.
#[derive(Clone, Debug, Deserialize)]
pub struct View {
    /// What can be scrolled from left to right.
    pub scrolling: Vec<String>,
    /// Controls that are not within the window.
    pub outside: Vec<String>,
    /// Texts of pictures that touch each other.
    pub overlaps: Vec<(String, String)>,
    /// Texts that leave their card.
    pub cut: Vec<String>,
    pub pictures: Vec<Picture>,
    /// What is marked on the axis of the schedule.
    pub moments: Vec<Moment>,
    /// How many elements there are.
    pub elements: usize,
    /// The colour of each flavor.
    pub legend: BTreeMap<String, String>,
    pub tiles: BTreeMap<String, String>,
    /// Texts with a contrast below 4.5.
    pub faint: Vec<Value>,
    /// How many texts there are.
    pub texts: usize,
    /// The colour behind everything.
    pub page: String,
    pub tip: Tip,
    /// What a script that must not run would leave.
    pub ran: Value,
}

impl View {
    /// The picture of a queue with that title.
    pub fn picture(&self, queue: &str, title: &str) -> &Picture {
        self.pictures.iter().find(|picture| picture.queue == queue && picture.title == title).unwrap()
    }
}
