//! The policy of a namespace. In: its labels. Out: the level and version of each mode, and which labels are wrong.

use std::collections::BTreeMap;
use std::fmt;

use konverge_core::{FieldError, FieldPath};

/// How much pods may do; a higher level allows less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// The minor version of Kubernetes whose rules count; `None` is the latest.
pub(super) type Version = Option<u32>;

/// A level as a version of Kubernetes defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub level: Level,
    pub version: Version,
}

/// What is refused in a namespace, what is noted in the audit log, and what causes a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub enforce: LevelVersion,
    pub audit: LevelVersion,
    pub warn: LevelVersion,
}

const PREFIX: &str = "pod-security.kubernetes.io/";

impl Policy {
    /// The policy that labels stand for. Where a label is wrong, pods are refused by the strictest level, nobody is warned, and nothing
    /// is noted.
    pub(super) fn of(labels: &BTreeMap<String, String>) -> (Self, Vec<FieldError>) {
        let mut errors = Vec::new();
        let get = |name: &str| labels.get(&format!("{PREFIX}{name}")).map(String::as_str);
        let mut level = |name: &'static str| {
            let text = get(name)?;
            let level = parse_level(text);
            if level.is_none() {
                errors.push(invalid(name, text, "must be one of privileged, baseline, restricted"));
            }
            Some(level)
        };
        let (enforce_level, audit_level, warn_level) = (level("enforce"), level("audit"), level("warn"));
        let mut version = |name: &'static str| {
            let text = get(name)?;
            let version = parse_version(text);
            if version.is_none() {
                errors.push(invalid(name, text, "must be \"latest\" or \"v1.x\""));
            }
            Some(version.flatten())
        };
        let (enforce_version, audit_version, warn_version) =
            (version("enforce-version"), version("audit-version"), version("warn-version"));
        // Errors are in the order of the labels, each level before its version.
        let place =
            |error: &FieldError| ORDER.iter().position(|name| error.to_string().contains(&format!("{PREFIX}{name}]")));
        errors.sort_by_key(place);
        let enforce = LevelVersion {
            level: enforce_level.map_or(Level::Privileged, |level| level.unwrap_or(Level::Restricted)),
            version: enforce_version.flatten(),
        };
        let audit = LevelVersion {
            level: audit_level.flatten().unwrap_or(Level::Privileged),
            version: audit_version.flatten(),
        };
        let mut warn =
            LevelVersion { level: warn_level.flatten().unwrap_or(Level::Privileged), version: warn_version.flatten() };
        // Whoever sets what is refused is warned by the same level.
        if warn_level.is_none() && enforce_level.flatten().is_some() && enforce.level > warn.level {
            warn.level = enforce.level;
            warn.version = if warn_version.is_none() { enforce.version } else { warn.version };
        }
        (Self { enforce, audit, warn }, errors)
    }

    /// Whether nothing is refused, noted or warned of.
    pub(super) fn is_privileged(self) -> bool {
        [self.enforce, self.audit, self.warn].iter().all(|mode| mode.level == Level::Privileged)
    }
}

const ORDER: [&str; 6] = ["enforce", "enforce-version", "audit", "audit-version", "warn", "warn-version"];

fn invalid(name: &str, value: &str, why: &str) -> FieldError {
    FieldError::invalid(FieldPath::new("metadata").child("labels").key(&format!("{PREFIX}{name}")), value.into(), why)
}

fn parse_level(text: &str) -> Option<Level> {
    match text {
        "privileged" => Some(Level::Privileged),
        "baseline" => Some(Level::Baseline),
        "restricted" => Some(Level::Restricted),
        _ => None,
    }
}

fn parse_version(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(None);
    }
    let digits = text.strip_prefix("v1.")?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits.len() == 1 || !digits.starts_with('0'));
    let version: u32 = digits.parse().ok()?;
    plain.then_some(Some(version))
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Some(minor) => write!(f, "{level}:v1.{minor}"),
            None => write!(f, "{level}:latest"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_make_a_policy() {
        #[track_caller]
        fn check(labels: &[(&str, &str)], enforce: &str, warn: &str, errors: &[&str]) {
            let labels = labels.iter().map(|(name, value)| (format!("{PREFIX}{name}"), value.to_string())).collect();
            let (policy, found) = Policy::of(&labels);
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!((policy.enforce.to_string(), policy.warn.to_string()), (enforce.into(), warn.into()));
            assert_eq!(found, errors);
        }
        check(&[], "privileged:latest", "privileged:latest", &[]);
        check(&[("enforce", "baseline")], "baseline:latest", "baseline:latest", &[]);
        check(&[("enforce", "baseline"), ("enforce-version", "v1.20")], "baseline:v1.20", "baseline:v1.20", &[]);
        check(&[("enforce", "baseline"), ("warn", "restricted")], "baseline:latest", "restricted:latest", &[]);
        check(&[("enforce", "baseline"), ("warn", "privileged")], "baseline:latest", "privileged:latest", &[]);
        check(&[("enforce", "baseline"), ("warn-version", "v1.1")], "baseline:latest", "baseline:v1.1", &[]);
        check(
            &[("enforce", "x"), ("warn", "y"), ("audit-version", "v1.07"), ("enforce-version", "v2.1")],
            "restricted:latest",
            "privileged:latest",
            &[
                "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"x\": must be one of privileged, \
                 baseline, restricted",
                "metadata.labels[pod-security.kubernetes.io/enforce-version]: Invalid value: \"v2.1\": must be \"latest\" \
                 or \"v1.x\"",
                "metadata.labels[pod-security.kubernetes.io/audit-version]: Invalid value: \"v1.07\": must be \"latest\" \
                 or \"v1.x\"",
                "metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"y\": must be one of privileged, \
                 baseline, restricted",
            ],
        );
    }
}
