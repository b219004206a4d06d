//! Mutations of good frames: half of them gentle, so that many still decode and reach what lies behind the decoder.
//!
//! Gentle: another digit, another character of a text, another byte of a payload, white space, a longer header than
//! needed. Rough: bits and bytes flipped, inserted, deleted, repeated, cut off. The same seed gives the same mutations.

#![allow(dead_code, reason = "each test that includes it uses its own part")]

/// How the frame is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    MessagePack,
}

/// Numbers from a seed (splitmix64).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { Some(&from[self.below(from.len())]) }
    }
}

/// One mutation of a good frame.
pub fn mutate(form: Form, frame: &[u8], random: &mut Random) -> Vec<u8> {
    let edits = 1 + random.below(3);
    match (random.below(10), form) {
        (0..6, Form::Json) => gentle_json(frame, edits, random),
        (0..6, Form::MessagePack) => gentle_msgpack(frame, edits, random),
        (_, Form::Json | Form::MessagePack) => rough(frame, edits, random),
    }
}

fn rough(frame: &[u8], edits: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = frame.to_vec();
    for _ in 0..edits {
        let at = random.below(bytes.len().max(1));
        let end = bytes.len().min(at + 1 + random.below(8));
        match random.below(6) {
            _ if bytes.is_empty() => bytes.push(random.byte()),
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.byte(),
            2 => bytes.insert(at, random.byte()),
            3 => drop(bytes.drain(at..end)),
            4 => {
                let again = bytes[at..end].to_vec();
                bytes.splice(at..at, again);
            }
            _ => bytes.truncate(at),
        }
    }
    bytes
}

/// Members whose values are words of the protocol: another letter is another frame, or none.
const WORDS: &[&[u8]] = &[b"type", b"encoding", b"key_encoding", b"on_failure", b"start", b"capacity"];

/// Where something gentle can be done to a JSON text.
#[derive(Default)]
struct Places {
    /// Digits of numbers.
    digits: Vec<usize>,
    /// Characters of texts that are values, other than words.
    characters: Vec<usize>,
    /// Before and after tokens.
    gaps: Vec<usize>,
}

fn places(text: &[u8]) -> Places {
    let mut places = Places::default();
    let (mut at, mut name) = (0, &text[0..0]);
    while at < text.len() {
        match text[at] {
            b'"' => {
                let mut end = at + 1;
                while text[end] != b'"' {
                    end += if text[end] == b'\\' { 2 } else { 1 };
                }
                let inside = &text[at + 1..end];
                match text.get(end + 1) {
                    Some(b':') => name = inside,
                    _ if WORDS.contains(&name) || inside.contains(&b'\\') => {}
                    _ => places.characters.extend(at + 1..end),
                }
                at = end;
            }
            b'0'..=b'9' => places.digits.push(at),
            b'{' | b'}' | b'[' | b']' | b':' | b',' => places.gaps.push(at),
            _ => {}
        }
        at += 1;
    }
    places
}

fn gentle_json(frame: &[u8], edits: usize, random: &mut Random) -> Vec<u8> {
    let places = places(frame);
    let mut text = frame.to_vec();
    for _ in 0..edits {
        if let Some(at) = random.pick(&places.digits).filter(|_| edits > 1) {
            text[*at] = b'1' + random.below(9) as u8;
        }
        if let Some(at) = random.pick(&places.characters).filter(|at| text[**at].is_ascii()) {
            text[*at] = match text[*at] {
                b'0'..=b'9' => b'0' + random.below(10) as u8,
                b'a'..=b'f' => b'a' + random.below(6) as u8,
                b'A'..=b'Z' => b'A' + random.below(26) as u8,
                b'g'..=b'z' => b'g' + random.below(20) as u8,
                other => other,
            };
        }
    }
    if let Some(at) = random.pick(&places.gaps) {
        let space = [b" ", b"\t", b"\n", b"\r"][random.below(4)];
        text.splice(*at..*at, space.iter().copied());
    }
    text
}

/// One value of a MessagePack frame.
struct Token {
    /// Its first byte.
    at: usize,
    /// What follows its header: the bytes of a text or bin, or of a wide number.
    body: std::ops::Range<usize>,
    /// A name in a map, or a word.
    is_fixed: bool,
}

fn tokens(frame: &[u8]) -> Vec<Token> {
    let wide = |at: usize, bytes: usize| {
        frame[at + 1..=at + bytes].iter().fold(0, |length, byte| length << 8 | usize::from(*byte))
    };
    let (mut tokens, mut at) = (Vec::<Token>::new(), 0);
    let mut open: Vec<(usize, bool)> = Vec::new();
    while at < frame.len() {
        while open.last().is_some_and(|(left, _)| *left == 0) {
            open.pop();
        }
        let is_name = open.last().is_some_and(|(left, is_map)| *is_map && left % 2 == 0);
        if let Some((left, _)) = open.last_mut() {
            *left -= 1;
        }
        let (header, length) = match frame[at] {
            0xa0..=0xbf => (1, usize::from(frame[at] & 0x1f)),
            0xc4 | 0xd9 => (2, wide(at, 1)),
            0xc5 | 0xda => (3, wide(at, 2)),
            0xc6 | 0xdb => (5, wide(at, 4)),
            0xcc | 0xd0 => (1, 1),
            0xcd | 0xd1 => (1, 2),
            0xce | 0xd2 | 0xca => (1, 4),
            0xcf | 0xd3 | 0xcb => (1, 8),
            0xdc | 0xde => (3, 0),
            0xdd | 0xdf => (5, 0),
            _ => (1, 0),
        };
        match frame[at] {
            0x80..=0x8f => open.push((2 * usize::from(frame[at] & 0x0f), true)),
            0x90..=0x9f => open.push((usize::from(frame[at] & 0x0f), false)),
            0xdc => open.push((wide(at, 2), false)),
            0xdd => open.push((wide(at, 4), false)),
            0xde => open.push((2 * wide(at, 2), true)),
            0xdf => open.push((2 * wide(at, 4), true)),
            _ => {}
        }
        let is_word =
            tokens.last().is_some_and(|name| name.is_fixed && WORDS.contains(&&frame[name.body.clone()]));
        tokens.push(Token { at, body: at + header..at + header + length, is_fixed: is_name || is_word });
        at += header + length;
    }
    tokens
}

fn gentle_msgpack(frame: &[u8], edits: usize, random: &mut Random) -> Vec<u8> {
    let tokens = tokens(frame);
    let values: Vec<&Token> = tokens.iter().filter(|token| !token.is_fixed).collect();
    let mut bytes = frame.to_vec();
    for _ in 0..edits {
        let Some(Token { at, body, .. }) = random.pick(&values) else { continue };
        match bytes[*at] {
            0x02..=0x7f => bytes[*at] = random.byte() & 0x7f,
            0xc4..=0xc6 if !body.is_empty() => bytes[body.start + random.below(body.len())] = random.byte(),
            0xa0..=0xbf | 0xd9..=0xdb if !body.is_empty() => {
                let place = body.start + random.below(body.len());
                if bytes[place].is_ascii() {
                    bytes[place] = b' ' + random.below(95) as u8;
                }
            }
            0xcc..=0xd3 => bytes[body.end - 1] = random.byte(),
            _ => {}
        }
    }
    if let Some(Token { at, .. }) = random.pick(&tokens) {
        let longer = match bytes[*at] {
            small @ 0x00..=0x7f => vec![0xcf, 0, 0, 0, 0, 0, 0, 0, small],
            map @ 0x80..=0x8f => vec![0xde, 0, map & 0x0f],
            array @ 0x90..=0x9f => vec![0xdd, 0, 0, 0, array & 0x0f],
            text @ 0xa0..=0xbf => vec![0xda, 0, text & 0x1f],
            other => vec![other],
        };
        bytes.splice(*at..=*at, longer);
    }
    bytes
}
