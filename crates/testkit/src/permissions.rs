//! Operators under the rights that they declare. In: the rules of each operator that runs in a test, and its requests. Out: decisions
//! as a cluster with the printed roles makes them, and which of the rules were used. What a test does itself is always allowed.

use std::collections::BTreeMap;
use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

use konverge::Rules;
use konverge_apiserver::{Attributes, Authorizer, Decision, UserInfo};
use parking_lot::Mutex;

/// What the operators of a test may do, beside what they did. [`Cluster::permissions`](crate::Cluster::permissions) has it.
///
/// Its text is for people who read a failed test: it says what to add to the operator, and what is too much.
///
/// ```
/// use konverge::prelude::*;
/// use konverge_testkit::Cluster;
///
/// # #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
/// # #[kube(group = "example.com", version = "v1", kind = "Greeting", namespaced)]
/// # pub struct GreetingSpec { text: String }
/// # #[tokio::main(flavor = "multi_thread", worker_threads = 2)]
/// # async fn main() -> Result<()> {
/// async fn greet(ctx: Context<Greeting>) -> Result<Action> {
///     ctx.apply(ConfigMap::new(ctx.name()).data("text", &ctx.resource().spec.text)).await?;
///     Ok(Action::await_change())
/// }
/// let cluster = Cluster::start().await?;
/// cluster.install::<Greeting>().await?;
/// // Watches Pods for nothing.
/// let operator = Operator::<Greeting>::new().reconcile(greet).owns::<ConfigMap>().needs::<Pod>(["list"]);
/// let running = cluster.run(operator);
/// cluster.create(Greeting::new("hello", GreetingSpec { text: "hi".into() })).await?;
/// cluster.wait_until::<ConfigMap>("hello", |_| true).await?;
/// running.stop().await?;
///
/// let permissions = cluster.permissions();
/// assert!(permissions.lacking.is_empty(), "{permissions}");
/// assert!(permissions.unused.to_string().contains("list pods"), "{permissions}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Permissions {
    /// The rules that requests needed and that are declared.
    pub used: Rules,
    /// The rules that are declared and that no request needed. What one declaration brings, such as `.owns`, counts as needed once a part of
    /// it was.
    pub unused: Rules,
    /// The rules that requests needed and that are not declared: they were denied.
    pub lacking: Rules,
}

impl Permissions {
    /// Whether the operators declare what they need and nothing else.
    pub fn are_least(&self) -> bool {
        self.unused.is_empty() && self.lacking.is_empty()
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_nothing = |rules: &Rules| if rules.is_empty() { "nothing".to_owned() } else { rules.to_string() };
        writeln!(f, "used: {}", or_nothing(&self.used))?;
        writeln!(f, "declared and never used: {}", or_nothing(&self.unused))?;
        write!(f, "needed and not declared: {}", or_nothing(&self.lacking))?;
        if !self.lacking.is_empty() {
            write!(f, "; declare it with .owns::<Kind>(), .watches::<Kind>(…) or .needs::<Kind>([\"verb\"])")?;
        }
        Ok(())
    }
}

/// The accounts of the operators in a test. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Accounts(Arc<Mutex<BTreeMap<String, Account>>>);

#[derive(Default)]
struct Account {
    declared: Rules,
    /// What its webhooks need. It is allowed, and no report is made of it.
    besides: Rules,
    /// The namespaces that the operator watches; none is all of them.
    namespaces: Vec<String>,
    used: Rules,
    lacking: Rules,
}

impl Accounts {
    /// A user for an operator that watches these namespaces, who may do there what these rules allow.
    pub(crate) fn open(&self, declared: Rules, besides: Rules, namespaces: Vec<String>) -> UserInfo {
        let mut accounts = self.0.lock();
        let name = format!("system:serviceaccount:default:operator-{}", accounts.len() + 1);
        accounts.insert(name.clone(), Account { declared, besides, namespaces, ..Account::default() });
        let groups = ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"];
        UserInfo { groups: groups.map(str::to_owned).into(), ..UserInfo::named(name) }
    }

    /// What all operators together may do and did.
    pub(crate) fn permissions(&self) -> Permissions {
        let mut all = Permissions::default();
        for account in self.0.lock().values() {
            all.used.extend(account.used.clone());
            // Only a cluster with OwnerReferencesPermissionEnforcement asks for finalizers.
            all.unused.extend(account.declared.unused(&account.used).without_part("finalizers"));
            all.lacking.extend(account.lacking.clone());
        }
        all
    }
}

impl Authorizer for Accounts {
    fn authorize<'a>(&'a self, asked: Attributes<'a>) -> Pin<Box<dyn Future<Output = Decision> + Send + 'a>> {
        let allow = Decision::Allow { reason: String::new() };
        let mut accounts = self.0.lock();
        let (Some(account), Some(resource)) = (accounts.get_mut(&asked.user.name), asked.resource) else {
            return Box::pin(ready(allow));
        };
        let name = match resource.subresource {
            "" => resource.resource.to_owned(),
            sub => format!("{}/{sub}", resource.resource),
        };
        let needed = Rules::new().allow_resource(resource.group, &name, [asked.verb]);
        let namespace = Some(resource.namespace).filter(|namespace| !namespace.is_empty());
        let Account { declared, besides, namespaces, .. } = &*account;
        let is_declared = declared.allows(asked.verb, (resource.group, &name), namespace, namespaces);
        if !is_declared && needed.without(besides).is_empty() {
            return Box::pin(ready(allow));
        }
        let decision = match is_declared {
            true => {
                // A watch that begins with all objects does the work of a list, for which other servers are asked.
                let listed =
                    asked.verb == "watch" && declared.allows("list", (resource.group, &name), namespace, namespaces);
                let listed = if listed { &["list"][..] } else { &[] };
                account.used.extend(needed.allow_resource(resource.group, &name, listed));
                allow
            }
            false => {
                account.lacking.extend(needed);
                Decision::NoOpinion { reason: String::new() }
            }
        };
        Box::pin(ready(decision))
    }
}
