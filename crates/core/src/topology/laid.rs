//! A tree's layout, and how it follows leaves that come and go: all of them at once, when the next placement needs it.

use std::sync::{Mutex, PoisonError};

use crate::intern::{HostId, PlaceId};
use crate::topology::latest::Latest;
use crate::topology::layout::{Around, Layout, LeafRow, Removed};
use crate::topology::places::Path;

/// A leaf came or went, and all others of the layout stayed in their order.
#[derive(Debug, Clone)]
pub(crate) enum Splice {
    /// It is at this position, in domains that came with it.
    Came(usize, Around),
    /// It was there.
    Went(Removed),
}

/// A leaf came or went, and the layout is still to follow.
#[derive(Debug, Clone)]
pub(crate) enum Moved {
    /// It came, and is this way now.
    Came { path: Path, place: PlaceId, host: HostId, closed: bool },
    /// The leaf at a place went.
    Went(PlaceId),
}

/// A layout, with the leaves that came or went since it was made.
#[derive(Debug, Clone)]
pub(crate) struct Laid {
    /// The domains as they are with these leaves.
    pub(crate) layout: Layout,
    /// These leaves, one after the other.
    pub(crate) spliced: Latest<Splice>,
}

impl Laid {
    /// A new layout.
    pub(crate) fn of(layout: Layout) -> Self {
        Self { layout, spliced: Latest::default() }
    }

    /// Leaves came and went, in this order.
    pub(crate) fn follow(&mut self, moved: &[Moved]) {
        for one in moved {
            let splice = match one {
                Moved::Came { path, place, host, closed } => {
                    let row = LeafRow { path, place: *place, host: *host, closed: *closed };
                    self.layout.insert(&row).map(|(at, around)| Splice::Came(at, around))
                }
                Moved::Went(place) => self.layout.remove(*place).map(Splice::Went),
            };
            if let Some(splice) = splice {
                self.spliced.push(splice);
            }
        }
    }
}

/// A layout that is out of date, until someone who shares the tree brings it up to date.
#[derive(Debug, Default)]
pub(crate) struct Before(Mutex<Option<Box<Laid>>>);

impl Before {
    /// The layout, to change it.
    pub(crate) fn get_mut(&mut self) -> &mut Option<Box<Laid>> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes it out.
    pub(crate) fn take(&self) -> Option<Box<Laid>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether there is one.
    pub(crate) fn is_some(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

impl Clone for Before {
    fn clone(&self) -> Self {
        Self(Mutex::new(self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()))
    }
}
