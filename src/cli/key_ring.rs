//! Where the key ring comes from: a file, or the variable `LANEWAY_KEY_RING`; never a flag, which every user of the machine could read.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use zeroize::Zeroizing;

use super::Failure;
use crate::encryption::KeyRing;
use crate::encryption::ring::VARIABLE;
use crate::limits::RING_FILE_BYTES_MAX;

/// What group and others may do with a file.
const OTHERS: u32 = 0o077;

#[derive(Debug, Args)]
pub(super) struct KeyRingSource {
    /// A file with the keys of encrypted topics, `name:key` per line, the one that seals first; else the variable LANEWAY_KEY_RING
    #[arg(long, env = "LANEWAY_KEY_RING_FILE", value_name = "FILE")]
    key_ring_file: Option<PathBuf>,
}

impl KeyRingSource {
    /// The ring that is given, if one is.
    pub(super) fn read(&self) -> Result<Option<KeyRing>, Failure> {
        let inline = match std::env::var(VARIABLE) {
            Ok(text) => Some(Zeroizing::new(text)),
            Err(std::env::VarError::NotPresent) => None,
            Err(std::env::VarError::NotUnicode(_)) => return Err(format!("{VARIABLE} is not text").into()),
        };
        let (text, from) = match (&self.key_ring_file, inline) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => {
                let sentence = format!("the key ring is given twice: keep --key-ring-file or {VARIABLE}");
                return Err(sentence.into());
            }
            (None, Some(text)) => (text, VARIABLE.to_owned()),
            (Some(path), None) => (read_file(path)?, path.display().to_string()),
        };
        KeyRing::parse(&text).map(Some).map_err(|error| format!("{from}: {error}").into())
    }
}

fn read_file(path: &Path) -> Result<Zeroizing<String>, Failure> {
    let shown = path.display();
    let unreadable = |error: std::io::Error| format!("cannot read the key ring {shown}: {error}");
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode();
    if mode & OTHERS != 0 {
        tracing::warn!(file = %shown, mode = format!("{:o}", mode & 0o777), "others can read the key ring: chmod 600 it");
    }
    let mut text = Zeroizing::new(String::new());
    let bytes = file.take(RING_FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if bytes as u64 > RING_FILE_BYTES_MAX {
        return Err(format!("the key ring {shown} has more than {RING_FILE_BYTES_MAX} bytes").into());
    }
    Ok(text)
}
