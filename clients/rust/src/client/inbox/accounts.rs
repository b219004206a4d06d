//! The credit of a subscription: what its messages have cost, and what of it is due to be given back. Pure.
//!
//! Invariant: what was charged on an earlier connection is never given back; its credit went with it.

use std::collections::HashMap;

use crate::client::check::headers_bytes;
use crate::wire::{CreditGrant, Record};

/// Credit is given back when this part of it has come together, so that it does not cost a frame per message.
pub(super) const CREDIT_PARTS: u32 = 4;

/// What a message has cost, and whom to give it back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) struct Charge {
    number: u32,
    generation: u64,
    bytes: u64,
}

/// Whether credit is due to be given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    NotYet,
}

#[derive(Debug, Clone, Copy)]
struct Account {
    granted: CreditGrant,
    messages: u32,
    bytes: u64,
}

/// An account per subscription number.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    open: HashMap<u32, Account>,
    /// Counts connections.
    generation: u64,
}

impl Accounts {
    /// A subscription number with the credit it began with.
    pub fn open(&mut self, number: u32, granted: CreditGrant) {
        self.open.insert(number, Account { granted, messages: 0, bytes: 0 });
    }

    /// A new connection took the session up: credit is as at the start.
    pub fn reopen(&mut self) {
        self.generation += 1;
        for account in self.open.values_mut() {
            (account.messages, account.bytes) = (0, 0);
        }
    }

    /// Nothing of what was charged counts any more.
    pub fn close(&mut self) {
        self.generation += 1;
        self.open.clear();
    }

    /// What a message costs that came for a subscription number.
    pub fn charge(&self, number: u32, record: &Record) -> Charge {
        Charge { number, generation: self.generation, bytes: cost(record) }
    }

    /// A message has left the client's hands.
    pub fn give_back(&mut self, charge: Charge) -> Due {
        let open = self.open.get_mut(&charge.number).filter(|_| charge.generation == self.generation);
        let Some(account) = open else { return Due::NotYet };
        account.messages = account.messages.saturating_add(1);
        account.bytes = account.bytes.saturating_add(charge.bytes);
        if account.is_due() { Due::Now } else { Due::NotYet }
    }

    /// Credit that is due: the number, messages and bytes.
    pub fn collect(&mut self) -> Vec<(u32, CreditGrant)> {
        let due = self.open.iter_mut().filter(|(_, account)| account.is_due());
        due.map(|(number, account)| {
            let grant = CreditGrant { messages: account.messages, bytes: account.bytes };
            (account.messages, account.bytes) = (0, 0);
            (*number, grant)
        })
        .collect()
    }
}

impl Account {
    fn is_due(&self) -> bool {
        self.messages >= (self.granted.messages / CREDIT_PARTS).max(1)
            || self.bytes >= (self.granted.bytes / u64::from(CREDIT_PARTS)).max(1)
    }
}

/// What a message costs: payload, key, and headers as they are stored.
fn cost(record: &Record) -> u64 {
    let key = record.key.as_ref().map_or(0, bytes::Bytes::len);
    (record.payload.len() + key + record.headers.as_ref().map_or(0, headers_bytes)) as u64
}
