//! The page of an operator's metrics. In: the text that Prometheus reads, and expressions of alerts. Out: names and sums. Pure.

use std::collections::BTreeSet;

/// A page of metrics.
pub(super) struct MetricsPage<'a>(&'a str);

impl<'a> MetricsPage<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self(text)
    }

    /// The names of all metrics, also of those that have no sample yet.
    pub(super) fn names(&self) -> BTreeSet<&'a str> {
        let declared = self.0.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        declared.chain(self.samples().map(|(name, _)| name)).filter(|name| !name.is_empty()).collect()
    }

    /// The sum of all samples of a metric; nothing if there is no sample.
    pub(super) fn sum(&self, metric: &str) -> Option<f64> {
        let values: Vec<f64> = self.samples().filter(|(name, _)| *name == metric).map(|(_, value)| value).collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }

    /// Names and values. A label may have any text between quotes.
    fn samples(&self) -> impl Iterator<Item = (&'a str, f64)> {
        self.0.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let end = line.find(['{', ' '])?;
            let rest = if line[end..].starts_with('{') { line.rsplit_once("} ")?.1 } else { &line[end + 1..] };
            Some((&line[..end], rest.split(' ').next()?.parse().ok()?))
        })
    }
}

/// The metrics in an expression: the names that have a selector.
pub(super) fn metrics_in(expression: &str) -> Vec<&str> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || "_:".contains(character);
    let before = expression.match_indices('{').map(|(at, _)| &expression[..at]);
    let name = |text: &str| text.len() - text.trim_end_matches(is_name).len();
    before.map(|text| &text[text.len() - name(text)..]).filter(|name| !name.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sums() {
        let page = MetricsPage::of(
            "# TYPE a counter\na{x=\"}{ 1\"} 2\na{x=\"y\"} 3\n# HELP b Some.\n# TYPE b gauge\nc 1.5 1700000000\n",
        );
        assert_eq!(page.names().into_iter().collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!((page.sum("a"), page.sum("b"), page.sum("c")), (Some(5.0), None, Some(1.5)));
    }

    #[test]
    fn metrics_of_expressions() {
        for (expression, expect) in [
            ("absent(up{job=\"a\"} == 1)", &["up"][..]),
            ("rate(a_total{job=\"a\"}[5m]) / rate(b:c{job=\"a\"}[5m])", &["a_total", "b:c"]),
            ("{job=\"a\"}", &[]),
        ] {
            assert_eq!(metrics_in(expression), expect);
        }
    }
}
