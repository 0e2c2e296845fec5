//! Counts and checksums of rows. A checksum does not depend on the order of the rows, because each store has an order of its own.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::row::{Row, Table};

/// The rows of one table: how many, and the sum of their hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checksum {
    pub rows: u64,
    /// Comparable only with sums of the same program: the hash is that of the standard library.
    pub sum: u128,
}

/// The checksum of every table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checksums(BTreeMap<Table, Checksum>);

impl Checksums {
    /// Returns the checksum of a table.
    pub fn of(&self, table: Table) -> Checksum {
        self.0.get(&table).copied().unwrap_or_default()
    }

    /// Returns how many rows there are in all tables.
    pub fn rows(&self) -> u64 {
        self.0.values().map(|checksum| checksum.rows).sum()
    }

    pub(super) fn add(&mut self, table: Table, rows: &[Row]) {
        let checksum = self.0.entry(table).or_default();
        for row in rows {
            checksum.rows += 1;
            // A sum, not an exclusive or: two equal rows must not cancel each other.
            checksum.sum = checksum.sum.wrapping_add(hash(row));
        }
    }

    /// Returns the first table in which they differ.
    pub(super) fn first_difference(&self, other: &Self) -> Option<Table> {
        Table::ALL
            .into_iter()
            .find(|table| self.of(*table) != other.of(*table))
    }
}

/// Returns two hashes of 64 bits with different beginnings, side by side.
fn hash(row: &Row) -> u128 {
    let half = |beginning: u8| {
        let mut hasher = DefaultHasher::new();
        beginning.hash(&mut hasher);
        row.hash(&mut hasher);
        u128::from(hasher.finish())
    };
    (half(0) << 64) | half(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(task_id: &str) -> Row {
        Row::Task {
            task_id: task_id.to_owned(),
            body: "{}".to_owned(),
        }
    }

    fn of(rows: &[Row]) -> Checksums {
        let mut checksums = Checksums::default();
        checksums.add(Table::Tasks, rows);
        checksums
    }

    #[test]
    fn the_order_does_not_matter_and_every_row_does() {
        let (a, b) = (task("a"), task("b"));
        let both = of(&[a.clone(), b.clone()]);
        assert_eq!(both, of(&[b.clone(), a.clone()]));
        assert_eq!(both.rows(), 2);
        assert_eq!(both.first_difference(&of(&[b, a.clone()])), None);
        let twice = of(&[a.clone(), a]);
        assert_eq!(twice.of(Table::Tasks).rows, 2);
        assert_eq!(both.first_difference(&twice), Some(Table::Tasks));
        assert_ne!(both, twice);
    }
}
