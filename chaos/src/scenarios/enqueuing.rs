//! Enqueuing in transactions and with keys.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::Result;
use jobdeck::EnqueueOptions;

use crate::Extent;
use crate::stage::{Stage, ensure};
use crate::worker::{Errand, KeyedErrand, Settings};

pub(super) async fn transactions(extent: Extent) -> Result<()> {
    let n_transactions = extent.pick(400, 2000);
    let stage = Stage::new().await?;
    let _worker = stage.worker(&Settings { slots: 20, poll: Duration::from_millis(200), ..Settings::default() })?;
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..n_transactions {
        let store = stage.store.clone();
        tasks.spawn(async move {
            let mut tx = store.begin().await?;
            store.enqueue_in_tx(&mut *tx, &Errand::sleeping(n, 1), EnqueueOptions::default()).await?;
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..100))).await;
            if n % 2 == 0 {
                tx.commit().await?
            } else {
                tx.rollback().await?
            };
            Ok::<_, jobdeck::StoreError>(())
        });
        if n % 10 == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for done in tasks.join_all().await {
        done?;
    }
    stage.drained(Duration::from_secs(30)).await?;
    let odd = stage.ledger.number("select count(*) from starts where n % 2 = 1").await?;
    let even = stage.ledger.number("select count(distinct n) from starts where n % 2 = 0").await?;
    println!("{n_transactions} transactions, half rolled back: {even} committed ones ran, {odd} of the others");
    ensure(odd == 0 && even == n_transactions / 2, "what committed ran, and nothing else")?;
    stage.check_rules().await
}

pub(super) async fn one_key(extent: Extent) -> Result<()> {
    let (n_clients, n_rounds) = (50, extent.pick(20, 200));
    let stage = Stage::new().await?;
    for round in 0..n_rounds {
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..n_clients {
            let store = stage.store.clone();
            clients.spawn(async move {
                store.enqueue(&KeyedErrand { key: format!("round {round}") }, EnqueueOptions::default()).await
            });
        }
        let answers = clients.join_all().await.into_iter().collect::<Result<Vec<_>, _>>()?;
        let ids: HashSet<_> = answers.iter().map(|answer| answer.id).collect();
        let n_new = answers.iter().filter(|answer| answer.is_new).count();
        ensure(ids.len() == 1 && n_new == 1, format!("round {round}: {} ids, {n_new} new", ids.len()))?;
    }
    println!("{n_rounds} rounds of {n_clients} clients: one job each");
    stage.check_rules().await
}
