//! The schema from empty, twice, and from several processes at once.

use jobdeck::Store;

use crate::support::Db;

#[tokio::test]
async fn migrating_twice_changes_nothing_and_readiness_follows() {
    let db = Db::empty().await;
    db.store.migrate().await.expect("migrated");
    assert!(db.store.is_ready().await.expect("answered"));
    db.store.migrate().await.expect("again");
}

#[tokio::test]
async fn three_processes_migrating_at_once_all_succeed() {
    let db = Db::empty().await;
    let mut processes = tokio::task::JoinSet::new();
    for _ in 0..3 {
        let url = db.url.clone();
        processes.spawn(async move { Store::connect(&url, 2).await.expect("connected").migrate().await });
    }
    for migrated in processes.join_all().await {
        migrated.expect("migrated");
    }
    assert!(db.store.is_ready().await.expect("answered"));
}

#[tokio::test]
async fn every_time_column_has_a_zone_and_every_table_lives_in_the_schema() {
    let db = Db::new().await;
    let zoneless = "select count(*) from information_schema.columns
        where table_schema = 'jobdeck' and data_type = 'timestamp without time zone'";
    assert_eq!(db.scalar(zoneless).await, 0);
    let outside = "select count(*) from pg_tables where schemaname = 'public'";
    assert_eq!(db.scalar(outside).await, 0);
}

#[tokio::test]
async fn ids_grow_with_time_and_are_version_seven() {
    let db = Db::new().await;
    let ids: Vec<uuid::Uuid> = sqlx::query_scalar(
        "select id from (select jobdeck.uuid_v7() as id, pg_sleep(0.002) from generate_series(1, 50)) made",
    )
    .fetch_all(db.store.pool())
    .await
    .expect("made");
    assert!(ids.is_sorted());
    assert!(ids.iter().all(|id| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122));
}
