//! Tables with reused rows: their lengths, and when they are searched for rows without references (`scheduler::sweep`).

/// Tables that are shorter are not looked through.
pub(crate) const LEAST: usize = 256;
/// How many tables there are.
pub(crate) const TABLES: usize = 8;

/// How long a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableSize {
    /// Rows that were ever in use at once.
    pub(crate) rows: usize,
    /// The number of free entries.
    pub(crate) free: usize,
}

/// Puts a row into its place, which is at the end at most.
pub(crate) fn put<T>(rows: &mut Vec<T>, at: usize, row: T) {
    if at == rows.len() {
        rows.push(row);
    } else {
        rows[at] = row;
    }
}

/// When tables are looked through.
#[derive(Debug, Clone)]
pub(crate) struct Sweeps {
    /// The lengths at which they are.
    lengths: [usize; TABLES],
    /// Something was removed or replaced: there may be dead rows.
    dead: bool,
}

impl Default for Sweeps {
    fn default() -> Self {
        Self { lengths: [LEAST; TABLES], dead: false }
    }
}

impl Sweeps {
    /// Something was removed or replaced that may have been the last to refer to a row.
    pub(crate) fn removed(&mut self) {
        self.dead = true;
    }

    /// An entry was set; `replaced`: whether it replaced another one.
    pub(crate) fn replaced(&mut self, replaced: bool) {
        self.dead |= replaced;
    }

    /// Whether there may be dead rows.
    pub(crate) fn may_find_any(&self) -> bool {
        self.dead
    }

    /// Whether a table has become long.
    pub(crate) fn is_due(&self, sizes: [TableSize; TABLES]) -> bool {
        let due = |(size, limit): (TableSize, &usize)| size.free == 0 && size.rows >= *limit;
        sizes.into_iter().zip(&self.lengths).any(due)
    }

    /// All tables were looked through, and are this long now.
    pub(crate) fn done(&mut self, sizes: [TableSize; TABLES]) {
        let next = |size: TableSize| {
            let alive = size.rows - size.free;
            alive + alive / 2 + LEAST
        };
        *self = Self { lengths: sizes.map(next), dead: false };
    }
}
