//! What was made of an object for those who read it again and again. In: decoded values, at most one of a type. Out: the
//! same ones. They lie with the object, so all readers of a type share one, and when the object goes they go.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

/// A pointer wide as long as nobody decodes: there are hundreds of thousands of objects.
#[derive(Default)]
pub(super) struct Decoded(Mutex<Option<Box<Node>>>);

/// Few types look at one kind, so a list is enough.
struct Node {
    value: Arc<dyn Any + Send + Sync>,
    next: Option<Box<Node>>,
}

impl Decoded {
    /// The value of a type.
    pub fn get<K: Send + Sync + 'static>(&self) -> Option<Arc<K>> {
        let first = self.0.lock();
        let mut nodes = std::iter::successors(first.as_deref(), |node| node.next.as_deref());
        let node = nodes.find(|node| node.value.is::<K>())?;
        node.value.clone().downcast().ok()
    }

    /// Keeps a value, in the place of one of the same type.
    pub fn put<K: Send + Sync + 'static>(&self, value: Arc<K>) {
        let mut first = self.0.lock();
        let next = without::<K>(first.take());
        *first = Some(Box::new(Node { value, next }));
    }

    /// Forgets the value of a type.
    pub fn forget<K: Send + Sync + 'static>(&self) {
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
        let decoded = Decoded::default();
        assert_eq!(size_of::<Decoded>(), 2 * size_of::<usize>());
        assert_eq!(decoded.get::<u8>(), None);
        decoded.put(Arc::new(1u8));
        decoded.put(Arc::new("text"));
        decoded.put(Arc::new(2u8));
        decoded.put(Arc::new(3u16));
        assert_eq!(
            (decoded.get(), decoded.get(), decoded.get()),
            (Some(Arc::new(2u8)), Some(Arc::new("text")), Some(Arc::new(3u16)))
        );
        decoded.forget::<&str>();
        assert_eq!((decoded.get::<u8>(), decoded.get::<&str>()), (Some(Arc::new(2)), None));
    }
}
