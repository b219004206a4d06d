//! The vault: the key ring of this broker, the data keys that it seals with, and those that it has opened something with.
//!
//! Everything that is stored passes here when it is sealed or opened. Publishes are sealed on their way in, under a data key per
//! partition that is made before it is needed and changes with the segment. Copies (dead letters, replays, whatever is kept aside) are
//! sealed anew, under a data key that is made by the transaction that writes them: [`Connection::seal_copies`].
//! Invariant: what cannot be sealed is not written, what cannot be opened is not given out.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use dashmap::DashMap;
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use uuid::Uuid;

use super::connection::Connection;
use super::error::{Error, KeyMissing};
use super::messages::Message;
use super::sealing_counts::SealingCounts;
use super::{Store, data_keys};
use crate::encryption::{Bound, DataKey, KeyRing, Place, Sealed, WritingKey};
use crate::ids::{BrokerId, DataKeyId, Offset, PartitionId};
use crate::limits::DATA_KEYS_REMEMBERED_MAX;

/// See the module. Shared by all clones of a store.
#[derive(Debug, Default)]
pub struct Vault {
    ring: KeyRing,
    /// What each partition is sealed with.
    writing: DashMap<PartitionId, Arc<Slot>>,
    /// What something was opened with. Ids are never given twice, so that what is remembered stays true.
    opened: DashMap<DataKeyId, Arc<DataKey>>,
    /// Keys that nothing more is sealed with, until nobody writes under them either.
    done: Mutex<Vec<Arc<WritingKey>>>,
    counts: SealingCounts,
}

/// A data key, or which ring key it is derived from and we lack.
type Found = Result<Arc<DataKey>, KeyMissing>;

/// The data key of one partition; one at a time makes the next.
#[derive(Debug, Default)]
struct Slot {
    current: Mutex<Option<Arc<WritingKey>>>,
    making: tokio::sync::Mutex<()>,
}

/// A message that does not open, by its place among those that were read; the ones before it are open.
#[derive(Debug)]
pub struct Unopened {
    pub place: usize,
    pub error: Error,
}

impl From<Unopened> for Error {
    fn from(unopened: Unopened) -> Self {
        unopened.error
    }
}

impl Slot {
    fn current(&self, broker_id: BrokerId, messages: usize) -> Option<Arc<WritingKey>> {
        let current = self.current.lock();
        let usable = |key: &&Arc<WritingKey>| key.broker_id == Some(broker_id) && key.has_room(messages);
        current.as_ref().filter(usable).cloned()
    }
}

impl Vault {
    pub fn new(ring: KeyRing) -> Self {
        Self { ring, ..Self::default() }
    }

    pub fn ring(&self) -> &KeyRing {
        &self.ring
    }

    pub(super) fn register_metrics(&self, registry: &mut Registry) {
        self.counts.register(registry);
    }

    /// A data key was closed under this broker: others are made for what comes next.
    pub fn distrust(&self) {
        tracing::warn!(
            "data keys of this broker were closed, because it was taken for dead: it makes new ones"
        );
        for slot in self.writing.iter() {
            let key = slot.current.lock().take();
            self.done.lock().extend(key);
        }
    }

    /// Keys under which nobody writes any more.
    pub(super) fn take_done(&self) -> Vec<Arc<WritingKey>> {
        let mut done = self.done.lock();
        let (idle, busy) = done.drain(..).partition(|key| Arc::strong_count(key) == 1);
        *done = busy;
        idle
    }

    pub(super) fn put_back(&self, keys: Vec<Arc<WritingKey>>) {
        self.done.lock().extend(keys);
    }

    fn slot(&self, partition_id: PartitionId) -> Arc<Slot> {
        if self.writing.len() >= DATA_KEYS_REMEMBERED_MAX && !self.writing.contains_key(&partition_id) {
            for slot in self.writing.iter() {
                let key = slot.current.lock().take();
                self.done.lock().extend(key);
            }
            self.writing.clear();
        }
        self.writing.entry(partition_id).or_default().clone()
    }

    fn remember(&self, key: Arc<DataKey>) {
        if self.opened.len() >= DATA_KEYS_REMEMBERED_MAX {
            self.opened.clear();
        }
        self.opened.insert(key.id, key);
    }

    /// Seals one payload for where it is stored.
    pub fn seal(&self, key: &Arc<WritingKey>, sealing: Sealing<'_>) -> Result<Sealed, Error> {
        let home = key.data_key.home;
        let Sealing { trace_id, key: message_key, payload } = sealing;
        let (partition_id, place) = (home.partition_id, home.place);
        let bound = Bound { partition_id, place, trace_id, key: message_key };
        match key.sealed(&bound, payload) {
            Ok(sealed) => {
                self.counts.sealed.inc();
                Ok(sealed)
            }
            Err(crate::encryption::Exhausted) => {
                self.counts.failed("exhausted");
                Err(Error::Unavailable { reason: "a data key has sealed as much as it may".into() })
            }
        }
    }

    fn open(
        &self,
        keys: &HashMap<DataKeyId, Found>,
        (partition_id, place): (PartitionId, Place),
        message: &mut Message,
    ) -> Result<(), Error> {
        let Some(id) = message.data_key_id else { return Ok(()) };
        let not_authentic = || Error::NotAuthentic { offset: message.offset.0, data_key_id: id.0 };
        let key = keys.get(&id).ok_or_else(not_authentic)?; // its row is gone, or is none of ours
        let key = key.as_ref().map_err(|missing| Error::KeyMissing(missing.clone()))?;
        let bound = Bound { partition_id, place, trace_id: message.trace_id, key: message.key.as_deref() };
        let payload = key.open(&bound, &message.payload).map_err(|_| not_authentic())?;
        message.payload = payload.into();
        self.counts.opened.inc();
        Ok(())
    }

    /// The ring key that seals, or why there is none.
    fn active(&self) -> Result<&crate::encryption::RingKey, Error> {
        self.ring.active().ok_or_else(|| {
            self.counts.failed("key_missing");
            Error::KeyMissing(KeyMissing::Ring)
        })
    }
}

/// What is sealed of a message.
#[derive(Debug, Clone, Copy)]
pub struct Sealing<'a> {
    pub trace_id: crate::ids::TraceId,
    pub key: Option<&'a [u8]>,
    pub payload: &'a [u8],
}

impl<'a> From<&'a Message> for Sealing<'a> {
    fn from(message: &'a Message) -> Self {
        Self { trace_id: message.trace_id, key: message.key.as_deref(), payload: &message.payload }
    }
}

impl Store {
    /// The data key that messages of a partition are sealed with now; one is made if need be. `None`: the partition is gone.
    pub async fn writing_key(
        &self,
        partition_id: PartitionId,
        broker_id: BrokerId,
        messages: usize,
    ) -> Result<Option<Arc<WritingKey>>, Error> {
        let active = self.vault.active()?;
        let slot = self.vault.slot(partition_id);
        if let Some(key) = slot.current(broker_id, messages) {
            return Ok(Some(key));
        }
        let _turn = slot.making.lock().await;
        if let Some(key) = slot.current(broker_id, messages) {
            return Ok(Some(key));
        }
        let made = self.data_keys_make(active, partition_id, broker_id).await?;
        let Some((data_key, segment_end)) = made else { return Ok(None) };
        self.vault.counts.data_keys.inc();
        tracing::info!(data_key = %data_key.id, partition = %partition_id, ring_key = active.name(), "data key made");
        let data_key = Arc::new(data_key);
        self.vault.remember(data_key.clone());
        let key = Arc::new(WritingKey::new(data_key, Some(broker_id), segment_end));
        let last = slot.current.lock().replace(key.clone());
        self.vault.done.lock().extend(last);
        Ok(Some(key))
    }

    /// Opens what is sealed of some messages, with the partitions that they were found in, up to the first that does not open.
    pub(super) async fn open_all(
        &self,
        connection: &Connection,
        place: Place,
        mut found: Vec<(PartitionId, &mut Message)>,
    ) -> Result<(), Unopened> {
        let needed: Vec<DataKeyId> = found.iter().filter_map(|(_, message)| message.data_key_id).collect();
        if needed.is_empty() {
            return Ok(());
        }
        let keys = self.find_keys(connection, &needed).await.map_err(|error| Unopened { place: 0, error })?;
        for (at, (partition_id, message)) in found.iter_mut().enumerate() {
            if let Err(error) = self.vault.open(&keys, (*partition_id, place), message) {
                self.vault.counts.failed(error.kind());
                return Err(Unopened { place: at, error });
            }
        }
        Ok(())
    }

    /// Opens what is sealed of some messages, each for itself: one that does not open hides no other. It is left without its payload;
    /// returns why, in the order of the messages.
    pub(super) async fn open_each(
        &self,
        connection: &Connection,
        place: Place,
        found: Vec<(PartitionId, &mut Message)>,
    ) -> Result<Vec<Option<Error>>, Error> {
        let needed: Vec<DataKeyId> = found.iter().filter_map(|(_, message)| message.data_key_id).collect();
        if needed.is_empty() {
            return Ok(vec![None; found.len()]);
        }
        let keys = self.find_keys(connection, &needed).await?;
        let open = |(partition_id, message): (PartitionId, &mut Message)| {
            let error = self.vault.open(&keys, (partition_id, place), message).err()?;
            self.vault.counts.failed(error.kind());
            message.payload = Bytes::new();
            Some(error)
        };
        Ok(found.into_iter().map(open).collect())
    }

    /// Data keys, remembered or read; those that are not there are left out.
    async fn find_keys(
        &self,
        connection: &Connection,
        needed: &[DataKeyId],
    ) -> Result<HashMap<DataKeyId, Found>, Error> {
        let mut keys: HashMap<DataKeyId, Found> = HashMap::new();
        let mut unknown: Vec<Option<Uuid>> = Vec::new();
        for id in needed {
            match self.vault.opened.get(id).map(|key| key.clone()) {
                Some(key) => drop(keys.insert(*id, Ok(key))),
                None => unknown.push(Some(id.0)),
            }
        }
        let unknown = data_keys::distinct(&unknown);
        if unknown.is_empty() {
            return Ok(keys);
        }
        for row in connection.data_keys_find(&unknown).await? {
            let found = match self.vault.ring.find(row.fingerprint) {
                Some(ring_key) => {
                    let key = Arc::new(DataKey::derive(ring_key, row.id, row.home, &row.salt));
                    self.vault.remember(key.clone());
                    Ok(key)
                }
                None => Err(KeyMissing::Key { name: row.ring_key, fingerprint: row.fingerprint }),
            };
            keys.insert(row.id, found);
        }
        Ok(keys)
    }
}

impl Connection {
    /// Seals copies of messages for where they are kept aside, in the transaction that writes them. Only what was sealed before is
    /// sealed: `None` in the place of what was not.
    pub(super) async fn seal_copies(
        &self,
        vault: &Vault,
        partition_id: PartitionId,
        messages: &[&Message],
    ) -> Result<Vec<Option<Sealed>>, Error> {
        let secret: Vec<&Message> =
            messages.iter().copied().filter(|message| message.data_key_id.is_some()).collect();
        if secret.is_empty() {
            return Ok(vec![None; messages.len()]);
        }
        let mut sealed = self.seal_anew(vault, (partition_id, Place::Copy), &secret).await?.into_iter();
        let copy = |message: &&Message| message.data_key_id.and_then(|_| sealed.next());
        Ok(messages.iter().map(copy).collect())
    }

    /// Seals messages under a data key that is made by this transaction, and seals nothing else.
    pub(super) async fn seal_anew(
        &self,
        vault: &Vault,
        (partition_id, place): (PartitionId, Place),
        messages: &[&Message],
    ) -> Result<Vec<Sealed>, Error> {
        let made = self.data_keys_insert(vault.active()?, (partition_id, place), None).await?;
        let gone = || Error::Unavailable { reason: "the partition is gone".into() };
        let (data_key, _) = made.ok_or_else(gone)?;
        vault.counts.data_keys.inc();
        let key = Arc::new(WritingKey::new(Arc::new(data_key), None, Offset::ZERO));
        messages.iter().map(|message| vault.seal(&key, Sealing::from(*message))).collect()
    }
}

/// The bytes that are stored of a copy.
pub(super) fn stored<'a>(message: &'a Message, copy: &'a Option<Sealed>) -> &'a [u8] {
    copy.as_ref().map_or(&message.payload, |copy| &copy.envelope)
}
