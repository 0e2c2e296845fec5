//! A parser of the text format of Prometheus, written from the description of the format and not from the renderer. It refuses what
//! Prometheus refuses: a sample without a type, a type twice, a family in two places, a sample twice, histograms that do not add up.

use std::collections::{BTreeMap, BTreeSet};

type Labels = BTreeMap<String, String>;

/// The samples of a text.
#[derive(Debug, Default)]
pub(super) struct Exposition {
    /// By name of the family.
    pub(super) types: BTreeMap<String, String>,
    helped: BTreeSet<String>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Exposition {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if !text.is_empty() && !text.ends_with('\n') {
            return Err("the last line does not end".to_owned());
        }
        let mut read = Self::default();
        let mut closed = BTreeSet::new();
        let mut open = String::new();
        for line in text.lines() {
            let family = match line.strip_prefix("# ") {
                Some(comment) => read.comment(comment)?,
                None => read.sample(line)?,
            };
            if family != open {
                if closed.contains(&family) {
                    return Err(format!("{family} is in two places"));
                }
                closed.insert(std::mem::replace(&mut open, family));
            }
        }
        read.check_histograms()?;
        Ok(read)
    }

    /// Returns the value of a sample.
    pub(super) fn value<const N: usize>(
        &self,
        name: &str,
        labels: [(&str, &str); N],
    ) -> Option<f64> {
        let key = (name.to_owned(), super::labels(labels));
        self.samples.get(&key).copied()
    }

    /// Returns the labels and values of all samples of a name.
    pub(super) fn all(&self, name: &str) -> Vec<(&Labels, f64)> {
        let samples = self.samples.iter().filter(|((known, _), _)| known == name);
        samples
            .map(|((_, labels), value)| (labels, *value))
            .collect()
    }

    fn comment(&mut self, comment: &str) -> Result<String, String> {
        let mut words = comment.splitn(3, ' ');
        let (Some(kind), Some(name), Some(rest)) = (words.next(), words.next(), words.next())
        else {
            return Err(format!("not a comment of the format: {comment}"));
        };
        let is_new = match kind {
            "HELP" => self.helped.insert(name.to_owned()),
            "TYPE" => {
                if !["counter", "gauge", "summary", "histogram", "untyped"].contains(&rest) {
                    return Err(format!("not a type: {rest}"));
                }
                self.types
                    .insert(name.to_owned(), rest.to_owned())
                    .is_none()
            }
            _ => return Err(format!("not a comment of the format: {comment}")),
        };
        if is_new {
            Ok(name.to_owned())
        } else {
            Err(format!("{kind} twice for {name}"))
        }
    }

    /// Reads a sample and returns the name of its family.
    fn sample(&mut self, line: &str) -> Result<String, String> {
        let end = line.find(['{', ' ']).ok_or("a sample without a value")?;
        let (name, mut rest) = line.split_at(end);
        let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if name.is_empty() || !name.chars().all(is_letter) {
            return Err(format!("not a name: {name}"));
        }
        let mut labels = Labels::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = read_labels(inside, &mut labels)?;
        }
        let value = rest.trim_start();
        let value: f64 = value
            .parse()
            .map_err(|_| format!("not a number: {value}"))?;
        let family = self.family(name)?;
        let (kind, suffix) = (&self.types[&family], &name[family.len()..]);
        let fits = match (&**kind, suffix) {
            ("counter" | "gauge", "") | ("summary" | "histogram", "_sum" | "_count") => true,
            ("summary", "") => labels.contains_key("quantile"),
            ("histogram", "_bucket") => labels.contains_key("le"),
            _ => false,
        };
        if !fits {
            return Err(format!("{line} is no sample of a {kind}"));
        }
        let key = (name.to_owned(), labels);
        if self.samples.insert(key, value).is_some() {
            return Err(format!("twice: {line}"));
        }
        Ok(family)
    }

    fn family(&self, name: &str) -> Result<String, String> {
        let suffixes = ["", "_sum", "_count", "_bucket"].into_iter();
        let mut families = suffixes.filter_map(|suffix| name.strip_suffix(suffix));
        let family = families.find(|family| self.types.contains_key(*family));
        let family = family.ok_or_else(|| format!("{name} has no type"))?;
        if self.helped.contains(family) {
            Ok(family.to_owned())
        } else {
            Err(format!("{name} has no help"))
        }
    }

    /// Buckets grow, and the last one has all observations.
    fn check_histograms(&self) -> Result<(), String> {
        let histograms = self.types.iter().filter(|(_, kind)| *kind == "histogram");
        for (name, _) in histograms {
            for (labels, count) in self.all(&format!("{name}_count")) {
                let mut buckets: Vec<(f64, f64)> = Vec::new();
                for (of, value) in self.all(&format!("{name}_bucket")) {
                    let mut of = of.clone();
                    let bound = of.remove("le").unwrap_or_default();
                    if of == *labels {
                        buckets.push((bound.parse().map_err(|_| bound)?, value));
                    }
                }
                buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
                let grows = buckets.is_sorted_by(|one, other| one.1 <= other.1);
                if !grows || buckets.last() != Some(&(f64::INFINITY, count)) {
                    return Err(format!("{name} does not add up: {buckets:?}"));
                }
            }
        }
        Ok(())
    }
}

/// Reads labels up to the closing brace and returns what comes after it.
fn read_labels<'a>(mut rest: &'a str, labels: &mut Labels) -> Result<&'a str, String> {
    loop {
        let (name, after) = rest.split_once("=\"").ok_or("a label without a value")?;
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next().ok_or("a label that does not end")? {
                (at, '"') => break at,
                (_, '\\') => match characters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, other @ ('\\' | '"'))) => value.push(other),
                    other => return Err(format!("not an escape: {other:?}")),
                },
                (_, other) => value.push(other),
            }
        };
        if labels.insert(name.to_owned(), value).is_some() {
            return Err(format!("the label {name} twice"));
        }
        let after = &after[end + 1..];
        if let Some(rest) = after.strip_prefix('}') {
            return Ok(rest);
        }
        rest = after.strip_prefix(',').ok_or("labels without a comma")?;
    }
}

#[test]
fn the_parser_refuses_what_prometheus_refuses() {
    for (text, why) in [
        ("a 1\n", "has no type"),
        ("# HELP a A.\n# TYPE a counter\na 1", "does not end"),
        ("# HELP a A.\n# TYPE a counter\na 1\na 2\n", "twice"),
        (
            "# HELP a A.\n# TYPE a counter\na{b=\"\n\"} 1\n",
            "does not end",
        ),
        (
            "# HELP a A.\n# TYPE a summary\na 1\n",
            "no sample of a summary",
        ),
        ("# TYPE a counter\n# TYPE a gauge\n", "TYPE twice"),
        (
            "# HELP a A.\n# TYPE a histogram\na_bucket{le=\"1\"} 2\na_bucket{le=\"+Inf\"} 1\na_sum 1\na_count 1\n",
            "does not add up",
        ),
    ] {
        let error = Exposition::parse(text).unwrap_err();
        assert!(error.contains(why), "{text}: {error}");
    }
}
