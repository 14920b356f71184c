//! One rule of a role. In: a rule and what is asked, or two sets of rules. Out: whether the rule allows it, and which rights
//! the first set lacks of the second. Pure; the texts are those of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};

use konverge_schema::go_quote;

use crate::authorize::{Attributes, ResourceAttributes};

/// What stands for every verb, group, resource and path.
const ALL: &str = "*";

/// A `PolicyRule`: verbs, and the resources or paths that they are allowed for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Rule {
    #[serde(deserialize_with = "list")]
    pub verbs: Vec<Box<str>>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<Box<str>>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<Box<str>>,
    #[serde(deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<Box<str>>,
    #[serde(rename = "nonResourceURLs", deserialize_with = "list", skip_serializing_if = "Vec::is_empty")]
    pub non_resource_urls: Vec<Box<str>>,
}

/// A list that may be `null`.
pub(super) fn list<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Rule {
    /// The rules that give everything.
    pub(crate) fn everything() -> [Rule; 2] {
        let all = || vec![Box::from(ALL)];
        [
            Rule { verbs: all(), api_groups: all(), resources: all(), ..Rule::default() },
            Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
        ]
    }

    /// Whether the rule allows a request.
    pub(crate) fn allows(&self, attributes: &Attributes<'_>) -> bool {
        self.has_verb(attributes.verb)
            && match &attributes.resource {
                Some(resource) => self.has_resource(resource),
                None => self.non_resource_urls.iter().any(|url| covers_path(url, attributes.path)),
            }
    }

    fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| &**known == ALL || &**known == verb)
    }

    fn has_resource(&self, asked: &ResourceAttributes<'_>) -> bool {
        let ResourceAttributes { group, resource, subresource, name, .. } = *asked;
        let names = |rule: &str| match subresource {
            "" => rule == resource,
            // `*/scale` is the scale of every resource, but `pods/*` means nothing.
            _ => match rule.split_once('/') {
                Some(("*", of_all)) if of_all == subresource => true,
                _ => rule.strip_prefix(resource).and_then(|rest| rest.strip_prefix('/')) == Some(subresource),
            },
        };
        self.api_groups.iter().any(|known| &**known == ALL || &**known == group)
            && self.resources.iter().any(|known| &**known == ALL || names(known))
            && (self.resource_names.is_empty() || self.resource_names.iter().any(|known| &**known == name))
    }

    /// Whether the rule gives at least the right of `right`, which is one that [`Rule::break_down`] has made.
    fn covers(&self, right: &Rule) -> bool {
        fn has(set: &[Box<str>], asked: &str) -> bool {
            set.iter().any(|known| &**known == asked)
        }
        let has_all = |set: &[Box<str>], asked: &[Box<str>]| has(set, ALL) || asked.iter().all(|one| has(set, one));
        let has_resource = |asked: &str| {
            let of_all = || asked.split_once('/').is_some_and(|(_, sub)| has(&self.resources, &format!("*/{sub}")));
            has(&self.resources, asked) || of_all()
        };
        has_all(&self.verbs, &right.verbs)
            && has_all(&self.api_groups, &right.api_groups)
            && (has(&self.resources, ALL) || right.resources.iter().all(|asked| has_resource(asked)))
            && match right.resource_names.is_empty() {
                true => self.resource_names.is_empty(),
                false => {
                    self.resource_names.is_empty() || right.resource_names.iter().all(|n| has(&self.resource_names, n))
                }
            }
            && right
                .non_resource_urls
                .iter()
                .all(|asked| self.non_resource_urls.iter().any(|url| covers_path(url, asked)))
    }

    /// Whether both are the same single right, for all objects.
    pub(crate) fn is_same_right(&self, other: &Rule) -> bool {
        let lists = |rule: &Rule| [rule.api_groups.clone(), rule.resources.clone(), rule.verbs.clone()];
        lists(self) == lists(other) && self.resource_names.is_empty() && other.resource_names.is_empty()
    }

    /// The single rights of a rule: at most one verb, one resource, one name or one path in each.
    pub(crate) fn break_down(&self) -> impl Iterator<Item = Rule> {
        let one = |text: &str| vec![Box::from(text)];
        let mut rights = Vec::new();
        for group in &self.api_groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    let (api_groups, resources, verbs) = (one(group), one(resource), one(verb));
                    let right = Rule { api_groups, resources, verbs, ..Rule::default() };
                    if self.resource_names.is_empty() {
                        rights.push(right);
                        continue;
                    }
                    let named = |name| Rule { resource_names: one(name), ..right.clone() };
                    rights.extend(self.resource_names.iter().map(|name| named(name)));
                }
            }
        }
        for url in &self.non_resource_urls {
            let with_verb = |verb| Rule { non_resource_urls: one(url), verbs: one(verb), ..Rule::default() };
            rights.extend(self.verbs.iter().map(|verb| with_verb(verb)));
        }
        rights.into_iter()
    }

    /// The rule as messages about escalation show it.
    fn compact(&self) -> String {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.non_resource_urls),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let parts = parts.into_iter().filter(|(_, list)| !list.is_empty());
        let parts: Vec<String> = parts.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
        format!("{{{}}}", parts.join(", "))
    }
}

/// Whether a path of a rule, which may end in `*`, has `path` in it.
fn covers_path(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

/// The single rights of `asked` that `held` does not give.
pub(super) fn missing(held: &[Rule], asked: &[Rule]) -> Vec<Rule> {
    let rights = asked.iter().flat_map(Rule::break_down);
    rights.filter(|right| !held.iter().any(|rule| rule.covers(right))).collect()
}

/// Single rights for people: those about the same resource become one line, and the lines are sorted.
pub(super) fn describe(rights: &[Rule]) -> Vec<String> {
    let mut lines = BTreeSet::new();
    let mut verbs: BTreeMap<[&[Box<str>]; 3], Rule> = BTreeMap::new();
    for right in rights {
        if !right.non_resource_urls.is_empty() {
            lines.insert(right.compact());
            continue;
        }
        let merged = verbs.entry([&right.api_groups, &right.resources, &right.resource_names]);
        merged.and_modify(|rule| rule.verbs.extend_from_slice(&right.verbs)).or_insert_with(|| right.clone());
    }
    lines.extend(verbs.values().map(Rule::compact));
    lines.into_iter().collect()
}

/// A list of strings as Go prints it: `["a" "b"]`.
pub(super) fn quoted(list: &[impl AsRef<str>]) -> String {
    let quoted: Vec<String> = list.iter().map(|text| go_quote(text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(of: serde_json::Value) -> Vec<Rule> {
        serde_json::from_value(of).unwrap()
    }

    #[test]
    fn missing_rights_are_described_as_in_kubernetes() {
        #[track_caller]
        fn check(held: serde_json::Value, asked: serde_json::Value, expect: &[&str]) {
            assert_eq!(describe(&missing(&rules(held), &rules(asked))), expect);
        }
        let pods = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]});
        check(json!([]), json!([pods]), &[r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#]);
        check(json!([pods]), json!([pods]), &[]);
        check(
            json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]}]),
            json!([pods, {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a", "b"]}]),
            &[
                r#"{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["get"]}"#,
                r#"{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}"#,
            ],
        );
        check(
            json!([{"apiGroups": ["*"], "resources": ["*/scale"], "verbs": ["*"]}]),
            json!([{"apiGroups": ["apps"], "resources": ["deployments/scale", "deployments"], "verbs": ["get"]}]),
            &[r#"{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}"#],
        );
        check(
            json!([{"nonResourceURLs": ["/healthz/*"], "verbs": ["get"]}]),
            json!([{"nonResourceURLs": ["/healthz/a", "/healthz", "/metrics"], "verbs": ["get", "post"]}]),
            &[
                r#"{NonResourceURLs:["/healthz"], Verbs:["get"]}"#,
                r#"{NonResourceURLs:["/healthz"], Verbs:["post"]}"#,
                r#"{NonResourceURLs:["/healthz/a"], Verbs:["post"]}"#,
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
                r#"{NonResourceURLs:["/metrics"], Verbs:["post"]}"#,
            ],
        );
    }

    #[test]
    fn lists_may_be_null() {
        let rule: Rule = serde_json::from_value(json!({"verbs": ["get"], "apiGroups": null})).unwrap();
        assert_eq!(serde_json::to_value(rule).unwrap(), json!({"verbs": ["get"]}));
    }
}
