//! Which entry is due next. In: slots with the tick at which they are due. Out: the earliest, first in first out among
//! equals. A heap with four children a node, each node's place kept by the caller, so that an entry is moved or removed
//! without a search and the heap never holds one twice. Allocates only to grow.

use super::entries::KEEP;

/// One waiting slot.
#[derive(Debug, Clone, Copy)]
struct Node {
    due: u64,
    /// Counts up with every push. It wraps: only nodes that are due in the same nanosecond are compared by it.
    order: u32,
    slot: u32,
}

impl Node {
    fn is_before(&self, other: &Node) -> bool {
        match self.due.cmp(&other.due) {
            std::cmp::Ordering::Less => true,
            std::cmp::Ordering::Greater => false,
            std::cmp::Ordering::Equal => (self.order.wrapping_sub(other.order) as i32) < 0,
        }
    }
}

/// The waiting slots, earliest first. `place(slot, at)` is called whenever a slot moves.
#[derive(Debug, Default)]
pub(super) struct Timers {
    nodes: Vec<Node>,
    order: u32,
}

/// How wide the heap is: half as deep as with two children, and the four of a node share a cache line.
const CHILDREN: usize = 4;

impl Timers {
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The slot that is due first, and when.
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        self.nodes.first().map(|node| (node.due, node.slot))
    }

    pub(super) fn push(&mut self, due: u64, slot: u32, place: impl FnMut(u32, u32)) {
        let node = Node { due, order: self.order, slot };
        self.order = self.order.wrapping_add(1);
        self.nodes.push(node);
        self.rise(self.nodes.len() - 1, node, place);
    }

    /// Takes the node at this place out.
    pub(super) fn remove(&mut self, at: u32, mut place: impl FnMut(u32, u32)) {
        let at = at as usize;
        let last = self.nodes.pop().expect("a place that was handed out holds a node");
        if self.nodes.is_empty() && self.nodes.capacity() > KEEP {
            self.nodes = Vec::new();
        }
        if at == self.nodes.len() {
            return;
        }
        if at > 0 && last.is_before(&self.nodes[(at - 1) / CHILDREN]) {
            self.rise(at, last, &mut place);
        } else {
            self.sink(at, last, place);
        }
    }

    /// Every slot, in no order; the heap is empty then.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.drain(..).map(|node| node.slot)
    }

    fn rise(&mut self, mut at: usize, node: Node, mut place: impl FnMut(u32, u32)) {
        while at > 0 {
            let parent = (at - 1) / CHILDREN;
            if !node.is_before(&self.nodes[parent]) {
                break;
            }
            self.nodes[at] = self.nodes[parent];
            place(self.nodes[at].slot, at as u32);
            at = parent;
        }
        self.nodes[at] = node;
        place(node.slot, at as u32);
    }

    fn sink(&mut self, mut at: usize, node: Node, mut place: impl FnMut(u32, u32)) {
        loop {
            let first = at * CHILDREN + 1;
            let children = first..(first + CHILDREN).min(self.nodes.len());
            let earliest = children.reduce(|a, b| if self.nodes[b].is_before(&self.nodes[a]) { b } else { a });
            let Some(child) = earliest.filter(|child| self.nodes[*child].is_before(&node)) else { break };
            self.nodes[at] = self.nodes[child];
            place(self.nodes[at].slot, at as u32);
            at = child;
        }
        self.nodes[at] = node;
        place(node.slot, at as u32);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a sorted list: same order, places always right.
        #[test]
        fn timers_leave_in_order(steps in prop::collection::vec((0u8..4, 0u64..20, any::<prop::sample::Index>()), 1..300)) {
            let (mut timers, mut places, mut model) = (Timers::default(), Vec::new(), Vec::<(u64, u32)>::new());
            for (step, due, pick) in steps {
                if step < 2 || model.is_empty() {
                    let slot = places.len() as u32;
                    places.push(u32::MAX);
                    timers.push(due, slot, |slot, at| places[slot as usize] = at);
                    let at = model.partition_point(|(other, _)| *other <= due);
                    model.insert(at, (due, slot));
                } else {
                    let (_, slot) = model.remove(if step == 2 { 0 } else { pick.index(model.len()) });
                    timers.remove(places[slot as usize], |slot, at| places[slot as usize] = at);
                }
                prop_assert_eq!(timers.first(), model.first().copied());
                prop_assert_eq!(timers.len(), model.len());
                for (_, slot) in &model {
                    prop_assert_eq!(timers.nodes[places[*slot as usize] as usize].slot, *slot);
                }
            }
        }
    }
}
