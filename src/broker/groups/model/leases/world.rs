//! The state: the rows of the database, and what brokers believe.
//!
//! Epochs and lives need no numbers: an epoch is that of the row or an older one, and nothing in the tables names a life that was
//! buried. So there is no bound on either.

/// Brokers, sessions, lanes.
pub const BROKERS: usize = 2;
pub const SESSIONS: usize = 3;
pub const LANES: usize = 2;
/// Commits of lives that have ended, in the slots behind those of the brokers: at most one per lane.
pub const SLOTS: usize = BROKERS + 1;
pub const ORPHAN: usize = BROKERS;
/// How many messages of a lane may be acknowledged.
pub const COMMITTED_MAX: u8 = 1;

/// The row of a broker's present life, and its trust. That trust ends before the row expires is what `trust` shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lease {
    /// `expires_at` lies ahead, and the broker trusts that nobody buries it.
    Trusted,
    /// Not trusted any more; may be buried, and may be renewed.
    Expired,
    /// `dead_at` is set.
    Buried,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    Up,
    /// SIGSTOP: does nothing, knows nothing.
    Frozen,
    Down,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broker {
    pub process: Process,
    pub lease: Lease,
    /// What a burial that reads first has read: only with that bug.
    pub to_bury: bool,
}

/// The row of a session: which broker has its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// Not a member.
    None,
    At(usize),
    /// Left behind by a burial: only with that bug.
    Dangling,
}

/// The row of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    pub holder: Option<usize>,
    pub wanted: Option<usize>,
    pub avoided: Option<usize>,
    pub committed: u8,
}

/// A lane as somebody knows it who was granted it: a broker, or a commit that is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    pub session: usize,
    /// Whether its epoch is that of the row.
    pub same_epoch: bool,
    /// Whether the lane was taken from it since, however that was written down: what the checks go by.
    pub ended: bool,
    /// Acknowledged by the client, and on its way or committed.
    pub done: u8,
    /// The fence has been looked at, and the effect has not happened: only with that bug.
    pub passed: bool,
}

/// Everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct World {
    pub brokers: [Broker; BROKERS],
    pub sessions: [Home; SESSIONS],
    pub rows: [Row; LANES],
    /// What each broker believes to hold, by lane.
    pub held: [[Option<Grant>; BROKERS]; LANES],
    /// Commits on their way, by lane: at most one per broker. Their connection may be slow, their sender frozen or dead.
    pub flushes: [[Option<Grant>; SLOTS]; LANES],
}

/// Seeded on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The fence is a `WHERE EXISTS`: it reads a snapshot, and the effect follows later.
    FenceReadsSnapshot,
    /// A burial reads who has expired, and writes later without looking again.
    BurialReadsFirst,
    /// A lane is acquired without a new epoch.
    AcquireKeepsEpoch,
    /// A burial leaves the sessions of the dead in the tables.
    BurialForgetsSessions,
}

impl World {
    /// Both brokers live, the first has two sessions, the second one, and no lane has a holder.
    pub fn new() -> Self {
        let broker = Broker { process: Process::Up, lease: Lease::Trusted, to_bury: false };
        Self {
            brokers: [broker; BROKERS],
            sessions: [Home::At(0), Home::At(0), Home::At(1)],
            rows: [Row { holder: None, wanted: None, avoided: None, committed: 0 }; LANES],
            held: [[None; BROKERS]; LANES],
            flushes: [[None; SLOTS]; LANES],
        }
    }

    /// Whether a broker's row is there and not buried.
    pub fn lives(&self, broker: usize) -> bool {
        self.brokers[broker].lease != Lease::Buried
    }

    /// Whether a broker runs and may act on the tables.
    pub fn acts(&self, broker: usize) -> bool {
        self.brokers[broker].process == Process::Up && self.lives(broker)
    }

    /// Members whose broker lives, as `members_list` has them.
    pub fn is_member(&self, session: usize) -> bool {
        matches!(self.sessions[session], Home::At(_))
    }

    /// The fence: the row, by epoch and session.
    pub fn passes(&self, lane: usize, grant: &Grant) -> bool {
        grant.same_epoch && self.rows[lane].holder == Some(grant.session)
    }

    /// Everything that knows a lane.
    fn grants(&mut self, lane: usize) -> impl Iterator<Item = &mut Grant> {
        self.held[lane].iter_mut().chain(&mut self.flushes[lane]).flatten()
    }

    /// The row has no holder, or another one.
    pub fn end_grants(&mut self, lane: usize) {
        self.grants(lane).for_each(|grant| grant.ended = true);
    }

    /// The row has a new epoch.
    pub fn raise_epoch(&mut self, lane: usize) {
        for grant in self.grants(lane) {
            grant.same_epoch = false;
            grant.ended = true;
        }
    }
}
