//! Input that Postgres cannot hold is refused by name before anything is written, whichever way it comes.

use jobdeck::{EnqueueOptions, JobType, StoreError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::Db;

#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Anything(Value);

impl JobType for Anything {
    const TYPE: &'static str = "anything";
}

#[tokio::test]
async fn nul_in_a_text_a_name_or_deep_inside_is_refused_with_its_path() {
    let db = Db::new().await;
    let refused = [
        (json!({"name": "a\0b"}), "payload.name"),
        (json!({"a\0b": 1}), "payload.a\\u0000b"),
        (json!({"rows": [1, [{"cells": ["fine", "a\0b"]}]]}), "payload.rows[1][0].cells[1]"),
    ];
    for (payload, expected) in refused {
        let error = db.store.enqueue(&Anything(payload), EnqueueOptions::default()).await.expect_err("refused");
        assert!(matches!(&error, StoreError::InvalidValue { path, .. } if path == expected), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 0);
    let harmless = json!({"name": "\\u0000", "\\u0000": ["\\", "\u{fffd}", "\u{10ffff}"]});
    let id = db.enqueue(&Anything(harmless.clone())).await;
    assert_eq!(db.job(id).await.payload, harmless);
}

#[tokio::test]
async fn nul_and_lone_surrogates_are_refused_in_sql_too() {
    let db = Db::new().await;
    for payload in [r#"{"name": "a\u0000b"}"#, r#"{"a\u0000b": 1}"#, r#"{"rows": [["\ud800"]]}"#, r#"{"a": "\udc00x"}"#]
    {
        let refused = sqlx::query("insert into jobdeck.jobs (type, payload) values ('anything', $1::text::jsonb)")
            .bind(payload)
            .execute(db.store.pool())
            .await
            .expect_err(payload);
        let state = refused.as_database_error().and_then(|error| error.code()).map(|state| state.into_owned());
        // Untranslatable character, or malformed text.
        assert!(matches!(state.as_deref(), Some("22P05" | "22P02")), "{payload}: {refused}");
    }
    assert_eq!(db.scalar("select count(*) from jobdeck.jobs").await, 0);
}
