//! A world as text: the beginning of a simulation, in a fraction of the memory of its documents.

use sluice_engine::Kind;

use crate::manifest::{Manifest, ManifestError, Manifests, Source};
use crate::observed::{Observed, RunTimes};
use crate::options::Options;
use crate::setup::{manifest_error, rank};
use crate::simulation::Simulation;

/// The objects of a world in the order in which they are applied, and the run times of ended jobs.
#[derive(Clone, Debug, Default)]
pub struct Packed {
    objects: Vec<(Kind, Source, Box<[u8]>)>,
    observed: Vec<Observed>,
}

impl Packed {
    /// The objects of manifests, whose scenarios are left out. Each document is dropped once it is packed.
    pub fn new(manifests: Manifests) -> Self {
        let mut world = Self { objects: Vec::new(), observed: manifests.observed };
        for manifest in manifests.objects {
            world.add(&manifest);
        }
        world.sorted()
    }

    /// As [`Self::new`], of manifests that are still needed.
    pub fn of(manifests: &Manifests) -> Self {
        let mut world = Self { objects: Vec::new(), observed: manifests.observed.clone() };
        manifests.objects.iter().for_each(|manifest| world.add(manifest));
        world.sorted()
    }

    fn add(&mut self, manifest: &Manifest) {
        let Manifest { kind, source, object } = manifest;
        self.observed.extend(Observed::of(*kind, object));
        self.objects.push((*kind, source.clone(), object.to_string().into_bytes().into()));
    }

    fn sorted(mut self) -> Self {
        self.objects.sort_by_key(|(kind, ..)| rank(*kind));
        self
    }

    /// The objects, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = Manifest> {
        self.objects.iter().map(|(kind, source, text)| {
            let object = serde_json::from_slice(text).expect("it was a document when it was packed");
            Manifest { kind: *kind, source: source.clone(), object }
        })
    }

    /// Keeps only the objects for which `stays` returns true.
    pub fn retain(&mut self, stays: impl Fn(&Manifest) -> bool) {
        let stay: Vec<bool> = self.iter().map(|manifest| stays(&manifest)).collect();
        let mut stay = stay.into_iter();
        self.objects.retain(|_| stay.next().unwrap_or(true));
    }

    /// A simulation of them, begun but not run, as [`crate::prepare`] makes it.
    ///
    /// # Errors
    /// When objects are wrong, or the options say that it has to give up.
    pub fn prepare(&self, options: Options) -> Result<Simulation, Vec<ManifestError>> {
        let mut simulation = Simulation::new(options);
        simulation.pods.observed = RunTimes::new(&self.observed);
        let mut errors = Vec::new();
        for manifest in self.iter() {
            if let Err(error) = simulation.check_cancelled() {
                return Err(vec![manifest_error(&manifest.source, error)]);
            }
            errors.extend(simulation.take_first(manifest));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        simulation.begin();
        Ok(simulation)
    }
}
