//! Results of named parts of a job, kept across its attempts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobdeck::store::Outcome;
use jobdeck::{Ctx, FailureClass, JobError, JobState};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::Notify;

use crate::effects::{ctx, overtake};
use crate::support::{Db, Note, lease, person};
use crate::worker::{builder, run};

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
struct Rendered {
    pages: u32,
    file: String,
}

async fn never() -> Result<Rendered, JobError> {
    panic!("the step ran again")
}

#[tokio::test]
async fn next_attempt_resumes_at_the_step_that_failed() {
    let db = Db::new().await;
    let ran: Arc<Mutex<HashMap<&str, u32>>> = Arc::default();
    let counted = ran.clone();
    let worker = builder(&db)
        .register(move |ctx: Ctx, _: Note| {
            let ran = counted.clone();
            async move {
                let count = |step| *ran.lock().expect("lock").entry(step).and_modify(|n| *n += 1).or_insert(1);
                let rendered = ctx
                    .step("render", async || Ok(Rendered { pages: 12, file: format!("{}.pdf", count("render")) }))
                    .await?;
                let url = ctx
                    .step("upload", async || match count("upload") {
                        1 => Err(JobError::retryable("connection", "refused")),
                        _ => Ok(format!("/files/{}", rendered.file)),
                    })
                    .await?;
                // And once more, behind both.
                if ctx.attempt() < 3 {
                    return Err(JobError::retryable("timeout", "too late"));
                }
                Ok(json!({"pages": rendered.pages, "url": url, "steps": ctx.steps_done().await?}))
            }
        })
        .queue("default", 2)
        .build()
        .expect("valid");
    let worker = run(worker);
    let id = db.enqueue(&Note::new("export")).await;
    let job = db.wait_for(id, JobState::Succeeded).await;
    assert_eq!(job.result, Some(json!({"pages": 12, "url": "/files/1.pdf", "steps": ["render", "upload"]})));
    assert_eq!(*ran.lock().expect("lock"), HashMap::from([("render", 1), ("upload", 2)]));
    let steps = db.store.step_list(id).await.expect("listed");
    let listed: Vec<_> = steps.iter().map(|step| (step.name.as_str(), step.result_preview.as_str())).collect();
    assert_eq!(listed, [("render", r#"{"file": "1.pdf", "pages": 12}"#), ("upload", r#""/files/1.pdf""#)]);
    assert!(steps[0].token < steps[1].token && steps[1].token < job.token);
    worker.stop().await;
}

#[tokio::test]
async fn result_of_a_step_whose_lease_was_lost_meanwhile_is_refused_while_the_new_holder_runs() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("slow step")).await;
    let late = ctx(&db, &db.claim("A").await);
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (told, waits, late_too) = (begun.clone(), go_on.clone(), late.clone());
    let slow = tokio::spawn(async move {
        let work = async || {
            told.notify_one();
            waits.notified().await;
            Ok(Rendered { pages: 1, file: "late".to_owned() })
        };
        late_too.step("render", work).await
    });
    begun.notified().await;
    let b = overtake(&db, id, "B").await;
    let before = db.job(id).await;
    go_on.notify_one();
    assert_eq!(slow.await.expect("no panic").expect_err("refused").code, "lease_lost");
    assert_eq!(db.store.step_list(id).await.expect("listed"), []);
    assert_eq!(db.job(id).await, before, "a late write changes nothing");
    let holder = ctx(&db, &b);
    let kept = holder.step("render", async || Ok(Rendered { pages: 2, file: "new".to_owned() })).await.expect("kept");
    assert_eq!(kept.pages, 2);
    // Nor does the late one begin a step or read what was kept since.
    for name in ["render", "upload"] {
        assert_eq!(late.step(name, never).await.expect_err("refused").code, "lease_lost");
    }
    assert_eq!(db.store.step_list(id).await.expect("listed")[0].token, b.token);
}

#[tokio::test]
async fn kept_results_survive_a_stall_and_are_answered_alike_also_with_nul() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("odd results")).await;
    let first = ctx(&db, &db.claim("A").await);
    let odd = Rendered { pages: u32::MAX, file: "a\0b \u{2400} 导出".to_owned() };
    let kept = first.step("odd", async || Ok(odd)).await.expect("kept");
    assert_eq!(kept.file, "a␀b ␀ 导出");
    first.step("nothing", async || Ok(())).await.expect("kept");
    assert_eq!(first.step("option", async || Ok(None::<u8>)).await.expect("kept"), None);
    let second = ctx(&db, &overtake(&db, id, "B").await);
    assert_eq!(second.step("odd", never).await.expect("answered"), kept);
    let unused = async || Err::<(), _>(JobError::retryable("ran", "again"));
    second.step("nothing", unused).await.expect("answered");
    assert_eq!(second.step("option", async || Ok(Some(1_u8))).await.expect("answered"), None);
    assert_eq!(second.steps_done().await.expect("read"), ["odd", "nothing", "option"]);
}

#[tokio::test]
async fn results_too_large_to_keep_are_refused_with_the_limit_named() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("large")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    let just_fits = "x".repeat(Ctx::MAX_STEP_RESULT_BYTES - 2);
    assert_eq!(ctx.step("fits", async || Ok(just_fits.clone())).await.expect("kept"), just_fits);
    let long = vec![1e300; 20_000];
    let refusals = [
        ctx.step("large", async || Ok(format!("{just_fits}x"))).await.map(drop),
        ctx.step("grows", async || Ok(long)).await.map(drop),
        ctx.step("deep", async || Ok((0..200).fold(json!(1), |inner, _| json!([inner])))).await.map(drop),
    ];
    let problems =
        ["step \"large\": its result is 1048577 bytes of JSON, the limit is 1048576", "step_result_size", "100 levels"];
    for (refused, problem) in refusals.into_iter().zip(problems) {
        let error = refused.expect_err("refused");
        assert_eq!((error.class, error.code.as_str()), (FailureClass::Unrecoverable, "result"));
        assert!(error.detail.contains(problem), "{error}");
    }
    assert_eq!(ctx.steps_done().await.expect("read"), ["fits"]);
    let shown = db.store.step_list(id).await.expect("listed");
    assert_eq!(shown[0].result_preview.chars().count(), 1000);
    for name in ["", "a\0", &"n".repeat(201)] {
        assert_eq!(ctx.step(name, never).await.expect_err("refused").class, FailureClass::Unrecoverable, "{name:?}");
    }
}

#[tokio::test]
async fn kept_result_that_does_not_fit_the_type_any_more_fails_for_good() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("deployed meanwhile")).await;
    ctx(&db, &db.claim("A").await).step("render", async || Ok(7)).await.expect("kept");
    let next = ctx(&db, &overtake(&db, id, "B").await);
    let error = next.step("render", never).await.expect_err("another type");
    assert_eq!((error.class, error.code.as_str()), (FailureClass::Unrecoverable, "result"));
    assert!(error.detail.contains("step \"render\"") && error.detail.contains("expected"), "{error}");
}

#[tokio::test]
async fn a_persons_retry_resumes_and_the_steps_go_with_the_row() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("fails for good")).await;
    let a = db.claim("A").await;
    let rendered = Rendered { pages: 3, file: "x".to_owned() };
    ctx(&db, &a).step("render", async || Ok(rendered.clone())).await.expect("kept");
    let error = JobError::unrecoverable("quota", "full");
    db.store.job_end(lease(&a), Outcome::Failed { error: &error, delay: Duration::ZERO }).await.expect("failed");
    db.store.job_retry(id, &person()).await.expect("retried");
    let again = ctx(&db, &db.claim("B").await);
    assert_eq!(again.attempt(), 1);
    assert_eq!(again.step("render", never).await.expect("kept"), rendered);
    let other = db.enqueue(&Note::new("the same as a new job")).await;
    let rerun = ctx(&db, &db.claim("B").await);
    assert_eq!((rerun.job_id(), rerun.steps_done().await.expect("read")), (other, Vec::<String>::new()));
    sqlx::query("delete from jobdeck.jobs where id = $1").bind(id).execute(db.store.pool()).await.expect("gone");
    assert_eq!(db.scalar("select count(*) from jobdeck.steps").await, 0);
}

#[tokio::test]
async fn equal_steps_of_one_execution_run_once_and_different_ones_beside_each_other() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("parallel")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    let ran = std::sync::atomic::AtomicU32::new(0);
    let work = async || {
        tokio::task::yield_now().await;
        Ok(ran.fetch_add(1, std::sync::atomic::Ordering::SeqCst))
    };
    let (first, second) = tokio::join!(ctx.step("page 1", work), ctx.step("page 1", work));
    assert_eq!((first.expect("kept"), second.expect("answered")), (0, 0));
    // Each waits for the other, so neither ends unless both run.
    let meet = tokio::sync::Barrier::new(2);
    let met = async || Ok(meet.wait().await.is_leader());
    let (left, right) = tokio::join!(ctx.step("page 2", met), ctx.step("page 3", met));
    assert_ne!(left.expect("kept"), right.expect("kept"));
    assert_eq!(db.store.step_list(id).await.expect("listed").len(), 3);
}

#[tokio::test]
async fn failed_step_keeps_nothing_and_runs_again_in_the_same_attempt() {
    let db = Db::new().await;
    db.enqueue(&Note::new("fails once")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    let error = ctx.step("render", async || Err::<u8, _>(JobError::retryable("io", "full"))).await.expect_err("failed");
    assert_eq!(error.code, "io");
    assert_eq!(ctx.step("render", async || Ok(1)).await.expect("kept"), 1);
}

#[tokio::test]
async fn step_is_kept_although_every_connection_was_cut_while_it_ran_and_moves_the_jobs_version() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("cut")).await;
    let ctx = ctx(&db, &db.claim("A").await);
    let before = db.job(id).await.version;
    let mut admin = db.connection().await;
    let cut = async || {
        sqlx::query(
            "select pg_terminate_backend(pid) from pg_stat_activity
             where datname = current_database() and pid <> pg_backend_pid()",
        )
        .execute(&mut admin)
        .await
        .expect("cut");
        Ok(1)
    };
    assert_eq!(ctx.step("render", cut).await.expect("kept"), 1);
    assert_eq!(ctx.steps_done().await.expect("read"), ["render"]);
    assert_eq!(db.job(id).await.version, before + 1);
}

#[tokio::test]
async fn no_step_begins_after_the_local_deadline() {
    let db = Db::new().await;
    let id = db.enqueue(&Note::new("slept too long")).await;
    let ctx = Ctx::for_claim(db.store.clone(), db.claim("A").await, Duration::ZERO);
    assert_eq!(ctx.step("render", never).await.expect_err("refused").code, "lease_lost");
    assert_eq!(db.store.step_list(id).await.expect("listed"), []);
}
