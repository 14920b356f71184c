//! The newest events that watches sent, so that changes which a hundred clients watch are serialised once. In: which events are
//! wanted together, and how to write them. Out: bytes that all watches share. What is not in the cache is written again.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use konverge_store::Revision;

use crate::negotiate::Encoding;
use crate::partial::MetaVersion;
use crate::resource::Resource;

/// Watches of the same objects wake up together, so a few events serve them all. When there are more, the oldest goes.
const MAX_EVENTS: usize = 16;

/// Longer events are not cached, so that all together take at most a MiB.
const MAX_EVENT_BYTES: usize = 64 * 1024;

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventForm {
    pub encoding: Encoding,
    /// Only the metadata of objects, in this version.
    pub metadata: Option<MetaVersion>,
}

/// Which events. They are the same for every watch through the same resource that has the same form.
pub(crate) struct EventsKey {
    /// Held, so that no other resource can have its address.
    pub resource: Arc<Resource>,
    pub form: EventForm,
    /// The key and the revision of each, and `ADDED`, `MODIFIED` or `DELETED`.
    pub events: Vec<(Arc<str>, Revision, &'static str)>,
}

/// The newest events.
#[derive(Default)]
pub(crate) struct EventCache(Mutex<VecDeque<(EventsKey, Bytes)>>);

impl EventCache {
    /// The event, which is written only if it is not in the cache.
    pub(crate) fn get_or_write(&self, key: EventsKey, write: impl FnOnce() -> Vec<u8>) -> Bytes {
        if let Some(cached) = self.find(&key) {
            return cached;
        }
        // Not under the lock: two watches that write the same event at the same time do no harm.
        let event = Bytes::from(write());
        if event.len() <= MAX_EVENT_BYTES {
            let mut events = self.0.lock();
            if events.len() == MAX_EVENTS {
                events.pop_front();
            }
            events.push_back((key, event.clone()));
        }
        event
    }

    fn find(&self, key: &EventsKey) -> Option<Bytes> {
        let events = self.0.lock();
        events.iter().rev().find(|(cached, _)| cached == key).map(|(_, event)| event.clone())
    }
}

impl PartialEq for EventsKey {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.resource, &other.resource) && self.form == other.form && self.events == other.events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin;

    const JSON: EventForm = EventForm { encoding: Encoding::Json, metadata: None };

    #[test]
    fn an_event_is_written_once_for_all_who_want_the_same() {
        let resources = builtin::served();
        let cache = EventCache::default();
        let of = |resource: usize, key: &str, revision, kind| EventsKey {
            resource: resources[resource].clone(),
            form: JSON,
            events: vec![(key.into(), Revision(revision), kind)],
        };
        let two = || EventsKey {
            events: [of(0, "/a", 1, "ADDED").events, of(0, "/a", 2, "ADDED").events].concat(),
            ..of(0, "/a", 1, "ADDED")
        };
        let get = |of: EventsKey, text: &str| cache.get_or_write(of, || text.into());
        assert_eq!(get(of(0, "/a", 1, "ADDED"), "first"), "first");
        for (key, expect) in [
            (of(0, "/a", 1, "ADDED"), "first"),
            (of(1, "/a", 1, "ADDED"), "other resource"),
            (of(0, "/b", 1, "ADDED"), "other key"),
            (of(0, "/a", 2, "ADDED"), "other revision"),
            (of(0, "/a", 1, "DELETED"), "other kind"),
            (two(), "two together"),
            (
                EventsKey { form: EventForm { encoding: Encoding::Protobuf, ..JSON }, ..of(0, "/a", 1, "ADDED") },
                "other encoding",
            ),
            (
                EventsKey { form: EventForm { metadata: Some(MetaVersion::V1), ..JSON }, ..of(0, "/a", 1, "ADDED") },
                "metadata",
            ),
        ] {
            assert_eq!(get(key, expect), expect);
        }
        assert_eq!(get(of(0, "/a", 1, "ADDED"), "written again"), "first");
    }

    #[test]
    fn the_cache_is_bounded() {
        let resource = &builtin::served()[0];
        let cache = EventCache::default();
        let of = |revision| EventsKey {
            resource: resource.clone(),
            form: JSON,
            events: vec![("/a".into(), Revision(revision), "ADDED")],
        };
        let long = "x".repeat(MAX_EVENT_BYTES + 1);
        assert_eq!(cache.get_or_write(of(0), || long.clone().into()), long);
        assert_eq!(cache.0.lock().len(), 0);
        for revision in 0..100 {
            cache.get_or_write(of(revision), || revision.to_string().into());
        }
        assert_eq!(cache.0.lock().len(), MAX_EVENTS);
        assert_eq!(cache.get_or_write(of(99), || "written again".into()), "99");
        assert_eq!(cache.get_or_write(of(0), || "written again".into()), "written again");
    }
}
