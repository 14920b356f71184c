//! A page of metrics, read back. In: the text. Out: its families and series. It panics where Prometheus would refuse it.

use std::collections::{BTreeMap, BTreeSet};

/// A page as Prometheus reads it. Parsing fails where Prometheus would.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Family → type.
    pub types: BTreeMap<String, String>,
    /// Series with its labels sorted by name → value.
    pub series: BTreeMap<String, f64>,
    /// Family → names of its labels.
    pub labels: BTreeMap<String, BTreeSet<String>>,
}

pub(super) fn read(page: &str) -> Read {
    let mut read = Read::default();
    let mut current = String::new();
    assert!(page.is_empty() || page.ends_with('\n'), "the last line must end");
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').expect("help has a text");
            assert!(!text.is_empty() && !read.types.contains_key(name), "{name} is there twice, or without help");
            current = name.into();
        } else if let Some(of) = line.strip_prefix("# TYPE ") {
            let (name, word) = of.split_once(' ').expect("type has a word");
            assert_eq!(name, current, "help and type go together");
            read.types.insert(name.into(), word.into());
        } else {
            sample(line, &current, &mut read);
        }
    }
    histograms(&read);
    read
}

fn sample(line: &str, family: &str, read: &mut Read) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(end);
    let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} is not of {family}"));
    let histogram = read.types[family] == "histogram";
    assert_eq!(["_bucket", "_sum", "_count"].contains(&suffix), histogram, "{line}");
    assert!(histogram || suffix.is_empty(), "{line}");
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, tail) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            let mut value = String::new();
            let mut chars = tail.char_indices();
            let end = loop {
                match chars.next().unwrap_or_else(|| panic!("no end of a label: {line}")) {
                    (_, '\\') => match chars.next().map(|(_, c)| c) {
                        Some('n') => value.push('\n'),
                        Some(c @ ('\\' | '"')) => value.push(c),
                        other => panic!("bad escape {other:?}: {line}"),
                    },
                    (i, '"') => break i,
                    (_, c) => value.push(c),
                }
            };
            assert!(labels.insert(label.to_string(), value).is_none(), "label twice: {line}");
            rest = &tail[end + 1..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').unwrap_or_else(|| panic!("no end of labels: {line}"));
    }
    let value = match rest.trim() {
        "+Inf" => f64::INFINITY,
        text => text.parse().unwrap_or_else(|_| panic!("no number: {line}")),
    };
    read.labels.entry(family.into()).or_default().extend(labels.keys().filter(|name| *name != "le").cloned());
    let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let series = format!("{name}{{{}}}", labels.join(","));
    assert!(read.series.insert(series.clone(), value).is_none(), "{series} is there twice");
}

/// Buckets only grow, and the last is the count.
fn histograms(read: &Read) {
    for (series, count) in &read.series {
        let Some((name, labels)) = series.split_once("_count{") else { continue };
        if read.types.get(name).is_none_or(|word| word != "histogram") {
            continue;
        }
        let labels = labels.trim_end_matches('}');
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (series, value) in &read.series {
            let Some(rest) = series.strip_prefix(&format!("{name}_bucket{{")) else { continue };
            let parts: Vec<&str> = rest.trim_end_matches('}').split(',').collect();
            let others: Vec<&str> = parts.iter().copied().filter(|part| !part.starts_with("le=")).collect();
            if others.join(",") == labels {
                let bound = parts.iter().find_map(|part| part.strip_prefix("le=")).expect("buckets have bounds");
                buckets.push((if bound == "+Inf" { f64::INFINITY } else { bound.parse().unwrap() }, *value));
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{series}: {buckets:?}");
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, *count)), "{series}");
    }
}

impl Read {
    pub(super) fn get(&self, series: &str) -> f64 {
        *self.series.get(series).unwrap_or_else(|| panic!("no {series} in {:#?}", self.series.keys()))
    }
}
