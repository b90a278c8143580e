//! Schedules on real Postgres: one job for each tick, whatever happens to those who see to it.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use jobdeck::store::{RunNow, ScheduleChange, ScheduleCreated, ScheduleDeleted, Tick, TickOutcome};
use jobdeck::{
    Ctx, JobError, JobId, JobState, JobType, KeyPolicy, MissedPolicy, Policy, Recurrence, Schedule, Scheduler,
    StoreError, Worker, WorkerError,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::support::{Db, Keyed, Note, person};

/// At minute 5 of each hour in Berlin.
fn hourly(name: &str) -> Schedule {
    Schedule::new(name, "5 * * * *", &Note::new("hourly")).zone("Europe/Berlin")
}

async fn declared(db: &Db, schedule: Schedule) -> Scheduler {
    let scheduler = Scheduler::new(db.store.clone(), "A", vec![schedule]).expect("makes sense");
    scheduler.declare().await.expect("declared");
    scheduler
}

async fn db_now(db: &Db) -> DateTime<Utc> {
    sqlx::query_scalar("select now()").fetch_one(db.store.pool()).await.expect("now")
}

/// Makes the schedule one that nobody saw to since `n` ticks ago, the last of them included. Returns the ticks, oldest first.
async fn miss(db: &Db, name: &str, n: usize) -> Vec<DateTime<Utc>> {
    let row = db.store.schedule_get(name).await.expect("read").expect("is there");
    let recurrence = Recurrence::parse(&row.cron, &row.zone).expect("readable");
    let now = db_now(db).await;
    let mut ticks = Vec::new();
    let mut until = now;
    for _ in 0..n {
        let tick = recurrence.last_until(until, now - TimeDelta::days(1000)).expect("there is one");
        ticks.insert(0, tick);
        until = tick - TimeDelta::seconds(1);
    }
    set_next(db, name, ticks[0]).await;
    ticks
}

async fn set_next(db: &Db, name: &str, next_at: DateTime<Utc>) {
    sqlx::query("update jobdeck.schedules set next_at = $2 where name = $1")
        .bind(name)
        .bind(next_at)
        .execute(db.store.pool())
        .await
        .expect("set");
}

/// Its history, oldest first.
async fn history(db: &Db, name: &str) -> Vec<Tick> {
    let mut ticks = db.store.schedule_history(&[name.to_owned()], 10_000).await.expect("read");
    ticks.reverse();
    ticks
}

async fn n_jobs(db: &Db) -> i64 {
    db.scalar("select count(*) from jobdeck.jobs").await
}

async fn next_at(db: &Db, name: &str) -> Option<DateTime<Utc>> {
    db.store.schedule_get(name).await.expect("read").expect("is there").next_at
}

fn outcomes(ticks: &[Tick]) -> Vec<(DateTime<Utc>, TickOutcome)> {
    ticks.iter().map(|tick| (tick.tick_at, tick.outcome)).collect()
}

#[tokio::test]
async fn declared_schedule_begins_with_the_next_tick_and_its_job_says_where_it_comes_from() {
    let db = Db::new().await;
    let schedule = hourly("digest").queue("mail").priority(7).owner("customer 42").tag("reports").tick_field("tick");
    let scheduler = declared(&db, schedule).await;
    assert!(next_at(&db, "digest").await.expect("has one") > db_now(&db).await);
    assert_eq!(scheduler.pass().await.expect("passed"), []);
    assert_eq!(n_jobs(&db).await, 0);

    let due = miss(&db, "digest", 1).await;
    let ticks = scheduler.pass().await.expect("passed");
    assert_eq!(outcomes(&ticks), [(due[0], TickOutcome::Enqueued)]);
    assert_eq!(ticks[0].worker.as_deref(), Some("A"));
    let job = db.job(ticks[0].job_id.expect("a job")).await;
    assert_eq!((job.job_type.as_str(), job.queue.as_str(), job.priority), ("note", "mail", 7));
    assert_eq!((job.owner.as_deref(), job.created_by.as_deref()), (Some("customer 42"), Some("schedule digest")));
    let tick = due[0].format("%Y-%m-%dT%H:%M:%SZ").to_string();
    assert_eq!(job.payload, json!({"text": "hourly", "tick": tick}));
    assert_eq!(db.store.schedule_tick_of(job.id).await.expect("read").as_ref(), Some(&ticks[0]));
    // The type was not registered by any worker; the policy stands now as this program knows it.
    assert_eq!(db.scalar("select count(*) from jobdeck.job_types where type = 'note'").await, 1);
    assert_eq!(scheduler.pass().await.expect("passed"), []);
    let info = db.store.schedule_get("digest").await.expect("read").expect("is there");
    assert!(info.is_run);
    let runs = info.next_runs(3);
    assert_eq!(runs, [0, 1, 2].map(|hours| due[0] + TimeDelta::hours(hours + 1)));
}

#[tokio::test]
async fn skip_leaves_missed_ticks_out_and_notes_them_once() {
    let db = Db::new().await;
    let scheduler = declared(&db, hourly("rates").missed(MissedPolicy::Skip)).await;
    let missed = miss(&db, "rates", 4).await;
    scheduler.pass().await.expect("passed");
    let ticks = history(&db, "rates").await;
    let last = ticks.last().expect("noted");
    if last.outcome == TickOutcome::Enqueued {
        // Within a minute of the hour's tick; the pass itself may take a little.
        assert!(last.created_at - last.tick_at < TimeDelta::seconds(65));
        assert_eq!(outcomes(&ticks), [(missed[2], TickOutcome::Skipped), (missed[3], TickOutcome::Enqueued)]);
        return;
    }
    assert!(last.created_at - last.tick_at >= TimeDelta::seconds(60));
    assert_eq!(outcomes(&ticks), [(missed[3], TickOutcome::Skipped)]);
    assert_eq!((ticks[0].n_missed, ticks[0].missed_from), (4, Some(missed[0])));
    assert_eq!(n_jobs(&db).await, 0);
}

#[tokio::test]
async fn once_merges_missed_ticks_into_one_late_run() {
    let db = Db::new().await;
    let scheduler = declared(&db, hourly("rollup")).await;
    let missed = miss(&db, "rollup", 4).await;
    let ticks = scheduler.pass().await.expect("passed");
    assert_eq!(outcomes(&ticks), [(missed[3], TickOutcome::Enqueued)]);
    assert_eq!((ticks[0].n_missed, ticks[0].missed_from), (3, Some(missed[0])));
    assert_eq!(history(&db, "rollup").await, ticks);
    assert_eq!(n_jobs(&db).await, 1);
    assert_eq!(next_at(&db, "rollup").await, Some(missed[3] + TimeDelta::hours(1)));
}

#[tokio::test]
async fn all_makes_up_for_missed_ticks_in_their_order_up_to_its_bound() {
    let db = Db::new().await;
    let scheduler = declared(&db, hourly("invoices").missed(MissedPolicy::All { at_most: 3 })).await;
    let missed = miss(&db, "invoices", 5).await;
    let ticks = scheduler.pass().await.expect("passed");
    assert_eq!(ticks.iter().map(|tick| tick.tick_at).collect::<Vec<_>>(), missed[2..]);
    let ticks = history(&db, "invoices").await;
    assert_eq!((ticks[0].outcome, ticks[0].tick_at), (TickOutcome::Skipped, missed[1]));
    assert_eq!((ticks[0].n_missed, ticks[0].missed_from), (2, Some(missed[0])));
    assert_eq!(n_jobs(&db).await, 3);
    let in_order: Vec<JobId> =
        sqlx::query_scalar("select id from jobdeck.jobs order by id").fetch_all(db.store.pool()).await.expect("read");
    assert_eq!(in_order, ticks[1..].iter().filter_map(|tick| tick.job_id).collect::<Vec<_>>());
}

/// The ticks noted on one day of a change of clocks, in UTC. `cron` has few ticks a year, as no more than 1,000 are made up for.
async fn ticks_on(cron: &str, zone: &str, from: &str, until: &str) -> Vec<String> {
    let db = Db::new().await;
    let schedule = Schedule::new("daily", cron, &Note::new("x")).zone(zone).missed(MissedPolicy::All { at_most: 1000 });
    let scheduler = declared(&db, schedule).await;
    let (from, until): (DateTime<Utc>, DateTime<Utc>) = (from.parse().expect("a time"), until.parse().expect("a time"));
    let first = Recurrence::parse(cron, zone).expect("readable").next_after(from).expect("has one");
    set_next(&db, "daily", first).await;
    scheduler.pass().await.expect("passed");
    let ticks = history(&db, "daily").await;
    assert!(ticks.iter().all(|tick| tick.outcome == TickOutcome::Enqueued), "{ticks:#?}");
    let noted = ticks.iter().map(|tick| tick.tick_at).filter(|tick| *tick > from && *tick < until);
    noted.map(|tick| tick.format("%d %H:%M").to_string()).collect()
}

#[tokio::test]
async fn local_time_that_does_not_exist_comes_at_the_change() {
    let berlin = ticks_on("30 2 * 3 *", "Europe/Berlin", "2026-03-27T12:00:00Z", "2026-03-30T12:00:00Z").await;
    assert_eq!(berlin, ["28 01:30", "29 01:00", "30 00:30"]);
    let york = ticks_on("30 2 * 3 *", "America/New_York", "2026-03-07T12:00:00Z", "2026-03-09T12:00:00Z").await;
    assert_eq!(york, ["08 07:00", "09 06:30"]);
    let howe = ticks_on("15 2 * 10 *", "Australia/Lord_Howe", "2026-10-02T18:00:00Z", "2026-10-04T18:00:00Z").await;
    assert_eq!(howe, ["03 15:30", "04 15:15"]);
}

#[tokio::test]
async fn local_time_that_exists_twice_comes_once() {
    let berlin = ticks_on("30 2 * 10 *", "Europe/Berlin", "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z").await;
    assert_eq!(berlin, ["25 00:30", "26 01:30"]);
    let york = ticks_on("30 1 * 10,11 *", "America/New_York", "2026-10-31T12:00:00Z", "2026-11-02T12:00:00Z").await;
    assert_eq!(york, ["01 05:30", "02 06:30"]);
    let howe = ticks_on("45 1 * 4 *", "Australia/Lord_Howe", "2026-04-04T00:00:00Z", "2026-04-05T18:00:00Z").await;
    assert_eq!(howe, ["04 14:45", "05 15:15"]);
}

#[tokio::test]
async fn hourly_goes_on_each_hour_while_clocks_change() {
    let berlin = ticks_on("0 * 24,25 10 *", "Europe/Berlin", "2026-10-24T22:30:00Z", "2026-10-25T03:30:00Z").await;
    assert_eq!(berlin, ["24 23:00", "25 00:00", "25 01:00", "25 02:00", "25 03:00"]);
}

#[tokio::test]
async fn three_schedulers_enqueue_one_job_for_each_tick() {
    let db = Db::new().await;
    let schedules = || {
        let every_second = Schedule::new("each_second", "* * * * * *", &Note::new("second"));
        vec![every_second.missed(MissedPolicy::All { at_most: 1000 }), hourly("hourly")]
    };
    let mut running = tokio::task::JoinSet::new();
    for name in ["A", "B", "C"] {
        let scheduler = Scheduler::new(db.store.clone(), name, schedules()).expect("makes sense");
        scheduler.declare().await.expect("declared");
        if name == "A" {
            miss(&db, "hourly", 1).await;
            miss(&db, "each_second", 30).await;
        }
        running.spawn(async move { scheduler.run().await });
    }
    let begun = Instant::now();
    while n_jobs(&db).await < 34 {
        assert!(begun.elapsed() < Duration::from_secs(30), "waited 30 s, {} jobs", n_jobs(&db).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.shutdown().await;
    let ticks = history(&db, "each_second").await;
    for pair in ticks.windows(2) {
        assert_eq!(pair[1].tick_at - pair[0].tick_at, TimeDelta::seconds(1), "no tick is missing");
    }
    assert!(ticks.iter().all(|tick| tick.outcome == TickOutcome::Enqueued), "{ticks:#?}");
    let jobs: HashSet<JobId> = ticks.iter().filter_map(|tick| tick.job_id).collect();
    assert_eq!(jobs.len(), ticks.len(), "each tick has its own job");
    assert_eq!(history(&db, "hourly").await.len(), 1);
    assert_eq!(n_jobs(&db).await, ticks.len() as i64 + 1, "no job without a tick");
    // By the database's clock none came early, and those in time came soon.
    assert!(ticks.iter().all(|tick| tick.created_at >= tick.tick_at));
}

#[tokio::test]
async fn schedulers_that_are_killed_over_and_over_leave_no_tick_out_and_double_none() {
    let db = Db::new().await;
    let every_second = || {
        let schedule = Schedule::new("each_second", "* * * * * *", &Note::new("second"));
        vec![schedule.missed(MissedPolicy::All { at_most: 1000 })]
    };
    Scheduler::new(db.store.clone(), "first", every_second()).expect("makes sense").declare().await.expect("declared");
    let first = next_at(&db, "each_second").await.expect("has one");
    let mut running = std::collections::VecDeque::new();
    // Dropped in the midst of a statement or between two, as a killed process would leave it; its server side may still finish.
    for n in 0..40 {
        let url = db.url.clone();
        running.push_back(tokio::spawn(async move {
            let store = jobdeck::Store::connect(&url, 1).await.expect("connected");
            Scheduler::new(store, &format!("S{n}"), every_second()).expect("makes sense").run().await;
        }));
        if running.len() > 3 {
            running.pop_front().expect("one runs").abort();
        }
        tokio::time::sleep(Duration::from_millis(137)).await;
    }
    running.iter().for_each(|task| task.abort());
    let last = declared(&db, every_second().remove(0)).await;
    last.pass().await.expect("passed");
    let ticks = history(&db, "each_second").await;
    assert_eq!(ticks[0].tick_at, first);
    assert!(ticks.windows(2).all(|pair| pair[1].tick_at - pair[0].tick_at == TimeDelta::seconds(1)), "{ticks:#?}");
    let jobs: HashSet<JobId> = ticks.iter().filter_map(|tick| tick.job_id).collect();
    assert_eq!((jobs.len() as i64, n_jobs(&db).await), (ticks.len() as i64, ticks.len() as i64));
    assert!(ticks.len() >= 5, "{} ticks", ticks.len());
}

#[tokio::test]
async fn tick_without_its_job_cannot_be() {
    let db = Db::new().await;
    let scheduler = declared(&db, hourly("digest")).await;
    let due = miss(&db, "digest", 1).await;
    // Whoever is killed in the midst of it: the connection ends before the statement does.
    sqlx::raw_sql(
        "create function jobdeck.kill_me() returns trigger language plpgsql as $$
         begin perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(0.1); return new; end $$;
         create trigger kill_me after insert on jobdeck.schedule_ticks for each row execute function jobdeck.kill_me()",
    )
    .execute(db.store.pool())
    .await
    .expect("trap set");
    assert!(scheduler.pass().await.is_err(), "its connection is gone");
    assert_eq!((n_jobs(&db).await, history(&db, "digest").await), (0, vec![]));
    assert_eq!(next_at(&db, "digest").await, Some(due[0]), "the tick is still to be seen to");
    sqlx::raw_sql("drop trigger kill_me on jobdeck.schedule_ticks").execute(db.store.pool()).await.expect("trap gone");
    assert_eq!(outcomes(&scheduler.pass().await.expect("passed")), [(due[0], TickOutcome::Enqueued)]);
    assert_eq!(n_jobs(&db).await, 1);
}

#[tokio::test]
async fn tick_that_has_its_row_never_gets_a_second_job() {
    let db = Db::new().await;
    let scheduler = declared(&db, hourly("digest")).await;
    let due = miss(&db, "digest", 1).await;
    assert_eq!(scheduler.pass().await.expect("passed").len(), 1);
    // As after a restore of that row alone, or a hand that moved it.
    set_next(&db, "digest", due[0]).await;
    assert_eq!(scheduler.pass().await.expect("passed"), []);
    assert_eq!((n_jobs(&db).await, history(&db, "digest").await.len()), (1, 1));
}

#[tokio::test]
async fn paused_schedule_enqueues_nothing_and_goes_on_from_the_moment_it_is_resumed() {
    let db = Db::new().await;
    let scheduler = declared(&db, hourly("digest").missed(MissedPolicy::All { at_most: 9 })).await;
    assert_eq!(db.store.schedule_pause("digest", &person()).await.expect("paused"), ScheduleChange::Done);
    assert_eq!(db.store.schedule_pause("digest", &person()).await.expect("paused"), ScheduleChange::Unchanged);
    assert_eq!(db.store.schedule_pause("other", &person()).await.expect("answered"), ScheduleChange::NotFound);
    miss(&db, "digest", 3).await;
    assert_eq!(scheduler.pass().await.expect("passed"), []);
    // A new start of the program does not resume it.
    declared(&db, hourly("digest")).await;
    let info = db.store.schedule_get("digest").await.expect("read").expect("is there");
    assert_eq!((info.paused_by.as_deref(), info.next_runs(3)), (Some("Ana Costa"), vec![]));

    assert_eq!(db.store.schedule_resume("digest", &person()).await.expect("resumed"), ScheduleChange::Done);
    assert_eq!(db.store.schedule_resume("digest", &person()).await.expect("resumed"), ScheduleChange::Unchanged);
    assert_eq!(db.store.schedule_resume("other", &person()).await.expect("answered"), ScheduleChange::NotFound);
    assert!(next_at(&db, "digest").await.expect("has one") > db_now(&db).await - TimeDelta::seconds(5));
    assert_eq!(scheduler.pass().await.expect("passed").len(), 0);
    let audit = db.store.audit_list("digest", 10).await.expect("read");
    assert_eq!(
        audit.iter().map(|entry| entry.action.as_str()).collect::<Vec<_>>(),
        ["resume_schedule", "pause_schedule"]
    );
    assert!(audit.iter().all(|entry| entry.actor == "Ana Costa"));
}

#[tokio::test]
async fn pause_that_was_answered_wins_over_a_tick_read_before() {
    let db = Db::new().await;
    let scheduler = declared(&db, hourly("digest")).await;
    miss(&db, "digest", 1).await;
    // The scheduler has read the row and waits for its lock; the pause commits meanwhile.
    let mut holder = db.connection().await;
    sqlx::raw_sql("begin; select from jobdeck.schedules for update").execute(&mut holder).await.expect("held");
    let passed = scheduler.pass().await.expect("passed");
    assert_eq!(passed, [], "a row that somebody changes is left for the next look");
    sqlx::raw_sql("update jobdeck.schedules set paused_at = now(), paused_by = 'Ana', version = version + 1; commit")
        .execute(&mut holder)
        .await
        .expect("paused");
    assert_eq!(scheduler.pass().await.expect("passed"), []);
    assert_eq!(n_jobs(&db).await, 0);
}

#[tokio::test]
async fn run_now_is_a_job_of_its_own_with_one_audit_row_also_while_paused() {
    let db = Db::new().await;
    let scheduler = declared(&db, hourly("digest")).await;
    let next = next_at(&db, "digest").await;
    db.store.schedule_pause("digest", &person()).await.expect("paused");
    for n in 1..=2 {
        let RunNow::Done(tick) = db.store.schedule_run_now("digest", &person()).await.expect("run") else {
            panic!("it is there")
        };
        assert_eq!((tick.outcome, tick.requested_by.as_deref()), (TickOutcome::Enqueued, Some("Ana Costa")));
        assert_eq!(db.job(tick.job_id.expect("a job")).await.state, JobState::Pending);
        assert_eq!(n_jobs(&db).await, n);
    }
    assert_eq!(next_at(&db, "digest").await, next, "its own ticks stay where they are");
    let runs = db.scalar("select count(*) from jobdeck.audit_log where action = 'run_schedule' and target = 'digest'");
    assert_eq!(runs.await, 2);
    assert_eq!(db.store.schedule_run_now("other", &person()).await.expect("answered"), RunNow::NotFound);
    assert_eq!(db.scalar("select count(*) from jobdeck.audit_log where target = 'other'").await, 0);
    assert_eq!(scheduler.pass().await.expect("passed"), []);
}

/// Its key is declared, so SQL knows it.
#[derive(Serialize, Deserialize)]
struct Report {
    day: String,
}

impl JobType for Report {
    const TYPE: &'static str = "report";
    fn policy() -> Policy {
        Policy { key: Some(KeyPolicy::of(["day"])), ..Policy::default() }
    }
}

#[tokio::test]
async fn refused_job_is_in_the_history_and_keeps_no_other_schedule_back() {
    let db = Db::new().await;
    let schedules = vec![hourly("bad"), hourly("good"), hourly("worse")];
    let scheduler = Scheduler::new(db.store.clone(), "A", schedules).expect("makes sense");
    scheduler.declare().await.expect("declared");
    for name in ["bad", "good", "worse"] {
        miss(&db, name, 1).await;
    }
    // A newer version of the type makes its key of a field that this payload does not have.
    sqlx::query("update jobdeck.schedules set type = 'report' where name = 'bad'")
        .execute(db.store.pool())
        .await
        .expect("changed");
    let mut connection = db.connection().await;
    let types = [(Report::TYPE.to_owned(), Report::policy())];
    jobdeck::Store::job_type_register(&mut connection, &types).await.expect("registered");
    // And one that no program can read.
    sqlx::query("update jobdeck.schedules set cron = 'whenever' where name = 'worse'")
        .execute(db.store.pool())
        .await
        .expect("changed");

    let ticks = scheduler.pass().await.expect("passed");
    assert_eq!(ticks.len(), 2, "{ticks:#?}");
    let bad = history(&db, "bad").await;
    assert_eq!((bad.len(), bad[0].outcome, bad[0].job_id), (1, TickOutcome::Refused, None));
    assert!(
        bad[0].error.as_deref().is_some_and(|error| error.starts_with("payload.day: is missing or null")),
        "{bad:#?}"
    );
    assert!(next_at(&db, "bad").await > Some(bad[0].tick_at), "it goes on with the next tick");
    assert_eq!(history(&db, "good").await[0].outcome, TickOutcome::Enqueued);
    let worse = db.store.schedule_get("worse").await.expect("read").expect("is there");
    assert!(
        worse.problem.as_deref().is_some_and(|text| text.starts_with("schedule \"worse\": cron \"whenever\"")),
        "{worse:#?}"
    );
    assert!(worse.next_runs(3).is_empty());
    assert_eq!(n_jobs(&db).await, 1);
    let RunNow::Done(tick) = db.store.schedule_run_now("bad", &person()).await.expect("answered") else { panic!() };
    assert_eq!(tick.outcome, TickOutcome::Refused);
}

#[tokio::test]
async fn key_that_somebody_holds_open_keeps_no_other_schedule_back() {
    let db = Db::new().await;
    let schedules = vec![Schedule::new("held", "5 * * * *", &Keyed::new("k")), hourly("later")];
    let scheduler = Scheduler::new(db.store.clone(), "A", schedules).expect("makes sense");
    scheduler.declare().await.expect("declared");
    let mut holder = db.connection().await;
    sqlx::raw_sql("begin; select jobdeck.enqueue('keyed', '{}', key => 'k')").execute(&mut holder).await.expect("held");
    for name in ["held", "later"] {
        miss(&db, name, 1).await;
    }
    set_next(&db, "held", db_now(&db).await - TimeDelta::hours(2)).await;
    let begun = Instant::now();
    scheduler.pass().await.expect("passed");
    assert!(begun.elapsed() < Duration::from_secs(8), "took {:?}", begun.elapsed());
    assert_eq!((history(&db, "held").await.len(), history(&db, "later").await.len()), (0, 1));
    sqlx::raw_sql("rollback").execute(&mut holder).await.expect("gone");
    let ticks = scheduler.pass().await.expect("passed");
    assert_eq!(ticks.len(), 1);
    assert_eq!(db.job(ticks[0].job_id.expect("a job")).await.idempotency_key.as_deref(), Some("k"));
}

#[tokio::test]
async fn key_decides_whether_a_tick_finds_its_job_there_already() {
    let db = Db::new().await;
    let report = Report { day: "always".to_owned() };
    let all = MissedPolicy::All { at_most: 9 };
    let constant = declared(&db, Schedule::new("constant", "5 * * * *", &report).missed(all)).await;
    let by_tick = Schedule::new("by_tick", "5 * * * *", &report).missed(all).tick_field("day");
    let by_tick = declared(&db, by_tick).await;
    for (name, scheduler) in [("constant", constant), ("by_tick", by_tick)] {
        miss(&db, name, 2).await;
        assert_eq!(scheduler.pass().await.expect("passed").len(), 2);
    }
    let found = |ticks: Vec<Tick>| ticks.iter().map(|tick| tick.outcome).collect::<Vec<_>>();
    let constant = history(&db, "constant").await;
    assert_eq!(constant[0].job_id, constant[1].job_id);
    assert_eq!(found(constant), [TickOutcome::Enqueued, TickOutcome::Duplicate]);
    assert_eq!(found(history(&db, "by_tick").await), [TickOutcome::Enqueued, TickOutcome::Enqueued]);
}

#[tokio::test]
async fn two_versions_of_a_program_do_not_fight() {
    let db = Db::new().await;
    let old = declared(&db, hourly("digest").revision(1)).await;
    let version = "select version from jobdeck.schedules";
    assert_eq!(db.scalar(version).await, 0);
    // The same again changes nothing; a later start of the same revision decides.
    declared(&db, hourly("digest").revision(1)).await;
    assert_eq!(db.scalar(version).await, 0);
    let new = Schedule::new("digest", "0 9 * * *", &Note::new("daily")).zone("Asia/Kolkata").revision(2);
    let new = declared(&db, new).await;
    assert_eq!(db.scalar(version).await, 1);
    // The old version starts once more, as after a crash in the midst of a roll-out.
    declared(&db, hourly("digest").revision(1)).await;
    assert_eq!(db.scalar(version).await, 1);
    let next = next_at(&db, "digest").await.expect("has one");
    assert_eq!(next.format("%H:%M").to_string(), "03:30", "09:00 in Kolkata");
    // Both see to the row as it stands.
    miss(&db, "digest", 1).await;
    let ticks = old.pass().await.expect("passed");
    assert_eq!(db.job(ticks[0].job_id.expect("a job")).await.payload, json!({"text": "daily"}));
    assert_eq!(new.pass().await.expect("passed"), []);
}

#[tokio::test]
async fn schedule_nobody_declares_stands_still_until_it_is_declared_again_or_deleted() {
    let db = Db::new().await;
    declared(&db, hourly("gone")).await;
    miss(&db, "gone", 2).await;
    let other = declared(&db, hourly("other")).await;
    assert_eq!(other.pass().await.expect("passed"), []);
    assert_eq!(db.store.schedule_delete("gone", &person()).await.expect("answered"), ScheduleDeleted::StillDeclared);
    sqlx::query("update jobdeck.schedules set seen_at = now() - interval '4 minutes' where name = 'gone'")
        .execute(db.store.pool())
        .await
        .expect("silent");
    let info = db.store.schedule_get("gone").await.expect("read").expect("is there");
    assert!(!info.is_run);
    let again = declared(&db, hourly("gone")).await;
    assert_eq!(again.pass().await.expect("passed").len(), 1);
    sqlx::query("update jobdeck.schedules set seen_at = now() - interval '4 minutes'")
        .execute(db.store.pool())
        .await
        .expect("silent");
    assert_eq!(db.store.schedule_delete("gone", &person()).await.expect("answered"), ScheduleDeleted::Deleted);
    assert_eq!(db.store.schedule_delete("gone", &person()).await.expect("answered"), ScheduleDeleted::NotFound);
    assert_eq!((history(&db, "gone").await, n_jobs(&db).await), (vec![], 1));
    assert_eq!(db.store.audit_list("gone", 10).await.expect("read").len(), 1);
}

#[tokio::test]
async fn schedule_a_person_made_is_run_by_every_worker() {
    let db = Db::new().await;
    let schedule =
        Schedule::of_payload("backup", "30 2 * * *", "sync_files", json!({"from": "a"})).zone("Europe/Berlin");
    assert_eq!(db.store.schedule_create(&schedule, &person()).await.expect("made"), ScheduleCreated::Created);
    assert_eq!(db.store.schedule_create(&schedule, &person()).await.expect("answered"), ScheduleCreated::NameTaken);
    let refused = db.store.schedule_create(&schedule.clone().zone("Atlantis"), &person()).await;
    assert!(matches!(refused, Err(StoreError::Schedule(error)) if error.field == "zone"));
    assert_eq!(db.store.audit_list("backup", 10).await.expect("read").len(), 1);
    miss(&db, "backup", 1).await;
    let other = declared(&db, hourly("other")).await;
    let ticks = other.pass().await.expect("passed");
    assert_eq!(db.job(ticks[0].job_id.expect("a job")).await.job_type, "sync_files");
    assert_eq!(db.store.schedule_delete("backup", &person()).await.expect("answered"), ScheduleDeleted::Deleted);
    assert_eq!(db.store.schedule_list().await.expect("read").len(), 1);
}

async fn write(_ctx: Ctx, _note: Note) -> Result<(), JobError> {
    Ok(())
}

#[tokio::test]
async fn schedules_that_make_no_sense_are_refused_at_start_by_name() {
    let db = Db::new().await;
    let refused = |schedules: Vec<Schedule>| {
        let worker = Worker::builder(db.store.clone(), &db.url).register(write).queue("default", 1);
        match schedules.into_iter().fold(worker, |worker, schedule| worker.schedule(schedule)).build() {
            Err(WorkerError::Schedule(error)) => {
                assert!(error.to_string().starts_with(&format!("schedule {:?}: {} ", error.schedule, error.field)));
                (error.schedule, error.field)
            }
            Err(error) => panic!("another error: {error}"),
            Ok(_) => ("none".to_owned(), "none"),
        }
    };
    let of = |payload: Value| Schedule::of_payload("s", "@daily", "note", payload);
    let cases = [
        (Schedule::new("a b", "@daily", &Note::new("")), "name"),
        (Schedule::new("s", "* * *", &Note::new("")), "cron"),
        (Schedule::new("s", "0 0 30 2 *", &Note::new("")), "cron"),
        (hourly("s").zone("Berlin"), "zone"),
        (hourly("s").queue("a/b"), "queue"),
        (hourly("s").missed(MissedPolicy::All { at_most: 0 }), "missed.at_most"),
        (hourly("s").missed(MissedPolicy::All { at_most: 1001 }), "missed.at_most"),
        (hourly("s").tick_field(""), "tick_field"),
        (hourly("s").tag(""), "tags"),
        (hourly("s").owner("a\0"), "owner"),
        (Schedule::of_payload("s", "@daily", "a b", json!({})), "type"),
        (of(json!([])), "payload"),
        (of(json!({"text": "a\0b"})), "payload"),
        (of(json!({"text": "x".repeat(9 * 1024 * 1024)})), "payload"),
    ];
    for (schedule, field) in cases {
        let name = if field == "name" { "a b" } else { "s" };
        assert_eq!(refused(vec![schedule]), (name.to_owned(), field));
    }
    assert_eq!(refused(vec![hourly("s"), hourly("t"), hourly("s")]), ("s".to_owned(), "name"));
    assert_eq!(refused(vec![hourly("s"), hourly("t")]), ("none".to_owned(), "none"));
}

#[tokio::test]
async fn worker_runs_its_schedules_through_cut_connections_and_stands_still_when_nothing_is_due() {
    let db = Db::new().await;
    let every_second = Schedule::new("each_second", "* * * * * *", &Note::new("s"));
    let worker = Worker::builder(db.store.clone(), &db.url).register(write).queue("default", 4).name("W");
    let worker = worker.schedule(every_second.missed(MissedPolicy::All { at_most: 100 })).build().expect("built");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    let succeeded = "select count(*) from jobdeck.jobs where status = 'succeeded'";
    let begun = Instant::now();
    let mut n_cuts = 0;
    while db.scalar(succeeded).await < 4 {
        assert!(begun.elapsed() < Duration::from_secs(40), "waited 40 s");
        if n_cuts < 3 && begun.elapsed() > Duration::from_millis(900 * (n_cuts + 1)) {
            n_cuts += 1;
            let mut cutter = db.connection().await;
            sqlx::query(
                "select pg_terminate_backend(pid) from pg_stat_activity
                 where datname = current_database() and application_name = 'jobdeck' and pid <> pg_backend_pid()",
            )
            .execute(&mut cutter)
            .await
            .expect("cut");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ticks = history(&db, "each_second").await;
    assert!(ticks.windows(2).all(|pair| pair[1].tick_at - pair[0].tick_at == TimeDelta::seconds(1)), "{ticks:#?}");
    // A schedule that is made while it sleeps is noticed without a poll: the pause ends the ticks, so nothing else wakes it.
    db.store.schedule_pause("each_second", &person()).await.expect("paused");
    tokio::time::sleep(Duration::from_secs(2)).await;
    let looks = "select coalesce(sum(calls), 0)::bigint from (select count(*) as calls from jobdeck.schedule_ticks) t";
    let before = db.scalar(looks).await;
    let soon = Schedule::of_payload("by_hand", "* * * * * *", "note", json!({"text": "hand"}));
    db.store.schedule_create(&soon, &person()).await.expect("made");
    let begun = Instant::now();
    while history(&db, "by_hand").await.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(6), "noticed sooner than by a look every 10 s");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(db.scalar("select count(*) from jobdeck.schedule_ticks where schedule = 'each_second'").await, before);
    stop.send(()).expect("runs");
    running.await.expect("ended").expect("stopped");
}

#[tokio::test]
async fn schedules_that_wait_or_cannot_run_cost_a_look_now_and_then() {
    let db = Db::new().await;
    let schedules = vec![hourly("broken"), hourly("paused"), hourly("waiting")];
    let scheduler = Scheduler::new(db.store.clone(), "A", schedules).expect("makes sense");
    scheduler.declare().await.expect("declared");
    miss(&db, "broken", 1).await;
    miss(&db, "paused", 1).await;
    sqlx::raw_sql(
        "update jobdeck.schedules set cron = 'whenever' where name = 'broken';
         update jobdeck.schedules set paused_at = now(), paused_by = 'Ana' where name = 'paused'",
    )
    .execute(db.store.pool())
    .await
    .expect("set");
    let running = tokio::spawn(async move { scheduler.run().await });
    tokio::time::sleep(Duration::from_secs(5)).await;
    running.abort();
    let scans = "select coalesce(seq_scan + idx_scan, 0) from pg_stat_user_tables where relname = 'schedules'";
    let n = db.scalar(scans).await;
    assert!(n < 50, "the table was read {n} times in five seconds");
    let problem = db.store.schedule_get("broken").await.expect("read").expect("is there").problem;
    assert!(problem.is_some(), "it was looked at");
}

#[tokio::test]
async fn history_keeps_the_newest_thousand() {
    let db = Db::new().await;
    declared(&db, hourly("digest")).await;
    sqlx::query(
        "insert into jobdeck.schedule_ticks (schedule, tick_at, outcome, n_missed, missed_from)
         select 'digest', now() - i * interval '1 hour', 'skipped', 1, now() from generate_series(1, 1200) i",
    )
    .execute(db.store.pool())
    .await
    .expect("filled");
    let scheduler = declared(&db, hourly("digest")).await;
    scheduler.prune().await.expect("pruned");
    let ticks = history(&db, "digest").await;
    assert_eq!(ticks.len(), 1000);
    assert!(db_now(&db).await - ticks[0].tick_at < TimeDelta::hours(1001));
}
