//! Decoded values of an object that is read often. In: decoded values, at most one per type. Out: the same values. They
//! are stored with the object, so all readers of a type share one value, and the values are dropped with the object.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

/// Takes one pointer and a lock while nothing is decoded, because a cache has hundreds of thousands of objects.
#[derive(Default)]
pub(super) struct DecodedValues(Mutex<Option<Box<Node>>>);

/// A linked list is enough, because a kind is read as one or two Rust types.
struct Node {
    value: Arc<dyn Any + Send + Sync>,
    next: Option<Box<Node>>,
}

impl DecodedValues {
    /// The value of a type.
    pub(super) fn get<K: Send + Sync + 'static>(&self) -> Option<Arc<K>> {
        let first = self.0.lock();
        let mut nodes = std::iter::successors(first.as_deref(), |node| node.next.as_deref());
        let node = nodes.find(|node| node.value.is::<K>())?;
        node.value.clone().downcast().ok()
    }

    /// Stores a value, and replaces one of the same type.
    pub(super) fn put<K: Send + Sync + 'static>(&self, value: Arc<K>) {
        let mut first = self.0.lock();
        let next = without::<K>(first.take());
        *first = Some(Box::new(Node { value, next }));
    }

    /// Removes the value of a type.
    pub(super) fn remove<K: Send + Sync + 'static>(&self) {
        let mut first = self.0.lock();
        *first = without::<K>(first.take());
    }
}

fn without<K: 'static>(node: Option<Box<Node>>) -> Option<Box<Node>> {
    let mut node = node?;
    if node.value.is::<K>() {
        return node.next;
    }
    node.next = without::<K>(node.next.take());
    Some(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_of_each_type() {
        let decoded = DecodedValues::default();
        assert_eq!(size_of::<DecodedValues>(), 2 * size_of::<usize>());
        assert_eq!(decoded.get::<u8>(), None);
        decoded.put(Arc::new(1u8));
        decoded.put(Arc::new("text"));
        decoded.put(Arc::new(2u8));
        decoded.put(Arc::new(3u16));
        assert_eq!(
            (decoded.get(), decoded.get(), decoded.get()),
            (Some(Arc::new(2u8)), Some(Arc::new("text")), Some(Arc::new(3u16)))
        );
        decoded.remove::<&str>();
        assert_eq!((decoded.get::<u8>(), decoded.get::<&str>()), (Some(Arc::new(2)), None));
    }
}
