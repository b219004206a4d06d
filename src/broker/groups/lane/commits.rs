//! What a lane has done, as commits: each is numbered after all before it, and says all of it. Pure.

use super::Lane;
use crate::ids::Offset;
use crate::store::lanes::Commit;

impl Lane {
    /// What is to be committed, if anything is new.
    pub fn take_commit(&mut self) -> Option<Commit> {
        std::mem::take(&mut self.dirty).then(|| {
            let times = self.times.take_under_way(self.next_number());
            Commit { times, ..self.next_commit() }
        })
    }

    /// The state as a commit, numbered after all before it.
    pub fn next_commit(&mut self) -> Commit {
        self.commits += 1;
        let (number, times) = (self.commits, self.times.take());
        Commit { number, committed: self.committed, acked: self.acked.to_multirange(), times }
    }

    /// As [`Lane::next_commit`], as if one more message were done.
    pub fn commit_without(&mut self, offset: Offset) -> Commit {
        self.commit_without_ranges([(offset, offset.plus(1))])
    }

    /// As [`Lane::next_commit`], as if these were done, too.
    pub fn commit_without_ranges(&mut self, ranges: impl IntoIterator<Item = (Offset, Offset)>) -> Commit {
        let mut acked = self.acked.clone();
        ranges.into_iter().for_each(|(from, to)| acked.insert(from, to));
        let committed = acked.settle(self.committed);
        self.commits += 1;
        let (number, times) = (self.commits, self.times.take());
        Commit { number, committed, acked: acked.to_multirange(), times }
    }

    /// Numbers of commits as the model counts them, where only their order matters.
    #[cfg(test)]
    pub fn renumber(&mut self, number: impl FnOnce(i64) -> i64) {
        self.commits = number(self.commits);
    }

    /// The number that the next commit will have.
    pub fn next_number(&self) -> i64 {
        self.commits + 1
    }

    /// Something must still be committed, although it was taken.
    pub fn mark_dirty(&mut self) {
        self.dirty = true;
    }

    pub fn is_dirty(&self) -> bool {
        self.dirty
    }
}
