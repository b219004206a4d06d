//! Which partition a message belongs to. A pure function of the message, so that a retry lands where the first try did.
//!
//! Explicit partition, else murmur2 of the key, else murmur2 of the transaction id. A message with none of the three has
//! no home of its own: the client picks one and says so explicitly. The hash is Kafka's, bit for bit, so that a topic
//! that moves over with the same number of partitions keeps its keys where they were.

/// Kafka's murmur2: 32 bits, fixed seed.
pub fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ (data.len() as u32);
    let mut words = data.chunks_exact(4);
    for word in words.by_ref() {
        let mut k = u32::from_le_bytes([word[0], word[1], word[2], word[3]]).wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = words.remainder();
    for (place, byte) in rest.iter().enumerate() {
        hash ^= u32::from(*byte) << (8 * place);
    }
    if !rest.is_empty() {
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// The partition of some bytes among `partitions`, as Kafka's default partitioner places a key.
pub fn partition_of(bytes: &[u8], partitions: u32) -> u32 {
    (murmur2(bytes) & 0x7fff_ffff) % partitions
}

/// The home of a message, or `None` if nothing in the message decides it.
pub fn route(
    explicit: Option<u32>,
    key: Option<&[u8]>,
    transaction_id: Option<&str>,
    partitions: u32,
) -> Option<u32> {
    explicit
        .or_else(|| key.map(|key| partition_of(key, partitions)))
        .or_else(|| transaction_id.map(|id| partition_of(id.as_bytes(), partitions)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_agrees_with_kafkas_published_vectors() {
        for (text, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }

    #[test]
    fn the_explicit_partition_wins_over_the_key_and_the_key_over_the_transaction_id() {
        let by_key = partition_of(b"k", 16);
        let by_id = partition_of(b"t", 16);
        assert_eq!(route(Some(3), Some(b"k"), Some("t"), 16), Some(3));
        assert_eq!(route(None, Some(b"k"), Some("t"), 16), Some(by_key));
        assert_eq!(route(None, None, Some("t"), 16), Some(by_id));
        assert_eq!(route(None, None, None, 16), None);
    }
}
