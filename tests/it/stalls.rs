//! Jobs that stalled run apart from the others.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobdeck::store::Stalls;
use jobdeck::{Ctx, JobState, JobType, Store, Worker};

use crate::support::{Brittle, Db, Note};

async fn claim(db: &Db, stalls: Stalls) -> Vec<jobdeck::JobId> {
    let types = [Note::TYPE, Brittle::TYPE].map(str::to_owned);
    let claims =
        Store::job_claim_stalled(db.store.pool(), "default", &types, 10, Duration::from_secs(15), "A", stalls).await;
    claims.expect("claimed").iter().map(|claim| claim.job_id).collect()
}

#[tokio::test]
async fn stalled_jobs_are_claimed_by_how_often_they_stalled_and_never_with_others() {
    let db = Db::new().await;
    let (note, brittle) = (db.enqueue(&Note::new("stalls")).await, db.enqueue(&Brittle {}).await);
    assert_eq!(claim(&db, Stalls::None).await.len(), 2);
    for id in [note, brittle] {
        db.expire(id).await;
    }
    db.reap().await;
    let innocent = db.enqueue(&Note::new("innocent")).await;
    let mut connection = db.connection().await;
    let due = async |connection: &mut sqlx::PgConnection| {
        let types = [Note::TYPE, Brittle::TYPE].map(str::to_owned);
        Store::job_suspects_due(connection, &["default".to_owned()], &types).await.expect("looked")
    };
    assert_eq!(due(&mut connection).await, (true, true));
    assert_eq!(claim(&db, Stalls::None).await, [innocent]);
    // The one may stall three times, the other may not again.
    assert_eq!(claim(&db, Stalls::Once).await, [note]);
    assert_eq!(claim(&db, Stalls::Often).await, [brittle]);
    assert_eq!(due(&mut connection).await, (false, false));
    db.expire(note).await;
    db.reap().await;
    assert_eq!(claim(&db, Stalls::Once).await, []);
    assert_eq!(claim(&db, Stalls::Often).await, [note]);
}

#[tokio::test]
async fn a_job_that_stalled_twice_runs_without_any_neighbour() {
    let db = Db::new().await;
    // Running now, how many ran beside the suspect.
    let running: Arc<Mutex<(usize, Vec<usize>)>> = Arc::default();
    let suspect = db.enqueue(&Note::new("suspect")).await;
    for _ in 0..2 {
        db.claim("A").await;
        db.expire(suspect).await;
        db.reap().await;
    }
    let notes: Vec<Note> = (0..40).map(|n| Note::new(&n.to_string())).collect();
    let others = db.store.enqueue_many(&notes, jobdeck::EnqueueOptions::default()).await.expect("enqueued");
    let seen = running.clone();
    let handler = move |_: Ctx, note: Note| {
        let seen = seen.clone();
        async move {
            {
                let mut now = seen.lock().expect("not poisoned");
                now.0 += 1;
                if note.text == "suspect" {
                    let others = now.0 - 1;
                    now.1.push(others);
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
            let mut now = seen.lock().expect("not poisoned");
            if note.text == "suspect" {
                let others = now.0 - 1;
                now.1.push(others);
            }
            now.0 -= 1;
            Ok(())
        }
    };
    let worker = Worker::builder(db.store.clone(), &db.url)
        .lease(Duration::from_secs(6), Duration::from_millis(500))
        .register(handler)
        .queue("default", 4)
        .build()
        .expect("valid");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
    db.wait_for(suspect, JobState::Succeeded).await;
    for other in others {
        db.wait_for(other.id, JobState::Succeeded).await;
    }
    drop(stop);
    worker.await.expect("joined").expect("stopped");
    assert_eq!(running.lock().expect("not poisoned").1, [0, 0], "none at its start, none at its end");
}
