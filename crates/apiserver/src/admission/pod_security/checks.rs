//! The checks of the levels `baseline` and `restricted`. In: a pod or a pod template, a level, a version. Out: what it
//! violates, in the words of Kubernetes. Each check knows since which minor version it exists and how it has changed.

use std::collections::BTreeSet;

use serde_json::Value;

use super::policy::{Level, LevelVersion};

/// The version of the newest rule. Later versions have the same rules.
const NEWEST: u32 = 35;

/// What a pod violates.
pub(super) struct Violations(Vec<Violation>);

/// One violated rule: a word for it, and what is wrong.
struct Violation {
    reason: &'static str,
    detail: String,
}

impl Violations {
    /// Checks a pod against a level.
    pub(super) fn of(level: LevelVersion, metadata: &Value, spec: &Value) -> Self {
        let minor = level.version.unwrap_or(NEWEST).min(NEWEST);
        let pod = Pod { metadata, spec, minor };
        let applies = |check: &&Check| check.since <= minor;
        let restricted: Vec<&Check> = match level.level {
            Level::Privileged => return Self(Vec::new()),
            Level::Baseline => Vec::new(),
            Level::Restricted => RESTRICTED.iter().filter(applies).collect(),
        };
        let replaced = |check: &&Check| restricted.iter().any(|other| other.replaces == Some(check.name));
        let baseline = BASELINE.iter().filter(applies).filter(|check| !replaced(check));
        Self(baseline.chain(restricted.iter().copied()).filter_map(|check| (check.run)(&pod)).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `privileged, host namespaces`
    pub(super) fn reasons(&self) -> String {
        self.0.iter().map(|violation| violation.reason).collect::<Vec<_>>().join(", ")
    }

    /// `privileged (container "a" must not set …), host namespaces (hostNetwork=true)`
    pub(super) fn details(&self) -> String {
        let texts = self.0.iter().map(|Violation { reason, detail }| match detail.is_empty() {
            true => (*reason).to_owned(),
            false => format!("{reason} ({detail})"),
        });
        texts.collect::<Vec<_>>().join(", ")
    }
}

/// One rule.
struct Check {
    name: &'static str,
    /// The first minor version that has it.
    since: u32,
    /// The rule of `baseline` that this stricter one replaces.
    replaces: Option<&'static str>,
    run: fn(&Pod<'_>) -> Option<Violation>,
}

const fn check(name: &'static str, since: u32, run: fn(&Pod<'_>) -> Option<Violation>) -> Check {
    Check { name, since, replaces: None, run }
}

const fn stricter(
    name: &'static str,
    since: u32,
    replaces: &'static str,
    run: fn(&Pod<'_>) -> Option<Violation>,
) -> Check {
    Check { name, since, replaces: Some(replaces), run }
}

/// In the order in which violations are reported.
const BASELINE: [Check; 12] = [
    check("appArmorProfile", 0, app_armor_profile),
    check("capabilities", 0, baseline_capabilities),
    check("hostNamespaces", 0, host_namespaces),
    check("hostPathVolumes", 0, host_path_volumes),
    check("hostPorts", 0, host_ports),
    check("hostProbesAndHostLifecycle", 34, probe_hosts),
    check("privileged", 0, privileged),
    check("procMount", 0, baseline_proc_mount),
    check("seLinuxOptions", 0, se_linux_options),
    check("seccompProfile", 0, baseline_seccomp_profile),
    check("sysctls", 0, sysctls),
    check("windowsHostProcess", 0, windows_host_process),
];

const RESTRICTED: [Check; 7] = [
    check("allowPrivilegeEscalation", 8, privilege_escalation),
    stricter("capabilities", 22, "capabilities", restricted_capabilities),
    stricter("procMount", 35, "procMount", proc_mount),
    stricter("restrictedVolumes", 0, "hostPathVolumes", restricted_volumes),
    check("runAsNonRoot", 0, run_as_non_root),
    check("runAsUser", 23, run_as_user),
    stricter("seccompProfile", 19, "seccompProfile", restricted_seccomp_profile),
];

/// A pod, and the version of the rules.
struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
    minor: u32,
}

impl<'a> Pod<'a> {
    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        let spec = self.spec;
        let lists = ["initContainers", "containers", "ephemeralContainers"].into_iter();
        lists.flat_map(move |list| spec[list].as_array().into_iter().flatten())
    }

    /// The names of the containers for which this is true.
    fn containers_where(&self, is_so: impl FnMut(&&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(is_so).map(name).collect()
    }

    fn security(&self) -> &'a Value {
        &self.spec["securityContext"]
    }

    fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let annotations = self.metadata["annotations"].as_object().into_iter().flatten();
        annotations.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()))
    }

    fn is_windows(&self) -> bool {
        self.minor >= 25 && self.spec["os"]["name"] == "windows"
    }

    /// Whether root in the pod is nobody on its node, which newer rules take into account.
    fn has_user_namespace(&self) -> bool {
        self.minor >= 35 && self.spec["hostUsers"] == false
    }
}

fn name(object: &Value) -> &str {
    object["name"].as_str().unwrap_or_default()
}

fn violation(reason: &'static str, detail: String) -> Option<Violation> {
    Some(Violation { reason, detail })
}

fn quoted<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    items.into_iter().map(|item| format!("\"{}\"", item.as_ref())).collect::<Vec<_>>().join(", ")
}

fn plural(singular: &'static str, plural: &'static str, count: usize) -> &'static str {
    if count == 1 { singular } else { plural }
}

/// `container "a"`, `containers "a", "b"`
fn containers(names: &[&str]) -> String {
    format!("{} {}", plural("container", "containers", names.len()), quoted(names))
}

/// `pod and containers "a", "b"`
fn setters(pod: bool, names: &[&str]) -> String {
    let pod = pod.then(|| "pod".to_owned());
    let names = (!names.is_empty()).then(|| containers(names));
    pod.into_iter().chain(names).collect::<Vec<_>>().join(" and ")
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn app_armor_profile(pod: &Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |security: &Value| {
        let profile = &security["appArmorProfile"];
        let kind = profile["type"].as_str().unwrap_or_default();
        let bad = profile.is_object() && !matches!(kind, "RuntimeDefault" | "Localhost");
        if bad {
            values.insert(kind.to_owned());
        }
        bad
    };
    let bad_pod = is_bad(pod.security());
    let bad = pod.containers_where(|container| is_bad(&container["securityContext"]));
    let mut annotations: Vec<String> = pod
        .annotations()
        .filter(|(name, value)| {
            name.starts_with("container.apparmor.security.beta.kubernetes.io/")
                && !(value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/"))
        })
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    annotations.sort();
    let mut setters = setters(bad_pod, &bad);
    if !annotations.is_empty() {
        let word = plural("annotation", "annotations", annotations.len());
        setters = if setters.is_empty() { word.to_owned() } else { format!("{setters} and {word}") };
    }
    if setters.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    let reason = plural("forbidden AppArmor profile", "forbidden AppArmor profiles", values.len());
    violation(reason, format!("{setters} must not set AppArmor profile type to {}", quoted(&values)))
}

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The containers that add other capabilities than these, and which.
fn adding(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let mut added = BTreeSet::new();
    let bad = pod.containers_where(|container| {
        let other: Vec<&str> = texts(&container["securityContext"]["capabilities"]["add"])
            .filter(|capability| !allowed.contains(capability))
            .collect();
        added.extend(other.iter().map(|capability| (*capability).to_owned()));
        !other.is_empty()
    });
    (!bad.is_empty()).then(|| {
        format!("{} must not include {} in securityContext.capabilities.add", containers(&bad), quoted(&added))
    })
}

fn baseline_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    violation("non-default capabilities", adding(pod, &DEFAULT_CAPABILITIES)?)
}

fn restricted_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let keeping = pod.containers_where(|container| {
        !texts(&container["securityContext"]["capabilities"]["drop"]).any(|capability| capability == "ALL")
    });
    let keeping = (!keeping.is_empty())
        .then(|| format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    let details: Vec<String> = keeping.into_iter().chain(adding(pod, &["NET_BIND_SERVICE"])).collect();
    if details.is_empty() { None } else { violation("unrestricted capabilities", details.join("; ")) }
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|field| pod.spec[field] == true);
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    if shared.is_empty() { None } else { violation("host namespaces", shared.join(", ")) }
}

fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = pod.spec["volumes"].as_array().into_iter().flatten();
    let bad: Vec<&str> = volumes.filter(|volume| volume["hostPath"].is_object()).map(name).collect();
    if bad.is_empty() {
        return None;
    }
    violation("hostPath volumes", format!("{} {}", plural("volume", "volumes", bad.len()), quoted(&bad)))
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut ports = BTreeSet::new();
    let bad = pod.containers_where(|container| {
        let used = container["ports"].as_array().into_iter().flatten();
        let used: Vec<i64> = used.filter_map(|port| port["hostPort"].as_i64()).filter(|port| *port != 0).collect();
        ports.extend(used.iter().map(ToString::to_string));
        !used.is_empty()
    });
    if bad.is_empty() {
        return None;
    }
    let (uses, word) = (plural("uses", "use", bad.len()), plural("hostPort", "hostPorts", ports.len()));
    let ports: Vec<String> = ports.into_iter().collect();
    violation("hostPort", format!("{} {uses} {word} {}", containers(&bad), ports.join(", ")))
}

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    let mut hosts = BTreeSet::new();
    let bad = pod.containers_where(|container| {
        let probes = ["livenessProbe", "readinessProbe", "startupProbe"].map(|field| &container[field]);
        let hooks = ["postStart", "preStop"].map(|field| &container["lifecycle"][field]);
        let named = probes.into_iter().chain(hooks).flat_map(|handler| {
            ["httpGet", "tcpSocket"].map(|field| handler[field]["host"].as_str().unwrap_or_default())
        });
        let named: Vec<&str> = named.filter(|host| !host.is_empty()).collect();
        hosts.extend(named.iter().map(|host| (*host).to_owned()));
        !named.is_empty()
    });
    if bad.is_empty() {
        return None;
    }
    // Each container once, by name.
    let bad: Vec<&str> = bad.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    let uses = plural("uses", "use", bad.len());
    let word = plural("probe or lifecycle host", "probe or lifecycle hosts", hosts.len());
    violation("probe or lifecycle host", format!("{} {uses} {word} {}", containers(&bad), quoted(&hosts)))
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let bad = pod.containers_where(|container| container["securityContext"]["privileged"] == true);
    if bad.is_empty() {
        return None;
    }
    violation("privileged", format!("{} must not set securityContext.privileged=true", containers(&bad)))
}

fn baseline_proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() { None } else { proc_mount(pod) }
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let bad = pod.containers_where(|container| {
        let kind = container["securityContext"]["procMount"].as_str().filter(|kind| *kind != "Default");
        kinds.extend(kind.map(str::to_owned));
        kind.is_some()
    });
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must not set securityContext.procMount to {}", containers(&bad), quoted(&kinds));
    violation("procMount", detail)
}

fn se_linux_options(pod: &Pod<'_>) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let mut is_bad = |security: &Value| {
        let text = |field: &str| security["seLinuxOptions"][field].as_str().unwrap_or_default();
        let allowed = match text("type") {
            "" | "container_t" | "container_init_t" | "container_kvm_t" => true,
            "container_engine_t" => pod.minor >= 31,
            _ => false,
        };
        if !allowed {
            types.insert(text("type").to_owned());
        }
        user |= !text("user").is_empty();
        role |= !text("role").is_empty();
        !allowed || !text("user").is_empty() || !text("role").is_empty()
    };
    let bad_pod = is_bad(pod.security());
    let bad = pod.containers_where(|container| is_bad(&container["securityContext"]));
    if !bad_pod && bad.is_empty() {
        return None;
    }
    let types = (!types.is_empty()).then(|| format!("{} {}", plural("type", "types", types.len()), quoted(&types)));
    let user = user.then(|| "user may not be set".to_owned());
    let role = role.then(|| "role may not be set".to_owned());
    let data: Vec<String> = types.into_iter().chain(user).chain(role).collect();
    let setters = setters(bad_pod, &bad);
    violation("seLinuxOptions", format!("{setters} set forbidden securityContext.seLinuxOptions: {}", data.join("; ")))
}

const SECCOMP: &str = "seccompProfile";

fn baseline_seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 19 { seccomp_annotations(pod) } else { bad_seccomp_profile(pod) }
}

/// Old versions have annotations instead of fields.
fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let allowed =
        |value: &str| matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
    let of_containers =
        pod.containers().map(|one| format!("container.seccomp.security.alpha.kubernetes.io/{}", name(one)));
    let names: BTreeSet<String> =
        of_containers.chain(["seccomp.security.alpha.kubernetes.io/pod".to_owned()]).collect();
    let bad: BTreeSet<String> = pod
        .annotations()
        .filter(|(name, value)| names.contains(*name) && !allowed(value))
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", bad.len());
    let bad: Vec<String> = bad.into_iter().collect();
    violation(SECCOMP, format!("forbidden {word} {}", bad.join(", ")))
}

/// Profiles that are set to something forbidden.
fn bad_seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |security: &Value| {
        let kind = security["seccompProfile"]["type"].as_str().unwrap_or_default();
        let bad = security["seccompProfile"].is_object() && !matches!(kind, "RuntimeDefault" | "Localhost");
        if bad {
            values.insert(kind.to_owned());
        }
        bad
    };
    let bad_pod = is_bad(pod.security());
    let bad = pod.containers_where(|container| is_bad(&container["securityContext"]));
    if !bad_pod && bad.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not set securityContext.seccompProfile.type to {}", setters(bad_pod, &bad), quoted(&values));
    violation(SECCOMP, detail)
}

fn restricted_seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let bad = bad_seccomp_profile(pod);
    if bad.is_some() || pod.security()["seccompProfile"].is_object() {
        return bad;
    }
    let unset = pod.containers_where(|container| !container["securityContext"]["seccompProfile"].is_object());
    if unset.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(&unset)
    );
    violation(SECCOMP, detail)
}

/// The sysctls that are safe, and since which version.
const SAFE_SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let safe = |sysctl: &str| SAFE_SYSCTLS.iter().any(|(safe, since)| *safe == sysctl && *since <= pod.minor);
    let sysctls = pod.security()["sysctls"].as_array().into_iter().flatten();
    let bad: Vec<&str> = sysctls.map(name).filter(|sysctl| !safe(sysctl)).collect();
    if bad.is_empty() { None } else { violation("forbidden sysctls", bad.join(", ")) }
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_bad = |security: &Value| security["windowsOptions"]["hostProcess"] == true;
    let bad = pod.containers_where(|container| is_bad(&container["securityContext"]));
    let setters = setters(is_bad(pod.security()), &bad);
    if setters.is_empty() {
        return None;
    }
    violation("hostProcess", format!("{setters} must not set securityContext.windowsOptions.hostProcess=true"))
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.is_windows() {
        return None;
    }
    let bad = pod.containers_where(|container| container["securityContext"]["allowPrivilegeEscalation"] != false);
    if bad.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&bad));
    violation("allowPrivilegeEscalation != false", detail)
}

/// The kinds of volumes that are allowed.
const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The other kinds.
const OTHER_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

fn restricted_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let mut kinds = BTreeSet::new();
    let volumes = pod.spec["volumes"].as_array().into_iter().flatten();
    let bad = volumes.filter(|volume| {
        let has = |kind: &&&str| volume[**kind].is_object();
        let allowed = ALLOWED_VOLUMES.iter().any(|kind| has(&kind));
        if !allowed {
            kinds.insert(OTHER_VOLUMES.iter().find(has).copied().unwrap_or("unknown"));
        }
        !allowed
    });
    let bad: Vec<&str> = bad.map(name).collect();
    if bad.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        plural("volume", "volumes", bad.len()),
        quoted(&bad),
        plural("uses", "use", bad.len()),
        plural("restricted volume type", "restricted volume types", kinds.len()),
        quoted(&kinds)
    );
    violation("restricted volume types", detail)
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() {
        return None;
    }
    const REASON: &str = "runAsNonRoot != true";
    let of = |security: &Value| security["runAsNonRoot"].as_bool();
    let whole = of(pod.security());
    let root = pod.containers_where(|container| of(&container["securityContext"]) == Some(false));
    let setters = setters(whole == Some(false), &root);
    if !setters.is_empty() {
        return violation(REASON, format!("{setters} must not set securityContext.runAsNonRoot=false"));
    }
    let unset = pod.containers_where(|container| of(&container["securityContext"]).is_none());
    if whole == Some(true) || unset.is_empty() {
        return None;
    }
    violation(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&unset)))
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    if pod.has_user_namespace() {
        return None;
    }
    let is_root = |security: &Value| security["runAsUser"].as_i64() == Some(0);
    let bad = pod.containers_where(|container| is_root(&container["securityContext"]));
    let setters = setters(is_root(pod.security()), &bad);
    if setters.is_empty() { None } else { violation("runAsUser=0", format!("{setters} must not set runAsUser=0")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pods with what `policy.EvaluatePod` of k8s.io/pod-security-admission 0.36.4 says of them, by level and version.
    const CASES: &str = include_str!("cases.jsonl");

    #[test]
    fn pods_violate_what_they_violate_on_a_cluster() {
        let mut checked = 0;
        for case in CASES.lines() {
            let case: Value = serde_json::from_str(case).unwrap();
            let pod = &case["pod"];
            for expect in case["expect"].as_array().unwrap() {
                for text in expect["levels"].as_str().unwrap().split(' ') {
                    let (level, version) = text.split_once(':').unwrap();
                    let level = if level == "baseline" { Level::Baseline } else { Level::Restricted };
                    let version = version.strip_prefix("v1.").map(|minor| minor.parse().unwrap());
                    let found = Violations::of(LevelVersion { level, version }, &pod["metadata"], &pod["spec"]);
                    assert_eq!(found.details(), expect["details"].as_str().unwrap(), "{text} {pod}");
                    checked += 1;
                }
            }
        }
        assert_eq!(checked, 39 * 16);
    }
}
