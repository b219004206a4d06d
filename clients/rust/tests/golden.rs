//! Golden frames: `tests/fixtures/protocol/<frame>.json` and `<frame>.msgpack.hex`, which clients of every language read.
//!
//! After a deliberate change of the protocol: `LANEWAY_BLESS=1 cargo test -p laneway-client --test golden`.

#![allow(clippy::unwrap_used)]

mod examples;
mod mutate;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use bytes::Bytes;
use laneway_client::wire::{BrokerFrame, ClientFrame, FrameError, Subprotocol};
use mutate::{Form, Random, mutate};

const MUTATIONS: usize = 10_000;
const SEED: u64 = 0x1a9e_3a11;

const FOLDER_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/protocol");

/// A frame of either direction.
#[derive(Debug, Clone, PartialEq)]
enum Frame {
    Client(ClientFrame),
    Broker(BrokerFrame),
}

impl Frame {
    fn encode(&self, subprotocol: Subprotocol) -> Bytes {
        match self {
            Frame::Client(frame) => subprotocol.encode_client(frame).into(),
            Frame::Broker(frame) => subprotocol.encode_broker(frame).into(),
        }
    }

    /// Decoded as a frame of the same direction.
    fn decode(&self, subprotocol: Subprotocol, bytes: &Bytes) -> Result<Frame, FrameError> {
        match self {
            Frame::Client(_) => subprotocol.decode_client(bytes).map(Frame::Client),
            Frame::Broker(_) => subprotocol.decode_broker(bytes).map(Frame::Broker),
        }
    }
}

fn examples() -> Vec<(&'static str, Frame)> {
    let client = examples::client_frames().into_iter().map(|(name, frame)| (name, Frame::Client(frame)));
    let broker = examples::broker_frames().into_iter().map(|(name, frame)| (name, Frame::Broker(frame)));
    client.chain(broker).collect()
}

fn file(name: &str, subprotocol: Subprotocol) -> String {
    match subprotocol {
        Subprotocol::Json => format!("{name}.json"),
        Subprotocol::MessagePack => format!("{name}.msgpack.hex"),
    }
}

/// What a golden file holds of a frame: one line.
fn line(subprotocol: Subprotocol, frame: &[u8]) -> String {
    match subprotocol {
        Subprotocol::Json => format!("{}\n", std::str::from_utf8(frame).unwrap()),
        Subprotocol::MessagePack => {
            let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}\n")
        }
    }
}

/// Written anew before the first test reads them, if that is asked for.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    if std::env::var_os("LANEWAY_BLESS").is_some() {
        std::fs::create_dir_all(FOLDER_PATH).unwrap();
        for (name, frame) in examples() {
            for subprotocol in Subprotocol::ALL {
                let text = line(*subprotocol, &frame.encode(*subprotocol));
                std::fs::write(Path::new(FOLDER_PATH).join(file(name, *subprotocol)), text).unwrap();
            }
        }
    }
    PathBuf::from(FOLDER_PATH)
});

fn golden(name: &str, subprotocol: Subprotocol) -> Bytes {
    let path = FOLDER.join(file(name, subprotocol));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = text.trim_end();
    match subprotocol {
        Subprotocol::Json => Bytes::copy_from_slice(text.as_bytes()),
        Subprotocol::MessagePack => {
            let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
        }
    }
}

#[test]
fn every_frame_is_what_its_golden_files_say() {
    for (name, frame) in examples() {
        for subprotocol in Subprotocol::ALL {
            let golden = golden(name, *subprotocol);
            let decoded = frame.decode(*subprotocol, &golden);
            assert_eq!(decoded, Ok(frame.clone()), "{name} as {}", subprotocol.name());
            assert_eq!(
                line(*subprotocol, &frame.encode(*subprotocol)),
                line(*subprotocol, &golden),
                "{name} as {}",
                subprotocol.name()
            );
        }
    }
}

#[test]
fn every_golden_file_belongs_to_a_frame_and_every_type_has_one() {
    let files: BTreeSet<String> = std::fs::read_dir(&*FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".json") || name.ends_with(".hex"))
        .collect();
    let frames = examples();
    let expected: BTreeSet<String> =
        frames.iter().flat_map(|(name, _)| [format!("{name}.json"), format!("{name}.msgpack.hex")]).collect();
    assert_eq!(files, expected);
    let kinds: BTreeSet<&str> = frames
        .iter()
        .map(|(name, frame)| {
            let kind = match frame {
                Frame::Client(frame) => frame.kind(),
                Frame::Broker(frame) => frame.kind(),
            };
            assert!(name.starts_with(kind), "{name} holds a frame of type {kind}");
            kind
        })
        .collect();
    assert_eq!(kinds.len(), 15 + 21 - 1, "one of each type, and heartbeat goes both ways: {kinds:?}");
}

#[test]
fn a_truncated_frame_is_refused_and_harms_nobody() {
    for (name, frame) in examples() {
        for subprotocol in Subprotocol::ALL {
            let whole = golden(name, *subprotocol);
            for length in 0..whole.len() {
                let cut = whole.slice(..length);
                let decoded = frame.decode(*subprotocol, &cut);
                assert!(decoded.is_err(), "{length} bytes of {name} as {}: {decoded:?}", subprotocol.name());
            }
        }
    }
}

#[test]
fn mutated_frames_never_panic_and_a_third_of_them_still_decode() {
    let mut random = Random::new(SEED);
    for (name, frame) in examples().into_iter().filter(|(_, frame)| matches!(frame, Frame::Client(_))) {
        for subprotocol in Subprotocol::ALL {
            let form = match subprotocol {
                Subprotocol::Json => Form::Json,
                Subprotocol::MessagePack => Form::MessagePack,
            };
            let whole = golden(name, *subprotocol);
            let mut decodable = 0;
            for _ in 0..MUTATIONS {
                let mutated = Bytes::from(mutate(form, &whole, &mut random));
                if let Ok(decoded) = frame.decode(*subprotocol, &mutated) {
                    decodable += 1;
                    let again = decoded.encode(*subprotocol);
                    assert_eq!(frame.decode(*subprotocol, &again), Ok(decoded), "{name}: {mutated:?}");
                }
            }
            println!("{name} as {}: {decodable} of {MUTATIONS} decode", subprotocol.name());
            assert!(3 * decodable >= MUTATIONS, "{name} as {}: only {decodable}", subprotocol.name());
        }
    }
}
