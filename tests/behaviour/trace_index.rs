//! The trace index outlives retention without keeping what retention has dropped.

use laneway::broker::message::Draft;
use laneway::ids::TraceId;
use laneway::store::Role;
use laneway::store::traces::Payloads;

use crate::harness::TestDatabase;
use crate::harness::produce::{draft, topic, unit};

#[tokio::test]
async fn a_closed_cut_is_written_anew_once_most_of_it_has_lost_its_messages() {
    let database = TestDatabase::new().await;
    let broker = database.broker();
    let (brief, lasting) = (topic(&broker, "brief", 1).await, topic(&broker, "lasting", 1).await);
    for number in 0..30 {
        broker.appender.append(unit(brief.partitions[0], [format!("b{number}")])).await.unwrap();
    }
    let trace = TraceId::generate();
    let kept = Draft { trace_id: Some(trace), ..draft("kept") }.check(100).unwrap();
    broker
        .appender
        .append(laneway::broker::appender::Unit { messages: vec![kept], ..unit(lasting.partitions[0], []) })
        .await
        .unwrap();
    let blocks = "SELECT count(*) FROM laneway.trace_block";
    assert_eq!(database.number(blocks).await, 31);
    // As retention leaves it: the brief topic starts after its last message, and the cut is over.
    let raw = database.raw().await;
    raw.execute("UPDATE laneway.partition SET start_offset = 30 WHERE topic_id = $1", &[&brief.topic_id.0])
        .await
        .unwrap();
    raw.execute("UPDATE laneway.trace_cut SET closed_at = clock_timestamp() - interval '1 day'", &[])
        .await
        .unwrap();
    let mut upkeep = database.store().dedicated(Role::Upkeep).await.unwrap();
    upkeep.trace_cuts_shrink_after(60.0).await.unwrap();
    assert_eq!(database.number(blocks).await, 1);
    assert_eq!(broker.reader.trace(trace, Payloads::Read).await.unwrap().hops.len(), 1);
    // It is in its place again: flushes and look-ups go on, and the next look finds nothing to do.
    let receipt = broker.appender.append(unit(lasting.partitions[0], ["next".into()])).await.unwrap();
    assert_eq!(receipt.first_offset, Some(laneway::ids::Offset(1)));
    upkeep.trace_cuts_shrink_after(0.0).await.unwrap();
    assert_eq!(database.number(blocks).await, 2);
}
