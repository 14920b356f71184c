//! Storage-version migration: every object of a kind is stored in the version that its CRD stores now. In: a client, and the
//! name of a CRD. Out: all objects are written once as they are, and `status.storedVersions` has one version left, so that the
//! others can be removed from the CRD.
//!
//! It may be stopped and started again at any time, and several may run at once: an object that is stored in the right version
//! already is not changed by a write. Nothing is shortened before every object was written.

use futures_util::{StreamExt, stream};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_runtime::{Error, Result};
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use serde_json::json;

/// How many objects are read at a time: what kubectl asks for.
const PAGE: u32 = 500;

/// How many objects are written at the same time: enough to hide the latency, and few enough for a busy server.
const AT_ONCE: usize = 8;

/// How often a list that took longer than the server keeps its history is read from the beginning.
const MOST_LISTS: u32 = 5;

/// How often a race for the status of the CRD is run again.
const MOST_RACES: u32 = 5;

/// How often an object that others change at the same time is read and written again.
const MOST_WRITES: u32 = 5;

/// How many objects that cannot be written are named.
const MOST_NAMED: usize = 5;

/// What a migration did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// The version that all objects are stored in.
    pub version: String,
    /// The versions that objects may have been stored in before.
    pub before: Vec<String>,
    /// How many objects were written.
    pub objects: u64,
    /// How many objects somebody else wrote or deleted at the same time, which is as good.
    pub overtaken: u64,
}

impl Migrated {
    /// Whether there was nothing to do.
    pub fn is_unchanged(&self) -> bool {
        self.before == [self.version.clone()]
    }
}

/// Migrates the objects of a CRD, such as `shops.example.com`. The rights it takes: to read the CRD and patch its status, and to
/// get, list and update its objects.
///
/// ```no_run
/// # async fn migrate(client: konverge::kube::Client) -> konverge::Result<()> {
/// let migrated = konverge::migrate_storage(&client, "shops.example.com").await?;
/// println!("{} objects are stored in {}", migrated.objects, migrated.version);
/// # Ok(())
/// # }
/// ```
pub async fn migrate_storage(client: &Client, definition: &str) -> Result<Migrated> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = definitions.get(definition).await?;
    let (version, before) = (stored(&found)?, stored_versions(&found));
    let mut migrated = Migrated { version: version.clone(), before, objects: 0, overtaken: 0 };
    if migrated.is_unchanged() {
        return Ok(migrated);
    }
    let objects = Api::<DynamicObject>::all_with(client.clone(), &readable(&found, &version)?);
    rewrite(client, &objects, &found, &mut migrated).await?;
    shorten(&definitions, &found, &version).await?;
    Ok(migrated)
}

/// The version that the CRD stores.
fn stored(definition: &CustomResourceDefinition) -> Result<String> {
    let found = definition.spec.versions.iter().find(|version| version.storage);
    found.map(|version| version.name.clone()).ok_or_else(|| Error::permanent("the CRD has no version that is stored"))
}

fn stored_versions(definition: &CustomResourceDefinition) -> Vec<String> {
    definition.status.as_ref().and_then(|status| status.stored_versions.clone()).unwrap_or_default()
}

/// The version to read and write objects in: the stored one, or another one that is served.
fn readable(definition: &CustomResourceDefinition, stored: &str) -> Result<ApiResource> {
    let spec = &definition.spec;
    let served = || spec.versions.iter().filter(|version| version.served);
    let Some(version) = served().find(|version| version.name == stored).or_else(|| served().next()) else {
        return Err(Error::permanent(
            "no version of the CRD is served, so that nobody can read its objects; serve one",
        ));
    };
    Ok(ApiResource {
        group: spec.group.clone(),
        version: version.name.clone(),
        api_version: format!("{}/{}", spec.group, version.name),
        kind: spec.names.kind.clone(),
        plural: spec.names.plural.clone(),
    })
}

/// Writes every object as it is.
async fn rewrite(
    client: &Client,
    objects: &Api<DynamicObject>,
    definition: &CustomResourceDefinition,
    migrated: &mut Migrated,
) -> Result<()> {
    let resource = readable(definition, &migrated.version)?;
    let (mut token, mut lists, mut failed) = (None::<String>, 1, Vec::new());
    loop {
        let mut params = ListParams::default().limit(PAGE);
        params.continue_token = token;
        let page = match objects.list(&params).await {
            Ok(page) => page,
            // What is written already is not written again.
            Err(kube::Error::Api(status)) if status.code == 410 && lists < MOST_LISTS => {
                lists += 1;
                token = None;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        token = page.metadata.continue_.filter(|token| !token.is_empty());
        let writes = page.items.into_iter().map(|object| write(client, &resource, object));
        let mut writes = stream::iter(writes).buffer_unordered(AT_ONCE);
        while let Some(written) = writes.next().await {
            match written {
                Ok(true) => migrated.objects += 1,
                Ok(false) => migrated.overtaken += 1,
                Err(why) => failed.push(why),
            }
        }
        if token.is_none() {
            break;
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let more = failed.len().saturating_sub(MOST_NAMED);
    failed.truncate(MOST_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Err(Error::new(format!(
        "objects of {} could not be written, so that its old versions have to stay: {}{more}",
        definition.metadata.name.as_deref().unwrap_or_default(),
        failed.join("; ")
    )))
}

/// Writes one object as it was read; false if somebody else did it at the same time. The error names the object.
async fn write(client: &Client, resource: &ApiResource, mut object: DynamicObject) -> Result<bool, String> {
    let (namespace, name) = (object.metadata.namespace.clone(), object.metadata.name.clone().unwrap_or_default());
    let api: Api<DynamicObject> = match &namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, resource),
        None => Api::all_with(client.clone(), resource),
    };
    let failed = |error: kube::Error| {
        let namespace = namespace.as_ref().map_or_else(String::new, |namespace| format!("{namespace}/"));
        format!("{namespace}{name}: {error}")
    };
    for _ in 0..MOST_WRITES {
        let refused = match api.replace(&name, &PostParams::default(), &object).await {
            Ok(_) => return Ok(true),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => kube::Error::Api(status),
            Err(error) => return Err(failed(error)),
        };
        // A webhook may refuse with these codes, too: only the object itself tells whether somebody else was faster.
        match api.get_opt(&name).await.map_err(failed)? {
            None => return Ok(false),
            Some(now) if now.metadata.resource_version == object.metadata.resource_version => {
                return Err(failed(refused));
            }
            Some(now) => object = now,
        }
    }
    // Others wrote it all the time, and what they wrote is stored in the new version, too.
    Ok(false)
}

/// Says in the CRD that only one version is stored. Refused if the CRD has another stored version by now.
async fn shorten(
    definitions: &Api<CustomResourceDefinition>,
    migrated: &CustomResourceDefinition,
    version: &str,
) -> Result<()> {
    let name = migrated.metadata.name.as_deref().unwrap_or_default();
    for _ in 0..MOST_RACES {
        let now = definitions.get(name).await?;
        if now.metadata.uid != migrated.metadata.uid || stored(&now)? != version {
            return Err(Error::new(format!("{name} was changed while its objects were migrated; migrate them again")));
        }
        if stored_versions(&now) == [version] {
            return Ok(());
        }
        let patch = json!({
            "metadata": {"resourceVersion": now.metadata.resource_version},
            "status": {"storedVersions": [version]},
        });
        match definitions.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Error::new(format!("others change {name} all the time")))
}
