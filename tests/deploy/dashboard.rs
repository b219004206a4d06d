//! The dashboard can be imported: a data source to choose, panels that say what they show and do not overlap.

use serde_json::Value;

use crate::read;

fn dashboard() -> Value {
    serde_json::from_str(&read("grafana/laneway.json")).unwrap()
}

#[test]
fn the_data_source_is_chosen_at_import_and_named_nowhere() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    assert_eq!((&variables[0]["name"], &variables[0]["type"]), (&"datasource".into(), &"datasource".into()));
    assert!(dashboard.get("id").is_none(), "an id belongs to one Grafana");
    let panels = dashboard["panels"].as_array().unwrap();
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        for target in panel["targets"].as_array().unwrap() {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{}", panel["title"]);
        }
        assert!(panel["description"].as_str().is_some_and(|text| !text.is_empty()), "{}", panel["title"]);
    }
}

#[test]
fn every_variable_that_is_used_is_declared() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let declared: Vec<&str> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    let text = dashboard.to_string();
    for used in text.split("\\\"$").skip(1).map(|rest| rest.split('\\').next().unwrap()) {
        assert!(declared.contains(&used), "${used} is not declared");
    }
}

#[test]
fn panels_have_ids_and_places_of_their_own() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = std::collections::BTreeSet::new();
    let mut ids = std::collections::BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        let at = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        assert!(at("x") + at("w") <= 24, "{}", panel["title"]);
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{} lies on another panel", panel["title"]);
            }
        }
    }
}
