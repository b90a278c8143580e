//! Hostile error texts: whatever a handler says, it is stored in a form that can be shown, and the job goes on.

use jobdeck::FailureClass::Unrecoverable;
use jobdeck::{Ctx, JobError, JobState, MAX_ERROR_BYTES, clean_error_text};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

use crate::support::{Db, Note};
use crate::worker::{builder, run};

fn hostile_text(name: &str) -> String {
    match name {
        "nul" => "before\0after".to_owned(),
        "escape" => "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m red\u{7f}".to_owned(),
        "large" => "x".repeat(10 * 1024 * 1024),
        "large_wide" => "漢\0".repeat(2 * 1024 * 1024),
        "lone_bytes" => String::from_utf8_lossy(b"\xc3\x28 \xff\xfe \xed\xa0\x80").into_owned(),
        "edges" => "\u{fffe}\u{ffff}\u{10ffff}\u{202e}\u{feff}".to_owned(),
        "empty" => String::new(),
        other => panic!("no text called {other}"),
    }
}

const HOSTILE: [&str; 7] = ["nul", "escape", "large", "large_wide", "lone_bytes", "edges", "empty"];

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!("core"), |inner, _| json!([{ "a\0": inner }]))
}

fn is_showable(text: &str) -> bool {
    text.len() <= MAX_ERROR_BYTES && !text.chars().any(|shown| shown.is_control() && !['\n', '\t'].contains(&shown))
}

#[tokio::test]
async fn hostile_error_text_is_stored_cut_and_clean_and_no_job_stays_running() {
    let db = Db::new().await;
    let worker = builder(&db)
        .register(async |_: Ctx, note: Note| {
            let (how, name) = note.text.split_once(' ').expect("two words");
            let text = hostile_text(name);
            Err::<(), _>(
                match how {
                    "fails" => JobError { class: Unrecoverable, ..JobError::retryable(text.clone(), text.clone()) },
                    "retries" => JobError::retryable("other", text.clone()),
                    _ => {
                        JobError::rate_limited(std::time::Duration::from_secs(600), text.clone()).provider(text.clone())
                    }
                }
                .with(&text, text.clone())
                .with("nested", nested(120))
                .with("list", vec![text.clone(); 3]),
            )
        })
        .queue("default", 4)
        .build()
        .expect("valid");
    let worker = run(worker);
    for name in HOSTILE {
        for (how, state) in
            [("fails", JobState::Failed), ("retries", JobState::Retrying), ("waits", JobState::Retrying)]
        {
            let id = db.enqueue(&Note::new(&format!("{how} {name}"))).await;
            let job = db.wait_until(id, "an end", |job| job.state == state && job.last_error.is_some()).await;
            let error = job.last_error.expect("stored");
            assert_eq!(error, clean_error_text(&hostile_text(name)));
            assert!(is_showable(&error), "{how} {name}");
            let code = job.error_code.expect("stored");
            assert!(is_showable(&code) && (1..=100).contains(&code.len()), "{how} {name}: {code}");
            let attempts = db.store.attempt_list(id).await.expect("listed");
            assert_eq!(attempts[0].error.as_deref(), Some(error.as_str()));
            let facts = attempts[0].error_params.clone().expect("stored");
            assert!(facts["nested"][0].is_object(), "{facts}");
            assert!(facts.to_string().len() <= 8 * MAX_ERROR_BYTES, "{how} {name}: {} bytes", facts.to_string().len());
        }
    }
    // Some are on another attempt just now; none stays there.
    let stuck =
        "select count(*) from jobdeck.jobs where status = 'running' and locked_at < now() - interval '1 second'";
    let begun = std::time::Instant::now();
    while db.scalar("select count(*) from jobdeck.jobs where status = 'running'").await > 0 {
        assert_eq!(db.scalar(stuck).await, 0);
        assert!(begun.elapsed().as_secs() < 20, "the retries come to an end");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    worker.stop().await;
}

proptest! {
    #[test]
    fn cleaned_text_is_showable_and_cleaning_it_again_changes_nothing(text in "(?s).{0,40}", repeat in 0usize..2000) {
        let clean = clean_error_text(&text.repeat(repeat));
        prop_assert!(is_showable(&clean));
        prop_assert_eq!(&clean_error_text(&clean), &clean);
    }

    #[test]
    fn harmless_text_that_fits_is_kept_as_it_is(text in "[a-zA-Z0-9 \n\t漢字é…]{0,2000}") {
        prop_assert_eq!(clean_error_text(&text), text);
    }
}

#[test]
fn text_of_exactly_the_limit_is_kept_and_one_byte_more_is_cut_with_an_ellipsis() {
    let full = "x".repeat(MAX_ERROR_BYTES);
    assert_eq!(clean_error_text(&full), full);
    let cut = clean_error_text(&format!("{full}x"));
    assert_eq!((cut.len(), cut.ends_with("x…")), (MAX_ERROR_BYTES, true));
}

#[tokio::test]
async fn every_cleaned_text_can_be_stored() {
    let db = Db::new().await;
    let mut runner = TestRunner::deterministic();
    let any_text = proptest::collection::vec(any::<char>(), 0..400).prop_map(String::from_iter);
    let texts: Vec<String> =
        (0..500).map(|_| clean_error_text(&any_text.new_tree(&mut runner).expect("a text").current())).collect();
    let stored: Vec<String> =
        sqlx::query_scalar("select text from unnest($1::text[]) with ordinality as t (text, n) order by n")
            .bind(&texts)
            .fetch_all(db.store.pool())
            .await
            .expect("stored");
    assert_eq!(stored, texts);
}
