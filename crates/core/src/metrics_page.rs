//! The text format of Prometheus, 0.0.4. In: families and samples. Out: text. It is what controller-runtime serves,
//! what every Prometheus reads, and what `curl` shows; numbers are written as Go writes them, so that a series keeps
//! its labels when an operator is rewritten.

use std::fmt::Write as _;

/// What a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that only grows.
    Counter,
    /// A number as it is now.
    Gauge,
    /// How many observations there were up to each of several bounds.
    Histogram,
}

impl MetricKind {
    /// The word after `# TYPE`.
    pub fn word(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        }
    }
}

/// A page that is being written.
#[derive(Default)]
pub struct MetricsPage {
    text: String,
}

impl MetricsPage {
    /// Begins a family. One without samples leaves nothing on the page.
    pub fn family<'a>(&'a mut self, name: &'a str, help: &'a str, kind: MetricKind) -> MetricSamples<'a> {
        MetricSamples { text: &mut self.text, name, help, kind, begun: false }
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }
}

/// The samples of one family.
pub struct MetricSamples<'a> {
    text: &'a mut String,
    name: &'a str,
    help: &'a str,
    kind: MetricKind,
    begun: bool,
}

/// Names and values.
pub type MetricLabels<'a> = &'a [(&'a str, &'a str)];

impl MetricSamples<'_> {
    /// A counter or a gauge.
    pub fn value(&mut self, labels: MetricLabels<'_>, value: f64) {
        self.line("", labels, None, value);
    }

    /// A histogram: upper bounds as they are written, with the number of observations up to each; then how many there
    /// were at all, and their sum.
    pub fn histogram(&mut self, labels: MetricLabels<'_>, buckets: &[(String, u64)], count: u64, sum: f64) {
        for (bound, up_to) in buckets {
            self.line("_bucket", labels, Some(bound), *up_to as f64);
        }
        self.line("_bucket", labels, Some("+Inf"), count as f64);
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count as f64);
    }

    fn line(&mut self, suffix: &str, labels: MetricLabels<'_>, bound: Option<&str>, value: f64) {
        if !std::mem::replace(&mut self.begun, true) {
            let _ = write!(self.text, "# HELP {} ", self.name);
            escape(self.text, self.help, false);
            let _ = writeln!(self.text, "\n# TYPE {} {}", self.name, self.kind.word());
        }
        let _ = write!(self.text, "{}{suffix}", self.name);
        let mut separator = '{';
        for (name, value) in labels.iter().copied().chain(bound.map(|bound| ("le", bound))) {
            let _ = write!(self.text, "{separator}{name}=\"");
            escape(self.text, value, true);
            self.text.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {}", metric_number(value));
    }
}

fn escape(text: &mut String, value: &str, quotes: bool) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if quotes => text.push_str("\\\""),
            c => text.push(c),
        }
    }
}

/// A number as Go's shortest form has it.
pub fn metric_number(value: f64) -> String {
    let size = value.abs();
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".into() } else { "-Inf".into() }
    } else if size != 0.0 && !(1e-4..1e21).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').expect("scientific notation has an exponent");
        let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
        format!("{digits}e{sign}{exponent:0>2}")
    } else {
        value.to_string()
    }
}
