//! Traces: an id and its causes go through hops, batches, redeliveries and a dead letter as it was.

use laneway_client::Cause;
use laneway_client::wire::{NewMessage, Subscribe};
use uuid::Uuid;

use crate::Bus;
use crate::harness::socket::{BOTH, make_topic, offsets, quick_retries, subscribe, text};

/// Ids with all the bits that somebody might take for something else.
const TRACES: [u128; 4] = [
    0xffff_ffff_ffff_ffff_ffff_ffff_ffff_fffe,
    0x0000_0000_0000_0000_0000_0000_0000_0001,
    0x8000_0000_0000_0000_8000_0000_0000_0000,
    0x0198_a000_0000_7000_8000_0000_0000_0001,
];
const HOPS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn trace_ids_and_causes_survive_five_hops_redeliveries_and_a_dead_letter_bit_for_bit() {
    let traces: Vec<Uuid> = TRACES.iter().map(|trace| Uuid::from_u128(*trace)).collect();
    for subprotocol in BOTH {
        let bus = Bus::start().await;
        let topic = |hop: usize| format!("hop{hop}");
        for hop in 0..HOPS {
            make_topic(&bus.server.address, &topic(hop), 1).await;
        }
        let mut step = bus.connect(subprotocol).await;
        let message = |trace: &Uuid| NewMessage { trace_id: Some(*trace), partition: Some(0), ..text("m") };
        let cause = |hop: usize, offset: usize| {
            hop.checked_sub(1).map(|before| Cause {
                topic: topic(before),
                partition: 0,
                offset: offset as i64,
            })
        };
        step.publish(&topic(0), traces.iter().map(message).collect()).await;
        for hop in 0..HOPS {
            let wish = Subscribe { settings: Some(quick_retries(2)), ..subscribe("steps", &topic(hop)) };
            step.subscribe_with(wish).await.unwrap();
            let ids = |batch: &laneway_client::wire::Batch| -> Vec<Uuid> {
                batch.messages.iter().map(|message| message.trace_id).collect()
            };
            let causes = |batch: &laneway_client::wire::Batch| -> Vec<Option<Cause>> {
                batch.messages.iter().map(|message| message.cause.clone()).collect()
            };
            let expected: Vec<Option<Cause>> = (0..traces.len()).map(|offset| cause(hop, offset)).collect();
            let first = step.batch().await;
            assert_eq!((offsets(&first), ids(&first)), (vec![0, 1, 2, 3], traces.clone()), "hop {hop}");
            assert_eq!(causes(&first), expected, "hop {hop}");
            step.nack(&first, 0, "again").await.unwrap();
            let again = step.batch().await;
            assert_eq!((again.round, ids(&again)), (2, traces.clone()), "hop {hop}, redelivered");
            assert_eq!(causes(&again), expected, "hop {hop}, redelivered");
            if hop + 1 < HOPS {
                let effect = |(offset, trace)| NewMessage { cause: cause(hop + 1, offset), ..message(trace) };
                step.publish(&topic(hop + 1), ids(&again).iter().enumerate().map(effect).collect()).await;
                step.ack_below(&again, 4).await.unwrap();
            } else {
                step.nack(&again, 0, "never").await.unwrap();
            }
        }
        let raw = bus.database.raw().await;
        let dead: Uuid = raw.query_one("SELECT trace_id FROM laneway.dead_letter", &[]).await.unwrap().get(0);
        assert_eq!(dead, traces[0]);
        let dead: serde_json::Value =
            reqwest::get(bus.server.url("/v1/dead-letters")).await.unwrap().json().await.unwrap();
        let expected = serde_json::to_value(cause(HOPS - 1, 0).unwrap()).unwrap();
        assert_eq!(dead["dead_letters"][0]["cause"], expected);
        for trace in &traces {
            let url = bus.server.url(&format!("/v1/traces/{trace}/messages"));
            let found: serde_json::Value = reqwest::get(url).await.unwrap().json().await.unwrap();
            let topics: Vec<&str> = found["messages"]
                .as_array()
                .unwrap()
                .iter()
                .map(|hop| hop["topic"].as_str().unwrap())
                .collect();
            assert_eq!(topics, ["hop0", "hop1", "hop2", "hop3", "hop4"], "{trace}");
        }
        bus.stop().await;
    }
}
