//! Which PostgreSQL the tests use, as a pure function of what there is.

use std::path::PathBuf;

use crate::harness::source::{Docker, Source, choose};

fn never_asked() -> Docker {
    panic!("a choice that was made must not look for Docker")
}

#[test]
fn a_server_that_is_given_wins_over_everything() {
    let url = "postgresql://h/db".to_owned();
    assert_eq!(
        choose(Some(url.clone()), Some("/pg/bin".into()), never_asked),
        Source::Given { url: url.clone() }
    );
    assert_eq!(choose(Some(url.clone()), None, never_asked), Source::Given { url });
}

#[test]
fn binaries_that_are_named_win_over_a_container() {
    let bin_dir = Some(PathBuf::from("/pg/bin"));
    assert_eq!(choose(None, bin_dir.clone(), never_asked), Source::Binaries { bin_dir });
}

#[test]
fn without_a_choice_docker_decides() {
    assert_eq!(choose(None, None, || Docker::Answers), Source::Container);
    assert_eq!(choose(None, None, || Docker::Silent), Source::Binaries { bin_dir: None });
}
