//! MessagePack by hand, for the two hot frames: a reader that slices the frame instead of copying it, and writers.
//!
//! Invariant: no allocation follows from a length that the frame merely claims.

use std::collections::BTreeMap;

use bytes::Bytes;
use rmp::decode::{read_array_len, read_bin_len, read_int, read_map_len, read_str_len};
use rmp::encode::{write_array_len, write_bin, write_map_len, write_nil, write_sint, write_str, write_uint};
use uuid::Uuid;

use super::bounds::FRAME_DEPTH_MAX;
use super::depth::{self, Stopped};

/// What should have stood there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected(pub(super) &'static str);

/// Reads values of a frame one after the other.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    frame: &'a Bytes,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(frame: &'a Bytes) -> Self {
        Self { frame, rest: frame }
    }

    pub(super) fn map(&mut self) -> Result<u32, Expected> {
        read_map_len(&mut self.rest).map_err(|_| Expected("a map"))
    }

    pub(super) fn array(&mut self) -> Result<u32, Expected> {
        read_array_len(&mut self.rest).map_err(|_| Expected("an array"))
    }

    pub(super) fn int(&mut self) -> Result<i64, Expected> {
        read_int(&mut self.rest).map_err(|_| Expected("an integer of 64 bits"))
    }

    pub(super) fn u32(&mut self) -> Result<u32, Expected> {
        read_int(&mut self.rest).map_err(|_| Expected("an unsigned integer of 32 bits"))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Expected> {
        read_int(&mut self.rest).map_err(|_| Expected("an unsigned integer of 64 bits"))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Expected> {
        let length = read_str_len(&mut self.rest).map_err(|_| Expected("text (str)"))?;
        let (text, rest) = self.rest.split_at_checked(length as usize).ok_or(Expected("text (str)"))?;
        self.rest = rest;
        std::str::from_utf8(text).map_err(|_| Expected("text in UTF-8"))
    }

    pub(super) fn string(&mut self) -> Result<String, Expected> {
        self.text().map(str::to_owned)
    }

    /// A slice of the frame, not a copy.
    pub(super) fn bytes(&mut self) -> Result<Bytes, Expected> {
        let (from, to) = self.bin()?;
        Ok(self.frame.slice(from..to))
    }

    pub(super) fn uuid(&mut self) -> Result<Uuid, Expected> {
        let (from, to) = self.bin()?;
        Uuid::from_slice(&self.frame[from..to]).map_err(|_| Expected("16 bytes (bin)"))
    }

    /// Where the bytes of a bin begin and end in the frame.
    fn bin(&mut self) -> Result<(usize, usize), Expected> {
        let length = read_bin_len(&mut self.rest).map_err(|_| Expected("bytes (bin)"))? as usize;
        let from = self.frame.len() - self.rest.len();
        self.rest = self.rest.get(length..).ok_or(Expected("bytes (bin)"))?;
        Ok((from, from + length))
    }

    pub(super) fn text_map(&mut self) -> Result<BTreeMap<String, String>, Expected> {
        let mut map = BTreeMap::new();
        for _ in 0..self.map()? {
            map.insert(self.string()?, self.string()?);
        }
        Ok(map)
    }

    /// `nil`, or what `read` takes.
    pub(super) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Expected>,
    ) -> Result<Option<T>, Expected> {
        if let Some((&NIL, rest)) = self.rest.split_first() {
            self.rest = rest;
            return Ok(None);
        }
        read(self).map(Some)
    }

    /// What `read` would take next, which stays where it is.
    pub(super) fn peek<T>(&self, read: impl FnOnce(&mut Self) -> Result<T, Expected>) -> Result<T, Expected> {
        read(&mut Self { frame: self.frame, rest: self.rest })
    }

    /// Steps over one value inside a frame.
    pub(super) fn skip(&mut self) -> Result<(), Stopped> {
        depth::skip_msgpack(&mut self.rest, FRAME_DEPTH_MAX - 1)
    }

    /// The bytes of one value inside a frame.
    pub(super) fn value(&mut self) -> Result<&'a [u8], Stopped> {
        let before = self.rest;
        self.skip()?;
        Ok(&before[..before.len() - self.rest.len()])
    }

    /// Whether there is nothing left to read.
    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }
}

const NIL: u8 = 0xc0;
const NEVER_FAILS: &str = "a vector takes all bytes";

pub(super) fn array(out: &mut Vec<u8>, length: usize) {
    write_array_len(out, length as u32).expect(NEVER_FAILS);
}

pub(super) fn map(out: &mut Vec<u8>, length: usize) {
    write_map_len(out, length as u32).expect(NEVER_FAILS);
}

pub(super) fn int(out: &mut Vec<u8>, value: i64) {
    write_sint(out, value).expect(NEVER_FAILS);
}

pub(super) fn uint(out: &mut Vec<u8>, value: u64) {
    write_uint(out, value).expect(NEVER_FAILS);
}

pub(super) fn text(out: &mut Vec<u8>, value: &str) {
    write_str(out, value).expect(NEVER_FAILS);
}

pub(super) fn bin(out: &mut Vec<u8>, value: &[u8]) {
    write_bin(out, value).expect(NEVER_FAILS);
}

pub(super) fn nil(out: &mut Vec<u8>) {
    write_nil(out).expect(NEVER_FAILS);
}

pub(super) fn text_map(out: &mut Vec<u8>, value: &BTreeMap<String, String>) {
    map(out, value.len());
    for (name, value) in value {
        text(out, name);
        text(out, value);
    }
}

pub(super) fn optional<T>(out: &mut Vec<u8>, value: Option<T>, write: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => write(out, value),
        None => nil(out),
    }
}
