//! Server-side apply, sent only if it would change something. In: what an object should look like, and the object as the
//! cache has it. Out: the object as the server answered, or nothing if nothing was sent.

use std::sync::Arc;

use http::StatusCode;
use kube::core::ApiResource;
use serde::Serialize;
use serde_json::Value;

use super::config::{Config, key_of};
use super::digest::{Digest, digest_of};
use super::memory::Slot;
use super::send::{Call, Operation};
use super::skip::{Decision, decide, differences};
use super::{Adopt, Owner, Writer, unwritable};
use crate::error::WriteError;
use crate::object::Object;

/// How often to re-read an object that changes during an apply.
const MAX_REREADS: usize = 3;

/// How to apply.
#[derive(Clone, Copy, Debug, Default)]
pub struct ApplyOptions<'a> {
    /// The namespace the object goes into, if it does not say so itself.
    pub namespace: Option<&'a str>,
    /// Whom the object belongs to: by a reference, or by an annotation where there can be no reference.
    pub owner: Option<&'a Owner>,
    /// Whether that owner may take over an object that exists and does not refer to it.
    pub adopt: Adopt<'a>,
    /// What to do about fields other managers own.
    pub conflicts: Conflicts,
}

/// What to do about fields that other managers own with other values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflicts {
    /// Take them. A controller knows what its children look like, and has nobody to ask; the other manager sees that
    /// it lost them. This is what Kubernetes advises for controllers.
    #[default]
    Take,
    /// Refuse with [`WriteError::Conflict`], which names managers and fields.
    Refuse,
}

/// What became of an apply.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// It was applied already: nothing was sent.
    Unchanged,
    /// The object did not exist.
    Created(Arc<Object>),
    /// The object was there.
    Updated(Arc<Object>),
}

impl Writer {
    /// Makes an object look like `config`, by server-side apply. `live` is the object as the cache has it: when it
    /// shows that nothing would change, nothing is sent, and where that version was found to have just this before,
    /// neither of them is parsed. Fields that were applied before and are no longer in `config` go; fields of
    /// others stay; fields of ours that others changed are put back. A status in `config` is left out.
    ///
    /// Where [`ApplyOptions::adopt`] says that the owner may be going, an object that has changed since the cache saw it
    /// is read from the server and looked at again.
    pub async fn apply<C: Serialize + Sync + ?Sized>(
        &self,
        api: &ApiResource,
        live: Option<&Object>,
        config: &C,
        options: ApplyOptions<'_>,
    ) -> Result<Applied, WriteError> {
        let text = serde_json::to_string(config).map_err(unwritable)?;
        // What the server showed of the object, once it had to be looked at.
        let mut fresh: Option<Option<Arc<Object>>> = None;
        let mut rereads = 0;
        loop {
            let now = fresh.as_ref().map_or(live, Option::as_deref);
            match self.apply_to(api, now, &text, options).await {
                Err(WriteError::Conflict { fields, .. })
                    if fields.is_empty() && rereads < MAX_REREADS && options.expects(now).is_some() => {}
                applied => {
                    return applied.map(|applied| match (applied, fresh.flatten()) {
                        // The caller has an older one, and nothing else tells it of this.
                        (Applied::Unchanged, Some(fresh)) => Applied::Updated(fresh),
                        (applied, _) => applied,
                    });
                }
            }
            let key = now.map(Object::key).expect("a version is only expected of an object that was seen");
            fresh = Some(self.get_object(api, &key).await?);
            rereads += 1;
        }
    }

    /// Applies to an object that is, as far as the caller knows, as in `live`.
    async fn apply_to(
        &self,
        api: &ApiResource,
        live: Option<&Object>,
        config: &str,
        options: ApplyOptions<'_>,
    ) -> Result<Applied, WriteError> {
        let (adopts, expected, owner) = (options.adopts(live), options.expects(live), options.owner);
        let options = match options.adopt {
            Adopt::Never if adopts => ApplyOptions { owner: None, ..options },
            _ => options,
        };
        let given = digest_of_apply(api, config, options);
        if live.is_some_and(|live| self.0.memory.is_known(given, live)) {
            return Ok(Applied::Unchanged);
        }
        let mut config: Value = serde_json::from_str(config).map_err(unwritable)?;
        if let Some(namespace) = options.namespace {
            place(&mut config, namespace);
        }
        let key = key_of(&config)?;
        if let Some(owner) = options.owner {
            owner.put_into(&key, &mut config)?;
        }
        let mut config = Config::new(api, key, config, &self.0.manager)?;
        if let (Some(owner), Some(live)) = (owner, live) {
            owner.may_take(&config.key, live)?;
        }
        let ty = self.0.types.of(api);
        let slot = Slot::new(api, &config.key, false);
        let remaining = self.0.memory.remaining_differences(&slot);
        match decide(&ty, live, &config, remaining) {
            Decision::Skip => {
                if let Some(live) = live {
                    self.0.memory.know(given, live);
                }
                return Ok(Applied::Unchanged);
            }
            Decision::Drift(paths) => {
                tracing::info!(kind = %api.kind, key = %config.key, fields = ?paths, "putting back what others changed");
            }
            Decision::Create | Decision::Changed => {}
        }
        if let (true, Some(owner), Adopt::IfAlive { api, check }) = (adopts, options.owner, options.adopt) {
            self.check_owner(api, owner, &config.key, check).await?;
        }
        let operation = Operation::Apply { force: options.conflicts == Conflicts::Take };
        config.expect(expected);
        let call = Call { operation, api, key: &config.key, subresource: "", body: Some(&config.object) };
        let answer = self.send(call).await?;
        let (code, object) = (answer.code, answer.object()?);
        config.expect(None);
        self.0.memory.remember_remaining_differences(slot, differences(&ty, &object.value(), &config.object).digest);
        if config.was_applied_last(&object) {
            self.0.memory.know(given, &object);
        }
        Ok(match code {
            StatusCode::CREATED => Applied::Created(object),
            _ => Applied::Updated(object),
        })
    }
}

/// A digest of everything that determines the result of an apply.
fn digest_of_apply(api: &ApiResource, config: &str, options: ApplyOptions<'_>) -> Digest {
    let mut given = digest_of(&[&api.api_version, options.namespace.unwrap_or_default(), config]);
    if let Some(Owner { api_version, kind, key, uid }) = options.owner {
        let namespace = key.namespace().unwrap_or_default();
        [api_version, kind, namespace, key.name(), uid].iter().for_each(|text| given.text(text));
    }
    given
}

/// Puts an object into a namespace, unless it says where it belongs.
fn place(config: &mut Value, namespace: &str) {
    if let Some(Value::Object(metadata)) = config.get_mut("metadata")
        && metadata.get("namespace").and_then(Value::as_str).is_none_or(str::is_empty)
    {
        metadata.insert("namespace".into(), namespace.into());
    }
}

impl Applied {
    /// The object as the server answered; none if nothing was sent.
    pub fn object(&self) -> Option<&Arc<Object>> {
        match self {
            Self::Unchanged => None,
            Self::Created(object) | Self::Updated(object) => Some(object),
        }
    }
}
