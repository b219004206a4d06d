//! A drawing says what the trace says, in the width it has.

use serde_json::json;

use super::*;

fn at(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(1_700_000_000_000 + ms).unwrap().to_string()
}

fn trace() -> Trace {
    let acked = |group: &str, from: i64, to: i64| json!({"group": group, "state": "acked", "delivered_at": at(from), "acked_at": at(to), "attempts": 1, "failures": []});
    let hop = |topic: &str,
               offset: i64,
               ms: i64,
               parent: Option<usize>,
               depth: u32,
               groups: Vec<serde_json::Value>| {
        json!({"topic": topic, "partition": 0, "offset": offset, "size": 3, "published_at": at(ms), "parent": parent,
            "depth": depth, "groups": groups, "key": "order-1"})
    };
    let retried = json!({"group": "cashier", "state": "acked", "delivered_at": at(700), "acked_at": at(800), "attempts": 2,
        "failures": [{"attempt": 1, "reason": "card\u{1b}[2Jdeclined", "delivered_at": at(300), "failed_at": at(400)}]});
    let dead = json!({"group": "cashier", "state": "dead_lettered", "attempts": 1, "dead_letter": 4,
        "failures": [{"attempt": 1, "reason": "no such card", "delivered_at": at(350), "failed_at": at(450)}]});
    let waiting = json!({"group": "ship", "state": "waiting", "ahead": 12, "attempts": 0, "failures": []});
    let trace = json!({
        "trace_id": "0af76519-16cd-43dd-8448-eb211c80319c",
        "hops": [
            hop("intake", 7, 0, None, 0, vec![acked("audit", 50, 60), acked("intake", 100, 200)]),
            hop("charge", 1, 200, Some(0), 1, vec![retried]),
            hop("ship", 2, 800, Some(1), 2, vec![waiting]),
            hop("charge", 2, 200, Some(0), 1, vec![dead]),
        ],
        "critical_path": [0, 1, 2], "waiting_us": 1_500, "handling_us": 2_500_000, "links": [], "linked_by": ["x"],
    });
    serde_json::from_value(trace).unwrap()
}

#[test]
fn the_tree_the_states_and_the_failures_are_there() {
    let drawing = lines(&trace(), 120, false).join("\n");
    assert!(drawing.starts_with("trace 0af76519-16cd-43dd-8448-eb211c80319c\n4 messages in 3 topics, 800.0 ms: waiting 1.5 ms, handling 2.50 s\nlinked by x\n"), "{drawing}");
    for part in [
        "intake/0@7* order-1",
        "├─ charge/0@1* order-1",
        "│  └─ ship/0@2* order-1",
        "└─ charge/0@2 order-1",
        "audit acked",
        "cashier acked ×2",
        "ship waiting, 12 ahead",
        "cashier dead letter",
        "attempt 1 failed: card\u{fffd}[2Jdeclined",
    ] {
        assert!(drawing.contains(part), "{part} in\n{drawing}");
    }
    assert!(!drawing.contains('\x1b'));
}

#[test]
fn a_bar_waits_fails_pauses_and_is_done() {
    let drawing = lines(&trace(), 120, false);
    let retried = drawing.iter().find(|line| line.contains("cashier acked")).unwrap();
    let bar: String = retried.chars().filter(|char| "░█▒·▌✗•".contains(*char)).collect();
    let shape: String = bar.chars().fold(String::new(), |mut shape, char| {
        if !shape.ends_with(char) {
            shape.push(char);
        }
        shape
    });
    assert_eq!(shape, "░▒·█▌");
    assert!(drawing.iter().any(|line| line.contains("dead letter") && line.ends_with('✗')), "{drawing:#?}");
    // What waits does so until the end of the axis.
    assert!(drawing.iter().any(|line| line.contains("ship waiting") && line.ends_with('░')));
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for width in [40, 60, 80, 200] {
        for line in lines(&trace(), width, false) {
            assert!(line.chars().count() <= width, "{} > {width}: {line}", line.chars().count());
        }
    }
}

#[test]
fn however_deep_a_message_stands_its_place_is_said() {
    let mut trace = trace();
    let hop = trace.hops[0].clone();
    let chain = |depth: usize| Hop {
        offset: depth as i64 + 100,
        depth: depth as u32,
        parent: depth.checked_sub(1),
        ..hop.clone()
    };
    trace.hops = (0..40).map(chain).collect();
    trace.critical_path = vec![0];
    for width in [40, 60, 80, 100, 200] {
        let drawing = lines(&trace, width, false);
        for depth in 0..40 {
            let place = format!("intake/0@{}", depth + 100);
            assert!(drawing.iter().any(|line| line.contains(&place)), "{place}, {width}: {drawing:#?}");
        }
    }
    // The wider it is, the more of the tree.
    let indented =
        |width| lines(&trace, width, false).iter().filter_map(|line| line.find("└─")).max().unwrap();
    assert!(indented(40) < indented(80) && indented(80) < indented(200));
}

#[test]
fn wide_characters_take_their_two_columns_and_combining_ones_none() {
    let mut trace = trace();
    trace.hops[0].key = Some("顧客番号一二三四五六七八九十顧客番号一二三四五六七八九十".into());
    trace.hops[1].key = Some("cafe\u{301}".into());
    trace.hops[3].groups[0].failures[0].reason = "カードが無効です".repeat(9);
    for width in [40, 61, 100, 200] {
        let drawing = lines(&trace, width, false);
        assert!(drawing.iter().all(|line| line.width() <= width), "{width}: {drawing:#?}");
        // What stands in a column begins there, whatever stands before it.
        let column = |about: &str| {
            let line = drawing.iter().find(|line| line.contains(about)).unwrap();
            line[..line.find(about).unwrap()].width()
        };
        let columns = ["audit a", "intake a", "ship w", "cashier a"].map(column);
        assert!(columns.iter().all(|at| *at == columns[0]), "{width}: {columns:?} in {drawing:#?}");
    }
    assert_eq!([fit("番号", 4), fit("番号", 3), fit("番号", 2)], ["番号", "番…", "…"]);
}

#[test]
fn colours_change_nothing_but_the_colour() {
    let strip = |line: &String| {
        let mut out = String::new();
        let mut inside = false;
        for char in line.chars() {
            match (inside, char) {
                (false, '\x1b') => inside = true,
                (true, 'm') => inside = false,
                (true, _) => {}
                (false, char) => out.push(char),
            }
        }
        out.trim_end().to_owned()
    };
    let painted = lines(&trace(), 100, true);
    assert!(painted.iter().any(|line| line.contains("\x1b[31m")));
    assert_eq!(painted.iter().map(strip).collect::<Vec<_>>(), lines(&trace(), 100, false));
}

#[test]
fn spans_of_time_are_said_as_people_do() {
    assert_eq!(
        [took(7), took(1_500), took(2_340_000), took(90_000_000)],
        ["7 µs", "1.5 ms", "2.34 s", "1.5 min"]
    );
}
