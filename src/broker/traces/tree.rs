//! The tree of a trace: causes before effects, and the chain that took longest. Pure.

use std::collections::HashMap;
use std::hash::Hash;

/// A message of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node<P> {
    pub place: P,
    pub cause: Option<P>,
    /// When it was published.
    pub published_us: i64,
    /// When something happened to it last.
    pub ended_us: i64,
}

/// The tree, written down from its roots. All places but those in `order` count in the order of the tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tree {
    /// Which node stands where.
    pub order: Vec<usize>,
    /// Where the cause of each stands.
    pub parents: Vec<Option<usize>>,
    pub depths: Vec<u32>,
    /// From a root to what happened last.
    pub critical_path: Vec<usize>,
}

/// Makes a tree of the messages of a trace. Effects of one cause, and roots, stand in the order of publishing. One whose cause is
/// not among them is a root; so is one of a circle, which no broker lets happen.
pub fn grow<P: Copy + Eq + Hash + Ord>(nodes: &[Node<P>]) -> Tree {
    let places: HashMap<P, usize> = nodes.iter().enumerate().map(|(at, node)| (node.place, at)).collect();
    let cause_of = |at: usize| nodes[at].cause.and_then(|cause| places.get(&cause).copied());
    let mut effects: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut roots = Vec::new();
    let mut in_order: Vec<usize> = (0..nodes.len()).collect();
    in_order.sort_by_key(|at| (nodes[*at].published_us, nodes[*at].place));
    for at in &in_order {
        match cause_of(*at) {
            Some(cause) => effects[cause].push(*at),
            None => roots.push(*at),
        }
    }
    let mut tree = Tree::default();
    let mut stands: Vec<Option<usize>> = vec![None; nodes.len()];
    tree.write_down(&roots, &effects, &mut stands);
    for at in in_order {
        if stands[at].is_none() {
            tree.write_down(&[at], &effects, &mut stands); // of a circle
        }
    }
    tree.critical_path = tree.path_to_last(nodes);
    tree
}

impl Tree {
    /// Adds some nodes and all below them. A loop and no recursion: a chain may have thousands of hops.
    fn write_down(&mut self, roots: &[usize], effects: &[Vec<usize>], stands: &mut [Option<usize>]) {
        let mut open: Vec<(usize, Option<usize>)> = roots.iter().rev().map(|root| (*root, None)).collect();
        while let Some((at, parent)) = open.pop() {
            if stands[at].is_some() {
                continue;
            }
            let here = self.order.len();
            stands[at] = Some(here);
            self.order.push(at);
            self.parents.push(parent);
            self.depths.push(parent.map_or(0, |parent| self.depths[parent] + 1));
            open.extend(effects[at].iter().rev().map(|effect| (*effect, Some(here))));
        }
    }

    fn path_to_last<P>(&self, nodes: &[Node<P>]) -> Vec<usize> {
        let ended = |here: &usize| nodes[self.order[*here]].ended_us;
        let last = (0..self.order.len()).rev().max_by_key(ended);
        let mut path: Vec<usize> = std::iter::successors(last, |here| self.parents[*here]).collect();
        path.reverse();
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(place: u32, cause: Option<u32>, published_us: i64) -> Node<u32> {
        Node { place, cause, published_us, ended_us: published_us }
    }

    #[test]
    fn causes_stand_before_their_effects_and_effects_in_the_order_of_publishing() {
        let nodes = [node(1, None, 0), node(2, Some(1), 30), node(3, Some(1), 20), node(4, Some(3), 40)];
        let tree = grow(&nodes);
        assert_eq!(tree.order, [0, 2, 3, 1]);
        assert_eq!(tree.parents, [None, Some(0), Some(1), Some(0)]);
        assert_eq!(tree.depths, [0, 1, 2, 1]);
        assert_eq!(tree.critical_path, [0, 1, 2]);
    }

    #[test]
    fn a_cause_that_is_gone_leaves_a_root_and_a_circle_loses_nobody() {
        let tree = grow(&[node(1, Some(9), 5), node(2, Some(3), 6), node(3, Some(2), 7)]);
        assert_eq!(tree.order, [0, 1, 2]);
        assert_eq!(tree.parents, [None, None, Some(1)]);
        assert_eq!(grow::<u32>(&[]), Tree::default());
    }

    #[test]
    fn a_chain_of_thousands_is_no_trouble() {
        let chain = |at: u32| node(at, at.checked_sub(1), i64::from(at));
        let tree = grow(&(0..10_000).map(chain).collect::<Vec<_>>());
        assert_eq!(tree.depths.last(), Some(&9_999));
        assert_eq!(tree.critical_path.len(), 10_000);
    }

    proptest! {
        /// Against a slow model: ancestors by walking up, subtrees by looking at everybody.
        #[test]
        fn every_node_stands_once_below_its_cause_and_beside_nobody_elses_effects(
            causes in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>(), 0_i64..50), 1..40),
        ) {
            let mut nodes: Vec<Node<u32>> = Vec::new();
            for (at, (cause, is_root, later)) in causes.iter().enumerate() {
                let cause = (at > 0 && !is_root).then(|| cause.index(at) as u32);
                let after = cause.map_or(0, |cause| nodes[cause as usize].published_us);
                nodes.push(node(at as u32, cause, after + later));
            }
            let tree = grow(&nodes);
            let mut all = tree.order.clone();
            all.sort_unstable();
            prop_assert_eq!(all, (0..nodes.len()).collect::<Vec<_>>());
            for (here, at) in tree.order.iter().enumerate() {
                let cause = nodes[*at].cause.map(|cause| cause as usize);
                prop_assert_eq!(tree.parents[here].map(|parent| tree.order[parent]), cause);
                // Everything between it and its cause is below its cause too.
                if let Some(parent) = tree.parents[here] {
                    prop_assert!((parent + 1..=here).all(|between| tree.depths[between] > tree.depths[parent]));
                }
            }
            let siblings = |a: usize, b: usize| tree.parents[a] == tree.parents[b];
            for b in 0..nodes.len() {
                for a in (0..b).filter(|a| siblings(*a, b)) {
                    let key = |here: usize| (nodes[tree.order[here]].published_us, nodes[tree.order[here]].place);
                    prop_assert!(key(a) < key(b));
                }
            }
            let last = tree.critical_path.last().map(|here| nodes[tree.order[*here]].ended_us);
            prop_assert_eq!(last, nodes.iter().map(|node| node.ended_us).max());
        }
    }
}
