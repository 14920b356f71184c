//! The command line of kube-apiserver. In: arguments. Out: the values of its flags, or the refusal in the words of
//! kube-apiserver. It knows which flags there are and what type they have, but not what they mean.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// One line for each flag: its name, its type, and whether it is obeyed or refused.
const TABLE: &str = include_str!("../../data/kube-apiserver/flags.txt");

/// The flags that were given, with their values in the order of the command line.
#[derive(Debug, Default)]
pub(super) struct Flags(BTreeMap<&'static str, Vec<String>>);

impl Flags {
    /// Reads a command line, as pflag does.
    pub(super) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut flags = Self::default();
        let mut others = Vec::new();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if argument == "--" {
                others.extend(arguments.by_ref());
            } else if let Some(long) = argument.strip_prefix("--") {
                let (name, value) = match long.split_once('=') {
                    Some((name, value)) => (name, Some(value.to_owned())),
                    None => (long, None),
                };
                let (name, kind) = known(name).ok_or_else(|| format!("unknown flag: --{name}"))?;
                flags.set(name, kind, value, &format!("--{name}"), &mut arguments)?;
            } else if let Some(short) = argument.strip_prefix('-').filter(|short| !short.is_empty()) {
                let letter = short.chars().next().unwrap_or_default();
                let rest = &short[letter.len_utf8()..];
                let (name, kind) = match letter {
                    'h' => ("help", Kind::Bool),
                    'v' => ("v", Kind::Int),
                    _ => return Err(format!("unknown shorthand flag: {letter:?} in -{short}")),
                };
                let value = rest.strip_prefix('=').unwrap_or(rest);
                let value = (!value.is_empty()).then(|| value.to_owned());
                flags.set(name, kind, value, &format!("-{letter}, --{name}"), &mut arguments)?;
            } else {
                others.push(argument);
            }
        }
        others.retain(|other| !other.is_empty());
        if others.is_empty() {
            Ok(flags)
        } else {
            Err(format!("\"kube-apiserver\" does not take any arguments, got [{}]", quoted(&others)))
        }
    }

    fn set(
        &mut self,
        name: &'static str,
        kind: Kind,
        value: Option<String>,
        shown: &str,
        rest: &mut impl Iterator<Item = String>,
    ) -> Result<(), String> {
        let value = match (value, kind) {
            (Some(value), _) => value,
            (None, Kind::Bool) => "true".to_owned(),
            (None, _) => rest.next().ok_or_else(|| format!("flag needs an argument: {}", needs(shown)))?,
        };
        // `--version` also takes `raw`, or a version to claim.
        if name != "version" {
            kind.check(&value).map_err(|why| format!("invalid argument {value:?} for {shown:?} flag: {why}"))?;
        }
        self.0.entry(name).or_default().push(value);
        Ok(())
    }

    /// The last value of a flag.
    pub(super) fn last(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.last().map(String::as_str)
    }

    /// Whether a flag is true; the default if it is not there.
    pub(super) fn is_set(&self, name: &str, default: bool) -> bool {
        self.last(name).and_then(parse_bool).unwrap_or(default)
    }

    /// The values of a flag that is a list, which may be repeated.
    pub(super) fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        let values = self.0.get(name).map(Vec::as_slice).unwrap_or_default();
        values.iter().flat_map(|value| value.split(',')).map(str::trim).filter(|value| !value.is_empty())
    }

    /// The values of a flag that may be repeated, each as it was given.
    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get(name).into_iter().flatten().map(String::as_str)
    }

    /// Whether a flag was given whose name begins like this.
    pub(super) fn any_given(&self, prefix: &str) -> bool {
        self.0.keys().any(|name| name.starts_with(prefix))
    }

    /// The names of the flags that were given and have no effect here.
    pub(super) fn without_effect(&self) -> impl Iterator<Item = &'static str> {
        table().filter(|row| row.effect == Effect::Nothing && self.0.contains_key(row.name)).map(|row| row.name)
    }
}

/// Everything that `--help` shows: each flag on a line of its own.
pub(super) fn help() -> String {
    let mut text = String::from(
        "Usage:\n  kube-apiserver [flags]\n\nThis is konverge, which takes the flags of kube-apiserver. Flags without effect are \
         marked below, and named when it starts.\n\nFlags:\n",
    );
    for Row { name, kind, effect } in table() {
        let effect = match effect {
            Effect::Obeyed => "",
            Effect::Nothing => "  (no effect)",
            Effect::Refused => "  (refused)",
        };
        text.push_str(&format!("      --{name}{}{effect}\n", kind.placeholder()));
    }
    text
}

/// The types that values of flags have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Bool,
    Int,
    Float,
    Ip,
    Duration,
    List,
    /// `key=value`, once for each time the flag is given.
    Pair,
    Text,
}

impl Kind {
    fn named(name: &str) -> Self {
        match name {
            "bool" => Self::Bool,
            "int" => Self::Int,
            "float" => Self::Float,
            "ip" => Self::Ip,
            "duration" => Self::Duration,
            "list" => Self::List,
            "pair" => Self::Pair,
            _ => Self::Text,
        }
    }

    fn placeholder(self) -> &'static str {
        match self {
            Self::Bool => "",
            Self::Int => " int",
            Self::Float => " float",
            Self::Ip => " ip",
            Self::Duration => " duration",
            Self::List => " strings",
            Self::Pair => " mapStringString",
            Self::Text => " string",
        }
    }

    /// Checks a value; the error is that of Go.
    fn check(self, value: &str) -> Result<(), String> {
        let syntax = |function: &str| Err(format!("strconv.{function}: parsing {value:?}: invalid syntax"));
        match self {
            Self::Bool if parse_bool(value).is_none() => syntax("ParseBool"),
            Self::Int if value.parse::<i64>().is_err() => syntax("ParseInt"),
            Self::Float if value.parse::<f64>().is_err() => syntax("ParseFloat"),
            Self::Ip if value.parse::<IpAddr>().is_err() => Err(format!("failed to parse IP: {value:?}")),
            Self::Pair if !value.contains('=') => Err("malformed pair, expect string=string".to_owned()),
            Self::Duration if !is_duration(value) => Err(format!("time: invalid duration {value:?}")),
            _ => Ok(()),
        }
    }
}

/// A flag of kube-apiserver.
struct Row {
    name: &'static str,
    kind: Kind,
    effect: Effect,
}

/// What a flag does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Obeyed,
    Nothing,
    /// The server does not start with it; `settings` says why.
    Refused,
}

fn table() -> impl Iterator<Item = Row> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.split(' ');
        let (name, kind) = (words.next()?, Kind::named(words.next()?));
        let effect = match words.next() {
            Some("obeyed") => Effect::Obeyed,
            Some("refused") => Effect::Refused,
            _ => Effect::Nothing,
        };
        Some(Row { name, kind, effect })
    })
}

/// The flag of this name; underscores mean hyphens.
fn known(name: &str) -> Option<(&'static str, Kind)> {
    let name = name.replace('_', "-");
    table().find(|row| row.name == name).map(|row| (row.name, row.kind))
}

/// How pflag names a flag whose value is missing.
fn needs(shown: &str) -> String {
    match shown.split_once(", ") {
        Some((short, _)) => format!("'{}' in {short}", short.trim_start_matches('-')),
        None => shown.to_owned(),
    }
}

fn parse_bool(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Whether Go reads this as a duration: `0`, or numbers with units, as `1h30m`.
fn is_duration(value: &str) -> bool {
    let mut rest = value.strip_prefix(['-', '+']).unwrap_or(value);
    if rest == "0" {
        return true;
    }
    if rest.is_empty() {
        return false;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let units = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"];
        let unit = units.iter().filter_map(|unit| tail.strip_prefix(unit)).min_by_key(|after| after.len());
        match unit {
            Some(after) if number.parse::<f64>().is_ok() => rest = after,
            _ => return false,
        }
    }
    true
}

/// Strings as Go prints a list of them.
pub(super) fn quoted(words: &[impl AsRef<str>]) -> String {
    words.iter().map(|word| format!("{:?}", word.as_ref())).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, String> {
        Flags::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn values() {
        let flags = parse(
            "--secure-port=6443 --bind_address 127.0.0.1 --anonymous-auth --profiling=F -v2 --etcd-servers=http://a:1,http://b:2 \
             --etcd-servers http://c:3 --event-ttl=1h30m --secure-port 7000",
        )
        .expect("all are known");
        assert_eq!(flags.last("secure-port"), Some("7000"));
        assert_eq!(flags.last("bind-address"), Some("127.0.0.1"));
        assert_eq!(flags.last("v"), Some("2"));
        assert_eq!(flags.last("cert-dir"), None);
        assert_eq!(flags.list("etcd-servers").collect::<Vec<_>>(), ["http://a:1", "http://b:2", "http://c:3"]);
        assert_eq!([flags.is_set("anonymous-auth", false), flags.is_set("profiling", true)], [true, false]);
        assert!(flags.is_set("enable-garbage-collector", true));
    }

    #[test]
    fn refusals_have_the_words_of_kube_apiserver() {
        for (line, expect) in [
            ("--nonsense=1", "unknown flag: --nonsense"),
            ("--insecure-port=0", "unknown flag: --insecure-port"),
            ("-x", "unknown shorthand flag: 'x' in -x"),
            ("--cert-dir", "flag needs an argument: --cert-dir"),
            (
                "--oidc-required-claim=a",
                r#"invalid argument "a" for "--oidc-required-claim" flag: malformed pair, expect string=string"#,
            ),
            ("-v", "flag needs an argument: 'v' in -v"),
            (
                "--secure-port=x",
                r#"invalid argument "x" for "--secure-port" flag: strconv.ParseInt: parsing "x": invalid syntax"#,
            ),
            (
                "--profiling=2",
                r#"invalid argument "2" for "--profiling" flag: strconv.ParseBool: parsing "2": invalid syntax"#,
            ),
            ("--bind-address=a", r#"invalid argument "a" for "--bind-address" flag: failed to parse IP: "a""#),
            ("--event-ttl=5", r#"invalid argument "5" for "--event-ttl" flag: time: invalid duration "5""#),
            ("--event-ttl=h", r#"invalid argument "h" for "--event-ttl" flag: time: invalid duration "h""#),
            ("a --profiling b", r#""kube-apiserver" does not take any arguments, got ["a" "b"]"#),
            ("-- --profiling", r#""kube-apiserver" does not take any arguments, got ["--profiling"]"#),
        ] {
            assert_eq!(parse(line).map(|_| ()), Err(expect.to_owned()), "{line}");
        }
    }

    #[test]
    fn the_table_is_whole() {
        let all: Vec<_> = table().collect();
        assert_eq!(all.len(), 175);
        assert!(all.is_sorted_by_key(|row| row.name) && all.iter().all(|row| !row.name.contains('_')));
        // envtest looks for this one in the help, to learn which release it has before it.
        assert!(!help().contains("--insecure-port") && help().contains("\n      --secure-port int\n"));
    }
}
