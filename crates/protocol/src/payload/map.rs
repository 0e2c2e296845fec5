//! The map case of a value: unique keys in the order of their first appearance. The order has no meaning on the wire; it is
//! kept so that people get their entries back in the order they wrote them.

use super::Value;

/// Named values in the order they were first written.
///
/// Invariant: no key occurs twice. The last value of a key wins and takes the place where the key first occurred.
#[derive(Clone, Debug, Default)]
pub struct Map {
    entries: Vec<(String, Value)>,
}

/// Up to this many entries are searched for duplicates pairwise, which needs no allocation. Beyond it the search
/// sorts, because a hostile map of half a million one-byte entries must not cost the square of that.
const PAIRWISE_ENTRIES_MAX: usize = 16;

impl Map {
    /// An empty map.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of `key`. Looks at every entry: this is for small maps and occasional questions.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value)
    }

    /// The entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// Orders the entries by the bytes of their keys, in nested maps too.
    pub(super) fn sort_keys(&mut self) {
        self.entries.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        self.entries
            .iter_mut()
            .for_each(|(_, value)| value.sort_keys());
    }

    /// Entries as they were read, duplicates included.
    pub(super) fn from_entries(mut entries: Vec<(String, Value)>) -> Self {
        if has_duplicates(&entries) {
            keep_last(&mut entries);
        }
        Self { entries }
    }

    fn keys(&self) -> impl Iterator<Item = &str> {
        self.iter().map(|(key, _)| key)
    }

    fn sorted(&self) -> Vec<(&str, &Value)> {
        let mut entries: Vec<_> = self.iter().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        entries
    }
}

impl FromIterator<(String, Value)> for Map {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(entries: I) -> Self {
        Self::from_entries(entries.into_iter().collect())
    }
}

impl IntoIterator for Map {
    type Item = (String, Value);
    type IntoIter = std::vec::IntoIter<(String, Value)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        // Keys decide the pairing before any value is looked at. Comparing values in both orders would double the
        // work on every level, which nested maps turn into 2^256.
        if self.keys().eq(other.keys()) {
            self.iter().eq(other.iter())
        } else {
            self.len() == other.len() && self.sorted() == other.sorted()
        }
    }
}

impl Eq for Map {}

fn has_duplicates(entries: &[(String, Value)]) -> bool {
    // Most writers sort their keys, and sorted keys are compared once each.
    if entries.is_sorted_by(|a, b| a.0 < b.0) {
        return false;
    }
    if entries.len() <= PAIRWISE_ENTRIES_MAX {
        return entries
            .iter()
            .enumerate()
            .any(|(i, a)| entries[..i].iter().any(|b| a.0 == b.0));
    }
    let mut keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
    keys.sort_unstable();
    keys.windows(2).any(|pair| pair[0] == pair[1])
}

fn keep_last(entries: &mut Vec<(String, Value)>) {
    // A stable sort puts the occurrences of one key side by side, first to last.
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|a, b| entries[*a].0.cmp(&entries[*b].0));
    let mut keep = vec![true; entries.len()];
    let mut first = order.first().copied().unwrap_or_default();
    for pair in order.windows(2) {
        let (before, here) = (pair[0], pair[1]);
        if entries[before].0 == entries[here].0 {
            keep[here] = false;
            entries[first].1 = std::mem::replace(&mut entries[here].1, Value::Null);
        } else {
            first = here;
        }
    }
    let mut keep = keep.into_iter();
    entries.retain(|_| keep.next().unwrap_or(true));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, i64)]) -> Map {
        entries
            .iter()
            .map(|(key, value)| ((*key).to_owned(), Value::Long(*value)))
            .collect()
    }

    #[test]
    fn the_last_duplicate_wins_where_the_first_stood() {
        let entries: Vec<_> = map(&[("b", 1), ("a", 2), ("b", 3), ("b", 4)])
            .into_iter()
            .collect();
        assert_eq!(
            entries,
            [
                ("b".to_owned(), Value::Long(4)),
                ("a".to_owned(), Value::Long(2))
            ]
        );
    }

    #[test]
    fn many_duplicates_are_found_without_comparing_every_pair() {
        let many = (0..400_000).map(|i| (format!("{}", (i * 7919) % 200_000), Value::Long(i)));
        let map: Map = many.collect();
        assert_eq!(map.len(), 200_000);
        assert_eq!(map.iter().next(), Some(("0", &Value::Long(200_000))));
    }

    #[test]
    fn comparing_nested_maps_takes_one_walk() {
        let nested = |innermost: i64| {
            (0..250).fold(Value::Long(innermost), |inner, _| {
                Value::Map(
                    [("a".to_owned(), inner), ("b".to_owned(), Value::Null)]
                        .into_iter()
                        .collect(),
                )
            })
        };
        let reversed = (0..250).fold(Value::Long(2), |inner, _| {
            Value::Map(
                [("b".to_owned(), Value::Null), ("a".to_owned(), inner)]
                    .into_iter()
                    .collect(),
            )
        });
        assert_ne!(nested(1), nested(2));
        assert_ne!(nested(1), reversed);
        assert_eq!(nested(2), reversed);
    }
}
