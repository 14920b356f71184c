//! Which names metrics may have. In: a name. Out: what is wrong with it, and what to do. The rules are Prometheus' own
//! and those of its linter, so that a page never surprises whoever scrapes it.

use konverge_core::MetricKind;

/// Why a metric was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetricError {
    /// The name cannot be used.
    #[error("metric {name:?}: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: String,
    },
    /// A label cannot be used.
    #[error("metric {name:?}: label {label:?} {why}")]
    Label {
        /// The metric.
        name: String,
        /// The label.
        label: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The buckets of a histogram cannot be used.
    #[error("metric {name:?}: {why}")]
    Buckets {
        /// The metric.
        name: String,
        /// What is wrong with them.
        why: &'static str,
    },
    /// There is such a metric already.
    #[error("metric {name:?} is registered already; keep the first one and clone it")]
    Taken {
        /// The name.
        name: String,
    },
    /// The operator has such a metric itself.
    #[error("metric {name:?} is one that every operator has; choose another name")]
    Reserved {
        /// The name.
        name: String,
    },
}

pub(super) fn check(name: &str, kind: MetricKind, labels: &[&str]) -> Result<(), MetricError> {
    let refuse = |why: &str| Err(MetricError::Name { name: name.into(), why: why.into() });
    if !is_word(name) {
        return refuse("a name has letters, digits and _, and does not begin with a digit");
    }
    if name.starts_with("__") {
        return refuse("names that begin with __ are Prometheus' own");
    }
    if kind == MetricKind::Counter && !name.ends_with("_total") {
        return refuse(&format!("the name of a counter ends in _total: {name}_total"));
    }
    if kind != MetricKind::Counter && name.ends_with("_total") {
        return refuse("only counters have names that end in _total");
    }
    if kind != MetricKind::Histogram
        && let Some(suffix) = SUFFIXES.iter().find(|suffix| name.ends_with(*suffix))
    {
        return refuse(&format!("names that end in {suffix} belong to histograms"));
    }
    for (i, label) in labels.iter().enumerate() {
        let refuse = |why| Err(MetricError::Label { name: name.into(), label: (*label).into(), why });
        if !is_word(label) {
            return refuse("must have letters, digits and _, and not begin with a digit");
        }
        if label.starts_with("__") || (*label == "le" && kind == MetricKind::Histogram) || *label == "quantile" {
            return refuse("is Prometheus' own");
        }
        if labels[..i].contains(label) {
            return refuse("is there twice");
        }
    }
    Ok(())
}

const SUFFIXES: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Every name that a family's samples have.
pub(super) fn samples(name: &str, kind: MetricKind) -> Vec<String> {
    match kind {
        MetricKind::Counter | MetricKind::Gauge => vec![name.into()],
        MetricKind::Histogram => std::iter::once("").chain(SUFFIXES).map(|suffix| format!("{name}{suffix}")).collect(),
    }
}

fn is_word(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
