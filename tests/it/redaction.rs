//! What the SQL functions that hide values find.

use serde_json::{Value, json};

use crate::support::Db;

#[tokio::test]
async fn secrets_are_found_in_lists_of_lists_and_hidden_in_names_and_quoted_forms() {
    let db = Db::new().await;
    let payload = json!({"items": [[{"password": "hun\"ter22"}]], "user": {"token": "abcd1234"}, "open": "visible"});
    let (shown, quoted, result): (Value, String, Value) = sqlx::query_as(
        "select jobdeck.redacted($1, paths), jobdeck.without_secrets($2, secrets), jobdeck.without_secrets($3::jsonb, secrets)
         from (select jobdeck.secrets_of($1, paths) as secrets, paths
           from (values ('{items.password,user.token}'::text[])) as v (paths)) s",
    )
    .bind(&payload)
    .bind(r#"no entry for "hun\"ter22" nor hun"ter22 of abcd1234"#)
    .bind(json!({"abcd1234": ["took abcd1234", "visible"]}))
    .fetch_one(db.store.pool())
    .await
    .expect("hidden");
    let mark = "••••••";
    assert_eq!(shown, json!({"items": [[{"password": mark}]], "user": {"token": mark}, "open": "visible"}));
    assert_eq!(quoted, format!("no entry for \"{mark}\" nor {mark} of {mark}"));
    assert_eq!(result, json!({mark: [format!("took {mark}"), "visible"]}));
}
