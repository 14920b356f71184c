//! The project's CRDs in the cluster. In: CRDs as the project has them, and as the cluster has them. Out: findings. Pure.

use serde_json::Value;

use super::checks::{DEFINITIONS, STORED_VERSIONS};
use super::finding::{Finding, Outcome};
use crate::description::text;

/// A CRD as the project has it, and as the cluster has it.
pub(super) type Pair = (Value, Option<Value>);

/// Whether CRDs are installed, established and the same. It is worse if the operator is deployed, because it needs them.
pub(super) fn installed(pairs: &[Pair], is_deployed: bool) -> Finding {
    if pairs.is_empty() {
        return DEFINITIONS
            .not_checked("the project's CRDs are not known before its operator is built; --build builds it");
    }
    let mut worst = Outcome::Ok;
    let mut details = Vec::new();
    let mut mend = None;
    for (wanted, found) in pairs {
        let name = text(&wanted["metadata"]["name"]);
        let (outcome, what, how) = match found {
            None if is_deployed => (Outcome::Problem, "is not installed".to_owned(), "konverge install"),
            None => (Outcome::Warning, "is not installed".to_owned(), "konverge install, or konverge deploy"),
            Some(found) => match (not_established(found), difference(wanted, found)) {
                (Some(why), _) => (Outcome::Problem, format!("is not served: {why}"), "kubectl get crds -o wide"),
                (None, Some(what)) => (
                    Outcome::Warning,
                    format!("differs from the project's: {what}"),
                    "`konverge crd diff` says what would break; `konverge install` or `konverge deploy` brings it up to date",
                ),
                (None, None) => continue,
            },
        };
        details.push(format!("{name} {what}"));
        if worst != Outcome::Problem {
            (worst, mend) = (outcome, Some(how));
        }
    }
    match (mend, details.len()) {
        (None, _) => DEFINITIONS.ok(format!("{} installed, as the project has them", pairs.len())),
        (Some(mend), count) => {
            DEFINITIONS.found(worst, format!("{count} of {} CRDs need a look", pairs.len()), &[mend]).with(details)
        }
    }
}

/// Whether objects are stored in versions that are no longer the newest.
pub(super) fn stored_versions(pairs: &[Pair]) -> Finding {
    let (mut details, mut worst, mut names) = (Vec::new(), Outcome::Ok, Vec::new());
    for (wanted, found) in pairs {
        let Some(found) = found else { continue };
        let name = text(&found["metadata"]["name"]);
        let stored: Vec<String> =
            found["status"]["storedVersions"].as_array().into_iter().flatten().map(text).collect();
        let versions = |definition: &Value| definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
        let known: Vec<String> = versions(wanted).iter().map(|version| text(&version["name"])).collect();
        let newest =
            versions(found).iter().find(|version| version["storage"] == true).map(|version| text(&version["name"]));
        if let Some(lost) = stored.iter().find(|version| !known.contains(version)) {
            details.push(format!("{name}: objects may be stored as {lost}, which the project does not have any more; its CRD would be refused"));
            (worst, _) = (Outcome::Problem, names.push(name));
        } else if stored.iter().any(|version| Some(version) != newest.as_ref()) {
            details.push(format!("{name}: objects may be stored as {}", stored.join(", ")));
            names.push(name);
            if worst == Outcome::Ok {
                worst = Outcome::Warning;
            }
        }
    }
    if details.is_empty() {
        return match pairs.iter().any(|(_, found)| found.is_some()) {
            true => STORED_VERSIONS.ok("all objects are stored in the newest version"),
            false => STORED_VERSIONS.not_checked("no CRD of the project is installed"),
        };
    }
    let mend = format!("konverge crd migrate {}", names.join(" "));
    STORED_VERSIONS.found(worst, "objects are stored in old versions", &[&mend]).with(details)
}

/// Why a server does not serve a CRD; none if it does.
fn not_established(definition: &Value) -> Option<String> {
    let conditions = definition["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is = |kind: &str, status: &str| conditions.iter().find(|one| one["type"] == kind && one["status"] == status);
    if is("Established", "True").is_some() && !definition["metadata"]["deletionTimestamp"].is_string() {
        return is("NonStructuralSchema", "True").map(|condition| text(&condition["message"]));
    }
    if definition["metadata"]["deletionTimestamp"].is_string() {
        return Some("it is being deleted, and waits for its objects".to_owned());
    }
    let refused = conditions.iter().find(|condition| condition["status"] == "False");
    Some(refused.map_or_else(|| "it is not established yet".to_owned(), |condition| text(&condition["message"])))
}

/// What differs between two CRDs, in a few words. What servers add is passed over.
fn difference(wanted: &Value, found: &Value) -> Option<String> {
    let versions = |definition: &Value| definition["spec"]["versions"].as_array().cloned().unwrap_or_default();
    let (wanted_versions, found_versions) = (versions(wanted), versions(found));
    let names = |versions: &[Value]| versions.iter().map(|version| text(&version["name"])).collect::<Vec<_>>();
    let (mut ours, mut theirs) = (names(&wanted_versions), names(&found_versions));
    ours.sort();
    theirs.sort();
    if ours != theirs {
        return Some(format!("it has the versions {} instead of {}", theirs.join(", "), ours.join(", ")));
    }
    if wanted["spec"]["scope"] != found["spec"]["scope"] {
        return Some("its scope".to_owned());
    }
    for version in &wanted_versions {
        let name = &version["name"];
        let Some(other) = found_versions.iter().find(|other| other["name"] == *name) else { continue };
        for part in ["served", "storage", "schema", "subresources", "additionalPrinterColumns", "selectableFields"] {
            if plain(&version[part]) != plain(&other[part]) {
                return Some(format!("{part} of {}", text(name)));
            }
        }
    }
    None
}

/// A value without what means nothing: nulls, and empty lists and objects that are no schema.
fn plain(value: &Value) -> Value {
    let is_nothing = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !is_nothing(value));
            Value::Object(kept.map(|(name, value)| (name.clone(), plain(value))).collect())
        }
        Value::Array(items) if items.is_empty() => Value::Null,
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        // 1 and 1.0 are the same to a server.
        Value::Number(number) => number.as_f64().map_or_else(|| value.clone(), Value::from),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Outcome::{NotChecked, Ok as Fine, Problem, Warning};
    use serde_json::json;

    fn definition(versions: &[&str], storage: &str) -> Value {
        let version = |name: &&str| {
            json!({"name": name, "served": true, "storage": *name == storage,
                   "schema": {"openAPIV3Schema": {"type": "object", "maxProperties": 1}}})
        };
        json!({"metadata": {"name": "shops.example.com"}, "spec": {
            "scope": "Namespaced", "versions": versions.iter().map(version).collect::<Vec<_>>()}})
    }

    fn installed_as(mut definition: Value, stored: &[&str]) -> Value {
        definition["status"] =
            json!({"storedVersions": stored, "conditions": [{"type": "Established", "status": "True"}]});
        definition["spec"]["conversion"] = json!({"strategy": "None"});
        definition
    }

    #[track_caller]
    fn check(found: Finding, outcome: Outcome, part: &str) {
        assert_eq!(found.outcome, outcome, "{found:?}");
        assert!(format!("{} {}", found.what, found.details.join(" ")).contains(part), "{found:?}");
        assert_eq!(found.mend.is_empty(), matches!(outcome, Fine | NotChecked), "what to do is said: {found:?}");
    }

    #[test]
    fn installed_established_and_the_same() {
        let ours = definition(&["v1"], "v1");
        let pair = |found: Option<Value>| [(ours.clone(), found)];
        check(installed(&[], true), NotChecked, "not known");
        check(installed(&pair(None), true), Problem, "shops.example.com is not installed");
        check(installed(&pair(None), false), Warning, "is not installed");
        let there = installed_as(ours.clone(), &["v1"]);
        check(installed(&pair(Some(there.clone())), true), Fine, "1 installed");
        let mut served = there.clone();
        served["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["required"] = json!([]);
        served["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["maxProperties"] = json!(1.0);
        check(installed(&pair(Some(served)), true), Fine, "");
        let mut other = there.clone();
        other["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"] = json!("string");
        check(installed(&pair(Some(other)), true), Warning, "schema of v1");
        let mut names = there.clone();
        names["status"]["conditions"] =
            json!([{"type": "Established", "status": "False", "message": "names are taken"}]);
        check(installed(&pair(Some(names)), false), Problem, "names are taken");
        let mut going = there;
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        check(installed(&pair(Some(going)), false), Problem, "being deleted");
        check(
            installed(&pair(Some(installed_as(definition(&["v1", "v2"], "v2"), &["v2"]))), true),
            Warning,
            "v1, v2 instead of v1",
        );
    }

    #[test]
    fn versions_of_stored_objects() {
        let both = definition(&["v1", "v2"], "v2");
        let found = |stored: &[&str]| vec![(both.clone(), Some(installed_as(both.clone(), stored)))];
        check(stored_versions(&[(both.clone(), None)]), NotChecked, "no CRD");
        check(stored_versions(&found(&["v2"])), Fine, "newest");
        check(stored_versions(&found(&["v1", "v2"])), Warning, "stored as v1, v2");
        check(stored_versions(&found(&["v1alpha1", "v2"])), Problem, "v1alpha1, which the project does not have");
        assert_eq!(stored_versions(&found(&["v1", "v2"])).mend, ["konverge crd migrate shops.example.com"]);
    }
}
