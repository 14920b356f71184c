//! One rule of a role. In: a rule and what is asked, or two sets of rules. Out: whether the rule allows it, and which rights
//! the first set lacks of the second. Pure; the texts are those of Kubernetes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};

use konverge_schema::{Budget, OverBudget, go_quote};

use crate::authorize::{Attributes, ResourceAttributes};

/// What stands for every verb, group, resource and path.
const ALL: &str = "*";

/// How many rights a message about escalation names, and about how many bytes of them. Kubernetes names all; a message of megabytes
/// helps nobody.
const MAX_NAMED: usize = 1000;
const MAX_NAMED_BYTES: usize = 64 * 1024;

/// Comparing this many words, or copying this many bytes, takes about as long as one step of other work.
const WORDS_PER_STEP: u64 = 8;
const BYTES_PER_STEP: usize = 8;

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

    /// Whether the rule gives all rights of `right`. If it does not, several rules together may.
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

    /// The single rights of a rule, one after the other: at most one verb, one resource, one name or one path in each. They can be many
    /// more than the words of the rule.
    pub(crate) fn break_down(&self) -> impl Iterator<Item = Rule> {
        let one = |text: &str| vec![Box::from(text)];
        let names = move || {
            let any = self.resource_names.is_empty().then_some(None);
            any.into_iter().chain(self.resource_names.iter().map(|name| Some(&**name)))
        };
        let of_resources = self.api_groups.iter().flat_map(move |group| {
            self.resources.iter().flat_map(move |resource| {
                self.verbs.iter().flat_map(move |verb| {
                    names().map(move |name: Option<&str>| Rule {
                        api_groups: one(group),
                        resources: one(resource),
                        verbs: one(verb),
                        resource_names: name.map(one).unwrap_or_default(),
                        ..Rule::default()
                    })
                })
            })
        });
        let of_paths = self.non_resource_urls.iter().flat_map(move |url| {
            self.verbs.iter().map(move |verb| Rule { non_resource_urls: one(url), verbs: one(verb), ..Rule::default() })
        });
        of_resources.chain(of_paths)
    }

    /// How many single rights those are.
    fn rights(&self) -> u64 {
        let product =
            |lists: &[usize]| lists.iter().fold(1_u64, |product, length| product.saturating_mul(*length as u64));
        let [groups, resources, verbs] = [&self.api_groups, &self.resources, &self.verbs].map(Vec::len);
        let of_resources = product(&[groups, resources, verbs, self.resource_names.len().max(1)]);
        of_resources.saturating_add(product(&[self.non_resource_urls.len(), verbs]))
    }

    fn lists(&self) -> [&Vec<Box<str>>; 5] {
        [&self.verbs, &self.api_groups, &self.resources, &self.resource_names, &self.non_resource_urls]
    }

    /// How many words the rule has, and how many bytes they are.
    fn size(&self) -> (u64, usize) {
        let words = || self.lists().into_iter().flatten();
        (words().count() as u64, words().map(|word| word.len()).sum())
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

/// The single rights of `asked` that `held` does not give. For rules of the server itself, which are few.
pub(super) fn missing(held: &[Rule], asked: &[Rule]) -> Vec<Rule> {
    let rights = asked.iter().flat_map(Rule::break_down);
    rights.filter(|right| !held.iter().any(|rule| rule.covers(right))).collect()
}

/// Rights that somebody does not have.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// The first of them.
    pub rights: Vec<Rule>,
    /// How many further rights were not looked at.
    pub left_out: u64,
}

/// The same for rules that somebody sends, within what the request may compute, and no more than a message can name: a rule of a few
/// hundred words can be millions of rights.
pub(super) fn missing_within(held: &[Rule], asked: &[Rule], budget: &Budget) -> Result<Missing, OverBudget> {
    let words = held.iter().map(|rule| 1 + rule.size().0).sum::<u64>() + 1;
    let mut left_out = asked.iter().fold(0_u64, |all, rule| all.saturating_add(rule.rights()));
    let mut found = Missing::default();
    let mut bytes = 0;
    for rule in asked {
        budget.spend(words.saturating_mul(rule.size().0) / WORDS_PER_STEP);
        budget.check()?;
        // Who passes on a whole rule has it whole.
        if rule.non_resource_urls.is_empty() && held.iter().any(|held| held.covers(rule)) {
            left_out = left_out.saturating_sub(rule.rights());
            continue;
        }
        for right in rule.break_down() {
            let size = right.size().1;
            budget.spend(1 + words / WORDS_PER_STEP + (size / BYTES_PER_STEP) as u64);
            budget.check()?;
            left_out = left_out.saturating_sub(1);
            if held.iter().any(|rule| rule.covers(&right)) {
                continue;
            }
            bytes += size;
            found.rights.push(right);
            if found.rights.len() == MAX_NAMED || bytes > MAX_NAMED_BYTES {
                return Ok(Missing { left_out, ..found });
            }
        }
    }
    Ok(found)
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
            let found = missing_within(&rules(held.clone()), &rules(asked.clone()), Budget::unlimited()).unwrap();
            assert_eq!(found.rights, missing(&rules(held), &rules(asked)));
            assert_eq!(
                (describe(&found.rights), found.left_out),
                (expect.iter().map(|line| (*line).to_owned()).collect(), 0)
            );
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
    fn many_rights_are_counted_and_not_listed() {
        let words = |prefix: &str| (0..120).map(|number| format!("{prefix}{number}")).collect::<Vec<_>>();
        let many = json!([{"apiGroups": words("g"), "resources": words("r"), "verbs": words("v")}]);
        let enough = || Budget::new(20_000_000, u64::MAX);
        let check = |held: serde_json::Value, asked: &serde_json::Value| {
            missing_within(&rules(held), &rules(asked.clone()), &enough())
                .map(|found| (found.rights.len(), found.left_out))
        };
        assert_eq!(check(json!([]), &many), Ok((MAX_NAMED, 1_727_000)));
        // Whoever has the rule may pass it on, however many rights it is.
        assert_eq!(check(many.clone(), &many), Ok((0, 0)));
        // Two rules that are the same together would have to be compared right by right.
        let half = |verbs: &[String]| json!({"apiGroups": ["*"], "resources": ["*"], "verbs": verbs});
        let verbs = words("v");
        assert_eq!(check(json!([half(&verbs[..60]), half(&verbs[60..])]), &many), Err(OverBudget::Steps));
        // Long words.
        let long = json!([{"apiGroups": [""], "resources": ["r".repeat(MAX_NAMED_BYTES)], "verbs": ["get", "list"]}]);
        assert_eq!(check(json!([]), &long), Ok((1, 1)));
    }

    #[test]
    fn lists_may_be_null() {
        let rule: Rule = serde_json::from_value(json!({"verbs": ["get"], "apiGroups": null})).unwrap();
        assert_eq!(serde_json::to_value(rule).unwrap(), json!({"verbs": ["get"]}));
    }
}
