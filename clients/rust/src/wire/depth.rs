//! How deeply a frame nests, found out before anything is decoded, and without recursion.
//!
//! Why: decoders recurse once per level, so that a few kilobytes of brackets would overflow a stack. The MessagePack
//! walk also proves that the frame is one whole value and nothing more, and lets a decoder step over a value.

use rmp::Marker;

use super::bounds::FRAME_DEPTH_MAX;

/// Why a walk stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// More levels than allowed.
    TooDeep,
    /// The bytes end inside a value, or hold the one marker that means nothing.
    Broken,
}

/// The most levels of brackets in a JSON text. Of a text that is not JSON it is some number.
pub(super) fn json(text: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'{' | b'[') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (false, b'}' | b']') => depth = depth.saturating_sub(1),
            (true | false, _) => {}
        }
    }
    deepest
}

/// What a marker leads to.
enum Follows {
    /// This many bytes.
    Bytes(usize),
    /// This many values, one level down.
    Values(u64),
}

/// Steps over one MessagePack value, however it nests, up to `levels`, which are at most [`FRAME_DEPTH_MAX`].
pub(super) fn skip_msgpack(rest: &mut &[u8], levels: usize) -> Result<(), Stopped> {
    match follows(rest)? {
        Follows::Bytes(bytes) => skip_bytes(rest, bytes),
        Follows::Values(values) => skip_values(rest, values, levels),
    }
}

fn skip_bytes(rest: &mut &[u8], bytes: usize) -> Result<(), Stopped> {
    *rest = rest.get(bytes..).ok_or(Stopped::Broken)?;
    Ok(())
}

/// Steps over the values of an array or map that has just been opened.
fn skip_values(rest: &mut &[u8], values: u64, levels: usize) -> Result<(), Stopped> {
    let mut open = [0_u64; FRAME_DEPTH_MAX];
    let open = open.get_mut(..levels).ok_or(Stopped::TooDeep)?;
    *open.first_mut().ok_or(Stopped::TooDeep)? = values;
    let mut depth = 1;
    while depth > 0 {
        if open[depth - 1] == 0 {
            depth -= 1;
            continue;
        }
        open[depth - 1] -= 1;
        match follows(rest)? {
            Follows::Bytes(bytes) => skip_bytes(rest, bytes)?,
            Follows::Values(values) => {
                *open.get_mut(depth).ok_or(Stopped::TooDeep)? = values;
                depth += 1;
            }
        }
    }
    Ok(())
}

/// A length of `N` bytes.
fn length<const N: usize>(rest: &mut &[u8]) -> Result<u64, Stopped> {
    let (bytes, after) = rest.split_first_chunk::<N>().ok_or(Stopped::Broken)?;
    *rest = after;
    Ok(bytes.iter().fold(0, |length, byte| length << 8 | u64::from(*byte)))
}

fn follows(rest: &mut &[u8]) -> Result<Follows, Stopped> {
    let (first, after) = rest.split_first().ok_or(Stopped::Broken)?;
    *rest = after;
    Ok(match Marker::from_u8(*first) {
        Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::False | Marker::True => {
            Follows::Bytes(0)
        }
        Marker::Reserved => return Err(Stopped::Broken),
        Marker::U8 | Marker::I8 => Follows::Bytes(1),
        Marker::U16 | Marker::I16 | Marker::FixExt1 => Follows::Bytes(2),
        Marker::FixExt2 => Follows::Bytes(3),
        Marker::U32 | Marker::I32 | Marker::F32 => Follows::Bytes(4),
        Marker::FixExt4 => Follows::Bytes(5),
        Marker::U64 | Marker::I64 | Marker::F64 => Follows::Bytes(8),
        Marker::FixExt8 => Follows::Bytes(9),
        Marker::FixExt16 => Follows::Bytes(17),
        Marker::FixStr(length) => Follows::Bytes(length.into()),
        Marker::Str8 | Marker::Bin8 => Follows::Bytes(length::<1>(rest)? as usize),
        Marker::Ext8 => Follows::Bytes(length::<1>(rest)? as usize + 1),
        Marker::Str16 | Marker::Bin16 => Follows::Bytes(length::<2>(rest)? as usize),
        Marker::Ext16 => Follows::Bytes(length::<2>(rest)? as usize + 1),
        Marker::Str32 | Marker::Bin32 => Follows::Bytes(length::<4>(rest)? as usize),
        Marker::Ext32 => Follows::Bytes((length::<4>(rest)? as usize).saturating_add(1)),
        Marker::FixArray(length) => Follows::Values(length.into()),
        Marker::Array16 => Follows::Values(length::<2>(rest)?),
        Marker::Array32 => Follows::Values(length::<4>(rest)?),
        Marker::FixMap(length) => Follows::Values(2 * u64::from(length)),
        Marker::Map16 => Follows::Values(2 * length::<2>(rest)?),
        Marker::Map32 => Follows::Values(2 * length::<4>(rest)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn brackets_in_strings_do_not_count_and_quotes_can_be_escaped() {
        assert_eq!(json(b"7"), 0);
        assert_eq!(json(b"[[],{}]"), 2);
        assert_eq!(json(br#"{"a":"[[[[","b":"\"[[","c":"\\"}"#), 1);
        assert_eq!(json(b"]]]][[["), 3);
        assert_eq!(json("[".repeat(1 << 20).as_bytes()), 1 << 20);
    }

    #[test]
    fn a_walk_steps_over_one_value_and_stops_at_the_limit() {
        let nested = |levels: usize| [vec![0x91; levels], vec![0xc0]].concat();
        for levels in [0, 1, FRAME_DEPTH_MAX] {
            let bytes = [nested(levels), vec![7]].concat();
            let mut rest = bytes.as_slice();
            assert_eq!(skip_msgpack(&mut rest, FRAME_DEPTH_MAX), Ok(()));
            assert_eq!(rest, [7]);
        }
        assert_eq!(
            skip_msgpack(&mut nested(FRAME_DEPTH_MAX + 1).as_slice(), FRAME_DEPTH_MAX),
            Err(Stopped::TooDeep)
        );
        // An empty array is a level, too.
        assert_eq!(
            skip_msgpack(&mut [vec![0x91; 32], vec![0x90]].concat().as_slice(), FRAME_DEPTH_MAX),
            Err(Stopped::TooDeep)
        );
    }

    #[test]
    fn a_length_that_is_only_claimed_costs_nothing() {
        for claim in [
            vec![0xdd, 0xff, 0xff, 0xff, 0xff],
            vec![0xdf, 0xff, 0xff, 0xff, 0xff],
            vec![0xc6, 0xff, 0xff, 0xff, 0xff, 0],
            vec![0xdb, 0xff, 0xff, 0xff, 0xff, 0],
            vec![0xc9, 0xff, 0xff, 0xff, 0xff, 0],
            vec![0xc1],
            vec![],
        ] {
            assert_eq!(skip_msgpack(&mut claim.as_slice(), FRAME_DEPTH_MAX), Err(Stopped::Broken));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_a_walk_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = bytes.as_slice();
            let _ = skip_msgpack(&mut rest, FRAME_DEPTH_MAX);
            let _ = json(&bytes);
        }
    }
}
