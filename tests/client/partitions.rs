//! Topics whose number of partitions is not what the client believes.

use laneway_client::routing::partition_of;
use laneway_client::topic::{AlterTopic, CreateTopic};
use laneway_client::{Admin, Class, Client, ErrorCode, NewMessage};

use crate::bus::{Bus, to};

fn keyed(key: &str, payload: usize) -> NewMessage {
    NewMessage {
        key: Some(key.to_owned().into()),
        payload: payload.to_string().into(),
        ..NewMessage::default()
    }
}

/// Deletes the topic and makes it again.
async fn remake(bus: &Bus, partitions: u32) {
    let admin = Admin::new(&bus.url()).unwrap();
    admin.delete_topic("orders").await.unwrap();
    admin.create_topic(&CreateTopic::new("orders", partitions)).await.unwrap();
}

/// What the topic of today holds in a partition.
async fn stored(bus: &Bus, partition: i32) -> Vec<String> {
    let raw = bus.database.raw().await;
    let sql = r#"SELECT convert_from(payload, 'UTF8') FROM laneway.message JOIN laneway.partition p USING (partition_id)
                 JOIN laneway.topic t USING (topic_id) WHERE p.number = $1 AND t.deleted_at IS NULL ORDER BY "offset""#;
    raw.query(sql, &[&partition]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_whose_partition_is_gone_get_another_home_in_their_order() {
    const MANY: usize = 300;
    let bus = Bus::new(8).await;
    let client = bus.client().await;
    let key =
        ["a", "b", "c", "d", "e", "f"].into_iter().find(|key| partition_of(key.as_bytes(), 8) > 1).unwrap();
    let before = client.publish("orders", keyed(key, 0)).await.unwrap();
    assert_eq!(before.partition, partition_of(key.as_bytes(), 8));
    remake(&bus, 2).await;
    let home = partition_of(key.as_bytes(), 2);
    let receipts = client.publish_many("orders", (1..=MANY).map(|number| keyed(key, number))).await;
    for receipt in receipts {
        assert_eq!(receipt.unwrap().partition, home);
    }
    let expected: Vec<String> = (1..=MANY).map(|number| number.to_string()).collect();
    assert_eq!(stored(&bus, home as i32).await, expected, "one copy each, in order");
    assert_eq!(stored(&bus, 1 - home as i32).await, [""; 0]);
    assert!(client.close().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_names_a_partition_that_is_gone_is_refused_and_the_others_beside_it_are_not() {
    let bus = Bus::new(8).await;
    let client = bus.client().await;
    client.publish("orders", to(7, 0)).await.unwrap();
    remake(&bus, 1).await;
    let (named, routed) =
        tokio::join!(client.publish("orders", to(7, 1)), client.publish("orders", keyed("k", 2)));
    let refused = named.unwrap_err();
    assert_eq!((refused.code(), refused.class()), (Some(ErrorCode::PartitionOutOfRange), Class::Refused));
    assert_eq!(routed.unwrap().partition, 0);
    assert_eq!(stored(&bus, 0).await, ["2"]);
    let again = client.publish("orders", to(7, 3)).await.unwrap_err();
    assert_eq!(again.code(), Some(ErrorCode::PartitionOutOfRange), "by now the client knows it itself");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_astray_whose_topic_is_gone_for_good_is_refused() {
    let bus = Bus::new(8).await;
    let client = bus.client().await;
    client.publish("orders", to(7, 0)).await.unwrap();
    Admin::new(&bus.url()).unwrap().delete_topic("orders").await.unwrap();
    let refused = client.publish("orders", keyed("k", 1)).await.unwrap_err();
    assert_eq!(refused.code(), Some(ErrorCode::UnknownTopic));
    assert!(client.close().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_spread_over_more_partitions_only_by_clients_that_know_of_them() {
    let bus = Bus::new(1).await;
    let client = bus.client().await;
    let key =
        ["a", "b", "c", "d", "e", "f"].into_iter().find(|key| partition_of(key.as_bytes(), 8) > 0).unwrap();
    client.publish("orders", keyed(key, 0)).await.unwrap();
    let admin = Admin::new(&bus.url()).unwrap();
    let more = AlterTopic { partitions: Some(8), ..AlterTopic::default() };
    admin.alter_topic("orders", &more).await.unwrap();
    assert_eq!(
        client.publish("orders", keyed(key, 1)).await.unwrap().partition,
        0,
        "as long as it does not know"
    );
    let newcomer: Client = bus.client().await;
    let home = newcomer.publish("orders", keyed(key, 2)).await.unwrap().partition;
    assert_eq!(home, partition_of(key.as_bytes(), 8));
}
