//! What a broker says about everything at one moment. One sample costs a bounded number of requests; what lies beyond the
//! bounds is left out, and the sample says so.

use std::collections::BTreeMap;
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use laneway_client::admin::AdminError;
use laneway_client::group_api::{
    BrokerDescription, GroupDescription, GroupQuery, LaneDescription, LaneQuery,
};
use laneway_client::{Admin, ErrorCode};

use crate::limits::{
    LANES_PAGE_MAX, TOP_GROUPS_MAX, TOP_LANE_PAGES_MAX, TOP_REQUESTS_AT_ONCE, TOP_TOPICS_MAX,
};

/// One look at everything.
#[derive(Debug, Clone)]
pub struct Sample {
    /// By the clock that rates are computed with.
    pub at: Instant,
    /// By the clock on the wall, for what expires.
    pub now: Timestamp,
    pub topics: Vec<TopicSample>,
    pub groups: Vec<GroupDescription>,
    pub lanes: Vec<LaneDescription>,
    pub brokers: Vec<BrokerDescription>,
    pub left_out: LeftOut,
}

/// A topic and where its partitions end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSample {
    pub name: String,
    /// Next offsets by the number of the partition.
    pub next_offsets: BTreeMap<u32, i64>,
}

/// Of what there is more than was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftOut {
    pub topics: bool,
    pub groups: bool,
    pub lanes: bool,
}

impl Sample {
    /// Asks the broker. At most `TOP_TOPICS_MAX + TOP_LANE_PAGES_MAX + 3` requests.
    pub async fn take(admin: &Admin) -> Result<Self, AdminError> {
        let groups = GroupQuery { limit: Some(TOP_GROUPS_MAX), ..GroupQuery::default() };
        let (topics, groups, lanes, brokers) =
            tokio::try_join!(topics(admin), admin.list_groups(&groups), lanes(admin), admin.list_brokers())?;
        let left_out = LeftOut { topics: topics.1, groups: groups.next.is_some(), lanes: lanes.1 };
        Ok(Self {
            at: Instant::now(),
            now: Timestamp::now(),
            topics: topics.0,
            groups: groups.groups,
            lanes: lanes.0,
            brokers: brokers.brokers,
            left_out,
        })
    }
}

/// The first topics, and whether there are more.
async fn topics(admin: &Admin) -> Result<(Vec<TopicSample>, bool), AdminError> {
    let page = admin.list_topics(None).await?;
    let more = page.next.is_some() || page.topics.len() > TOP_TOPICS_MAX;
    let names = page.topics.into_iter().take(TOP_TOPICS_MAX).map(|topic| topic.name);
    let asked = stream::iter(names).map(|name| topic(admin, name)).buffered(TOP_REQUESTS_AT_ONCE);
    let found: Vec<Option<TopicSample>> = asked.try_collect().await?;
    Ok((found.into_iter().flatten().collect(), more))
}

/// `None` = it was deleted since it was listed.
async fn topic(admin: &Admin, name: String) -> Result<Option<TopicSample>, AdminError> {
    match admin.show_topic(&name).await {
        Ok(detail) => {
            let partitions = detail.partition_details.iter();
            let next_offsets = partitions.map(|it| (it.partition, it.next_offset)).collect();
            Ok(Some(TopicSample { name, next_offsets }))
        }
        Err(AdminError::Refused(problem)) if problem.code == ErrorCode::UnknownTopic => Ok(None),
        Err(error) => Err(error),
    }
}

/// The first lanes, and whether there are more.
async fn lanes(admin: &Admin) -> Result<(Vec<LaneDescription>, bool), AdminError> {
    let mut query = LaneQuery { limit: Some(LANES_PAGE_MAX), ..LaneQuery::default() };
    let mut lanes = Vec::new();
    for _ in 0..TOP_LANE_PAGES_MAX {
        let page = admin.list_lanes(&query).await?;
        lanes.extend(page.lanes);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok((lanes, false)),
        }
    }
    Ok((lanes, true))
}
