//! Reading what is to be published, in a thread of its own: a read of a terminal or a pipe can be waited for, not ended.
//!
//! Memory: some parts of lines are under way, never the input. A line ends with LF or CRLF, and the last one with the
//! input. An empty line is an empty message; nothing is left out.

use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use bytes::Bytes;
use tokio::sync::mpsc;

/// Bytes of lines that are handed over together; a single line may have more.
const PART_BYTES: usize = 64 << 10;
/// Parts that wait to be published.
const PARTS_MAX: usize = 4;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// One message to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    /// From 1.
    pub number: u64,
    pub payload: Bytes,
    /// Bytes of the input, the end of the line counted.
    pub bytes: u64,
}

/// Why reading stopped early.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error(
        "{} has more than {most} bytes, the most that the topic takes (payload_too_large)",
        place(*line)
    )]
    TooLarge { line: u64, most: usize },
    #[error("{} cannot be read: {error}", place(*line))]
    Unreadable { line: u64, error: io::Error },
}

/// What people call it; 0 is all of the input.
pub(super) fn place(line: u64) -> String {
    if line == 0 { "the input".to_owned() } else { format!("line {line}") }
}

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    Lines,
    Whole,
}

type Part = Result<Vec<Line>, InputError>;

/// The input, as it comes.
#[derive(Debug)]
pub(super) struct Input {
    parts: mpsc::Receiver<Part>,
}

impl Input {
    /// Starts to read. `most`: bytes of the largest message.
    pub fn start(source: Box<dyn Read + Send>, cut: Cut, most: usize) -> Self {
        let (to, parts) = mpsc::channel(PARTS_MAX);
        std::thread::spawn(move || {
            let source = BufReader::with_capacity(READ_BYTES, source);
            match cut {
                Cut::Lines => read_lines(source, most, &to),
                Cut::Whole => drop(to.blocking_send(read_whole(source, most))),
            }
        });
        Self { parts }
    }

    /// The next lines. Cancel safety: nothing is lost if it is dropped.
    pub async fn next(&mut self) -> Option<Part> {
        self.parts.recv().await
    }

    /// What was read already. Nothing more is read from then on.
    pub fn rest(&mut self) -> Option<Part> {
        self.parts.close();
        self.parts.try_recv().ok()
    }
}

/// The file, or standard input for `-`. The size, if it has one that is known.
pub(super) fn open(path: &Path) -> io::Result<(Box<dyn Read + Send>, Option<u64>)> {
    if path == Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let file = std::fs::File::open(path)?;
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok((Box::new(file), about.is_file().then_some(about.len())))
}

/// Hands over what is there before it waits for more, so that a line that somebody types is published at once.
fn read_lines<R: Read>(mut source: BufReader<R>, most: usize, to: &mpsc::Sender<Part>) {
    let (mut part, mut bytes) = (Vec::new(), 0);
    for number in 1.. {
        let error = match next_line(&mut source, number, most) {
            Ok(Some(line)) => {
                bytes += line.payload.len();
                part.push(line);
                if bytes < PART_BYTES && source.buffer().contains(&b'\n') {
                    continue;
                }
                bytes = 0;
                if to.blocking_send(Ok(std::mem::take(&mut part))).is_err() {
                    return; // nobody wants more
                }
                continue;
            }
            Ok(None) => None,
            Err(error) => Some(error),
        };
        for last in (!part.is_empty()).then_some(Ok(part)).into_iter().chain(error.map(Err)) {
            if to.blocking_send(last).is_err() {
                return;
            }
        }
        return;
    }
}

fn next_line(source: &mut impl BufRead, number: u64, most: usize) -> Result<Option<Line>, InputError> {
    let mut line = Vec::new();
    let bound = (most as u64).saturating_add(2); // room for CRLF
    let read = source.take(bound).read_until(b'\n', &mut line);
    let bytes = read.map_err(|error| InputError::Unreadable { line: number, error })? as u64;
    if bytes == 0 {
        return Ok(None);
    }
    if line.pop_if(|byte| *byte == b'\n').is_some() {
        line.pop_if(|byte| *byte == b'\r');
    }
    match line.len() > most {
        true => Err(InputError::TooLarge { line: number, most }),
        false => Ok(Some(Line { number, payload: line.into(), bytes })),
    }
}

fn read_whole(source: impl Read, most: usize) -> Part {
    let mut payload = Vec::new();
    let bound = (most as u64).saturating_add(1);
    let read = source.take(bound).read_to_end(&mut payload);
    let bytes = read.map_err(|error| InputError::Unreadable { line: 0, error })? as u64;
    match payload.len() > most {
        true => Err(InputError::TooLarge { line: 0, most }),
        false => Ok(vec![Line { number: 0, payload: payload.into(), bytes }]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8], most: usize) -> (Vec<Vec<u8>>, Option<String>) {
        let source = BufReader::with_capacity(3, text); // smaller than any line: parts are put together
        let (to, mut parts) = mpsc::channel(1_000);
        read_lines(source, most, &to);
        let (mut read, mut error) = (Vec::new(), None);
        while let Ok(part) = parts.try_recv() {
            match part {
                Ok(lines) => read.extend(lines.into_iter().map(|line| line.payload.to_vec())),
                Err(wrong) => error = Some(wrong.to_string()),
            }
        }
        (read, error)
    }

    #[test]
    fn a_line_ends_with_lf_or_crlf_or_the_input_and_keeps_every_other_byte() {
        let (read, error) = lines(b"one\ntwo\r\n\n\xff\xfe\r\r\n last", 100);
        let expected: [&[u8]; 5] = [b"one", b"two", b"", b"\xff\xfe\r", b" last"];
        assert_eq!((read, error), (expected.map(<[u8]>::to_vec).to_vec(), None));
        assert_eq!(lines(b"", 100), (vec![], None));
        assert_eq!(lines(b"\n", 100), (vec![vec![]], None));
    }

    #[test]
    fn a_line_that_is_too_large_is_named_and_those_before_it_are_kept() {
        let sentence = "line 3 has more than 4 bytes, the most that the topic takes (payload_too_large)";
        let kept = vec![b"four".to_vec(), b"4444".to_vec()];
        assert_eq!(lines(b"four\r\n4444\n55555\nmore\n", 4), (kept, Some(sentence.to_owned())));
        assert_eq!(lines(b"four", 4).1, None);
    }

    #[test]
    fn the_whole_input_is_one_message_with_its_newlines() {
        let whole = |text: &[u8]| read_whole(text, 4).map(|lines| lines[0].payload.to_vec());
        assert_eq!(whole(b"a\nb\n").unwrap(), b"a\nb\n");
        assert_eq!(whole(b"").unwrap(), b"");
        assert!(whole(b"12345").unwrap_err().to_string().starts_with("the input has more than 4 bytes"));
    }
}
