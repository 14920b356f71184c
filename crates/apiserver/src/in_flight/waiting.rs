//! The requests of one lane that wait for webhooks. In: which webhook a request asks, and how large its body is. Out: whether there
//! is room for it, or what its client is told. Pure.
//!
//! A webhook that hangs fills its own room and no other. A request counts among all until it is answered, also after its webhooks
//! have answered: so what is worked on beside the slots stays bounded.

use std::collections::HashMap;

/// For how many webhooks that hang there is room: so many times as many requests as have a slot may have asked a webhook. Others
/// get 429, if a webhook is asked for them.
const WEBHOOKS: usize = 4;

/// The most bytes of bodies that wait for one webhook, and for all: half of what `body_memory` has for either size of bodies stays
/// for requests that wait for none.
const WEBHOOK_BYTES: usize = 16 * 1024 * 1024;
const ALL_BYTES: usize = 32 * 1024 * 1024;

/// The requests that wait, by what they wait for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    webhooks: HashMap<String, Load>,
    all: Load,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Load {
    requests: usize,
    bytes: usize,
}

impl Waiting {
    /// A request begins to wait for a webhook, which may be the `first` that it asks. `limit` is how many may wait for one webhook.
    pub(super) fn begin(
        &mut self,
        webhook: &str,
        body: usize,
        first: bool,
        limit: Option<usize>,
    ) -> Result<(), String> {
        let there = self.webhooks.get(webhook).copied().unwrap_or_default();
        if let Some(limit) = limit {
            if there.is_full(body, limit, WEBHOOK_BYTES) {
                let Load { requests, bytes } = there;
                return Err(format!(
                    "too many requests wait for the webhook {webhook} ({requests} requests with {bytes} bytes): it answers too \
                     slowly, or not at all; try again later"
                ));
            }
            if first && self.all.is_full(body, limit * WEBHOOKS, ALL_BYTES) {
                let Load { requests, bytes } = self.all;
                return Err(format!(
                    "too many requests wait for webhooks ({requests} requests with {bytes} bytes): several answer too slowly, or \
                     not at all; try again later"
                ));
            }
        }
        self.webhooks.entry(webhook.to_owned()).or_default().add(body);
        if first {
            self.all.add(body);
        }
        Ok(())
    }

    /// The webhook has answered, or is not waited for any more.
    pub(super) fn end(&mut self, webhook: &str, body: usize) {
        if let Some(load) = self.webhooks.get_mut(webhook) {
            load.remove(body);
            if load.requests == 0 {
                self.webhooks.remove(webhook);
            }
        }
    }

    /// A request that has asked a webhook is answered.
    pub(super) fn answered(&mut self, body: usize) {
        self.all.remove(body);
    }

    /// How many requests have asked a webhook and are not answered yet.
    pub(super) fn lent(&self) -> usize {
        self.all.requests
    }
}

impl Load {
    fn is_full(self, body: usize, requests: usize, bytes: usize) -> bool {
        self.requests >= requests || self.bytes + body > bytes
    }

    fn add(&mut self, body: usize) {
        *self = Self { requests: self.requests + 1, bytes: self.bytes + body };
    }

    fn remove(&mut self, body: usize) {
        *self = Self { requests: self.requests - 1, bytes: self.bytes - body };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    /// Requests as (webhook, size of the body) that come one after the other; the last one is refused with this text, or not.
    fn check(requests: &[(&str, usize)], limit: Option<usize>, expect: Option<&str>) {
        let mut waiting = Waiting::default();
        let (last, others) = requests.split_last().expect("a request");
        for (webhook, body) in others {
            waiting.begin(webhook, *body, true, limit).expect("there is room");
        }
        let said = waiting.begin(last.0, last.1, true, limit).err();
        assert!(
            match (&said, expect) {
                (None, None) => true,
                (Some(said), Some(expect)) => said.contains(expect),
                _ => false,
            },
            "{said:?}"
        );
    }

    #[test]
    fn how_many_may_wait() {
        let (one, other) = (("https://a/", 1), ("https://b/", 1));
        check(&[one; 2], Some(2), None);
        check(&[one; 3], Some(2), Some("the webhook https://a/ (2 requests with 2 bytes)"));
        check(&[one, one, other], Some(2), None);
        check(&[one; 3], None, None);
        let five = ["a", "b", "c", "d", "e"].map(|name| (name, 1));
        check(&five, Some(1), Some("wait for webhooks (4 requests with 4 bytes)"));
        check(&[("a", 8 * MIB), ("a", 8 * MIB)], Some(200), None);
        check(
            &[("a", 8 * MIB), ("a", 8 * MIB), ("a", 1)],
            Some(200),
            Some("the webhook a (2 requests with 16777216 bytes)"),
        );
        check(&[("a", 16 * MIB), ("b", 16 * MIB), ("c", 1)], Some(200), Some("wait for webhooks (2 requests"));
    }

    #[test]
    fn what_is_over_counts_no_more() {
        let mut waiting = Waiting::default();
        waiting.begin("a", 5, true, Some(1)).expect("there is room");
        waiting.begin("b", 5, false, Some(1)).expect("there is room");
        assert_eq!(waiting.lent(), 1, "one request, whatever it asks");
        assert!(waiting.begin("b", 5, true, Some(1)).is_err());
        waiting.end("b", 5);
        waiting.begin("b", 5, true, Some(1)).expect("there is room again");
        waiting.end("a", 5);
        waiting.end("b", 5);
        waiting.answered(5);
        waiting.answered(5);
        assert_eq!((waiting.webhooks.len(), waiting.all), (0, Load::default()));
    }
}
