//! Which partitions have had so many flushes that their heads want thinning. Whoever writes heads counts its own.

use std::collections::HashMap;

use tokio::sync::mpsc;

use crate::ids::PartitionId;

/// Flushes that a partition may have before its heads are thinned.
const FLUSHES_PER_THINNING: u32 = 512;
/// Partitions that wait for it; more are asked for again with their next flush.
const PARTITIONS_WAITING_MAX: usize = 1_024;

/// Flushes by partition since its heads were thinned, or more. A clone counts for itself.
#[derive(Debug, Clone)]
pub struct Thinning {
    flushes: HashMap<PartitionId, u32>,
    wanted: mpsc::Sender<PartitionId>,
}

/// One that has counted nothing yet, and what it asks for.
pub fn thinning() -> (Thinning, mpsc::Receiver<PartitionId>) {
    let (wanted, asked) = mpsc::channel(PARTITIONS_WAITING_MAX);
    (Thinning { flushes: HashMap::new(), wanted }, asked)
}

impl Thinning {
    /// One more flush has written to a partition.
    pub fn on_wrote(&mut self, partition_id: PartitionId) {
        let flushes = self.flushes.entry(partition_id).or_default();
        *flushes += 1;
        if *flushes >= FLUSHES_PER_THINNING && self.wanted.try_send(partition_id).is_ok() {
            *flushes = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_is_asked_for_after_so_many_flushes_and_again_after_as_many() {
        let (mut thinning, mut asked) = thinning();
        for _ in 0..2 {
            (1..FLUSHES_PER_THINNING).for_each(|_| thinning.on_wrote(PartitionId(1)));
            thinning.on_wrote(PartitionId(2));
            assert!(asked.try_recv().is_err());
            thinning.on_wrote(PartitionId(1));
            assert_eq!(asked.try_recv(), Ok(PartitionId(1)));
        }
    }

    #[test]
    fn what_could_not_be_asked_for_is_asked_for_with_the_next_flush() {
        let (mut thinning, mut asked) = thinning();
        let all = PARTITIONS_WAITING_MAX as i64 + 1;
        (0..FLUSHES_PER_THINNING).for_each(|_| (0..all).for_each(|id| thinning.on_wrote(PartitionId(id))));
        while asked.try_recv().is_ok() {}
        thinning.on_wrote(PartitionId(all - 1));
        assert_eq!(asked.try_recv(), Ok(PartitionId(all - 1)));
    }
}
