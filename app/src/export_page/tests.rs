use chrono::TimeZone as _;
use jobdeck::code;
use serde_json::json;

use super::*;

fn at(second: u32) -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 11, 30, 14, second / 60, second % 60).unwrap()
}

fn job(state: JobState) -> JobGlance {
    JobGlance {
        id: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
        state,
        version: 9,
        attempts: 1,
        max_attempts: 5,
        starts: 1,
        run_after: at(0),
        started_at: Some(at(6)),
        finished_at: state.is_final().then(|| at(100)),
        created_at: at(0),
        stage: None,
        progress: None,
        stages_at: json!({}),
        error_class: None,
        error_code: None,
        error_params: None,
        result: None,
        owner: None,
        cancel_requested_at: None,
        fields: json!({"title": "Q3 research notes", "export_format": "pdf"}),
        rerun: None,
        now: at(100),
    }
}

fn pending() -> JobGlance {
    JobGlance { attempts: 0, starts: 0, started_at: None, ..job(JobState::Pending) }
}

fn uploading(state: JobState) -> JobGlance {
    JobGlance {
        stage: Some("uploading".to_owned()),
        stages_at: json!({"generating": at(6), "rendering": at(7), "uploading": at(90)}),
        ..job(state)
    }
}

fn succeeded() -> JobGlance {
    let file = json!({"object": "exports/x/1.pdf", "name": "Q3.pdf", "bytes": 1_234_567, "pages": 64});
    JobGlance {
        stage: Some("downloadable".to_owned()),
        result: Some(json!({ "file": file })),
        ..uploading(JobState::Succeeded)
    }
}

fn failed(error_code: &str, class: FailureClass, params: Value) -> JobGlance {
    JobGlance {
        error_code: Some(error_code.to_owned()),
        error_class: Some(class),
        error_params: Some(params),
        stage: Some("generating".to_owned()),
        stages_at: json!({"generating": at(6)}),
        ..job(JobState::Failed)
    }
}

fn facts() -> ExportFacts {
    ExportFacts {
        ahead: None,
        run_seconds: None,
        slots: 4,
        link: "/e/token".to_owned(),
        link_expires_at: at(0) + chrono::TimeDelta::days(7),
        can_cancel: true,
        can_again: true,
        now: at(95),
        lang: None,
    }
}

fn view(job: &JobGlance, facts: ExportFacts) -> ExportView {
    ExportView::new(job, &[], facts)
}

fn page(job: &JobGlance, facts: ExportFacts, locale: Locale) -> String {
    let assets =
        Assets { css: "/assets/app.css".into(), progress_js: "/assets/progress.js".into(), ..Assets::default() };
    let frame = Frame { locale, theme: None, assets: &assets, nonce: "n0nce" };
    render_page(&view(job, facts), &frame, None)
}

/// What a person reads: no tags, blanks joined.
fn words_of(html: &str) -> String {
    let mut text = String::new();
    let mut in_tag = false;
    for character in html.chars() {
        match character {
            '<' => in_tag = true,
            '>' => in_tag = false,
            other if !in_tag => text.push(other),
            _ => {}
        }
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn card_words(job: &JobGlance, facts: ExportFacts, locale: Locale) -> String {
    words_of(&render_card(&view(job, facts), locale))
}

fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[test]
fn waiting_tells_place_and_estimate() {
    let facts = || ExportFacts { ahead: Some(3), slots: 1, run_seconds: Some((18.0, 28.0)), ..facts() };
    let text = card_words(&pending(), facts(), Locale::En);
    says(
        &text,
        &["Waiting in line", "4th", "3 ahead of you", "1–2 min", "usually 15–30 s of work", "Cancel this export"],
    );
    let text = card_words(&pending(), facts(), Locale::ZhCn);
    says(&text, &["正在排队", "第 4 位", "前面还有 3 个", "1–2 分钟", "取消导出"]);
    says(&page(&pending(), facts(), Locale::En), &["<title>Waiting, 4th in line – Jobdeck</title>"]);
    // Without experience the place stands alone; without a machine not even that.
    let text = card_words(&pending(), ExportFacts { ahead: Some(0), ..super::tests::facts() }, Locale::En);
    says(&text, &["1st", "you are next"]);
    assert!(!text.contains("Ready in about"), "{text}");
    let text = card_words(&pending(), ExportFacts { ahead: Some(0), slots: 0, ..super::tests::facts() }, Locale::En);
    says(&text, &["as soon as a machine is free"]);
    assert!(!text.contains("1st"), "{text}");
}

#[test]
fn running_stage_shows_its_percent_and_the_steps_before_it() {
    let job = JobGlance { progress: Some(82), ..uploading(JobState::Running) };
    let html = page(&job, facts(), Locale::En);
    says(&html, &["<title>Uploading, 82\u{202f}% – Jobdeck</title>", "width=\"82%\"", "aria-valuenow=\"82\""]);
    let text = card_words(&job, facts(), Locale::En);
    says(
        &text,
        &[
            "82 % of this step",
            "Waiting, done6 s",
            "Generating, done1 s",
            "Rendering, done1 min 23 s",
            "Uploading, now0:05",
        ],
    );
    assert!(!page(&uploading(JobState::Running), facts(), Locale::En).contains("progressbar"));
}

#[test]
fn retry_tells_when_and_why() {
    let job = JobGlance {
        attempts: 2,
        run_after: at(137),
        error_class: Some(FailureClass::Retryable),
        error_code: Some(code::CONNECTION.to_owned()),
        error_params: Some(json!({"reason": "storage"})),
        ..uploading(JobState::Retrying)
    };
    let text = card_words(&job, facts(), Locale::En);
    says(&text, &["Taking a little longer", "The storage cannot be reached", "0:42", "at 14:02:17"]);
    assert!(!text.contains("operator"), "{text}");
    let due = ExportFacts { now: at(140), ahead: Some(1), ..facts() };
    says(&card_words(&job, due, Locale::En), &["starts as soon as a machine is free", "2nd"]);
    let limited =
        JobGlance { error_class: Some(FailureClass::RateLimited), error_code: Some(code::SLOW_DOWN.to_owned()), ..job };
    says(&card_words(&limited, facts(), Locale::En), &["The service is busy. We will try again at 14:02"]);
    says(&card_words(&limited, facts(), Locale::ZhCn), &["服务繁忙，将于 14:02 重试"]);
}

#[test]
fn ready_offers_the_file() {
    let html = page(&succeeded(), facts(), Locale::En);
    says(&html, &["href=\"/e/01890a5d-ac96-774b-bcce-b302099a8057/file\"", "data-final=\"1\"", "href=\"/e/token\""]);
    assert!(!html.contains("http-equiv"), "a finished page does not reload itself");
    let text = card_words(&succeeded(), facts(), Locale::En);
    says(&text, &["PDF, 64 pages, 1.2 MB", "Finished at 14:01, in 1 min 40 s.", "Download PDF, 1.2 MB", "Copy link"]);
    says(&text, &["Mon 7 Dec 2026, 14:00"]);
    let text = card_words(&succeeded(), facts(), Locale::ZhCn);
    says(&text, &["PDF，64 页，1.2 MB", "用时 1 分 40 秒", "2026 年 12 月 7 日（周一）14:00"]);
}

#[test]
fn faults_of_the_text_name_cause_place_and_remedy() {
    let unrecoverable = FailureClass::Unrecoverable;
    let glyph = json!({"reason": "missing_glyph", "line": 1180, "code_point": "U+1F9FF", "character": "🧿"});
    let text = card_words(&failed(code::INVALID_CONTENT, unrecoverable, glyph), facts(), Locale::En);
    says(&text, &["U+1F9FF on line 1180", "would end the same way", "Remove or replace", "HTML", "099a8057"]);
    let image = json!({"reason": "broken_image", "fault": "damaged", "line": 12});
    let job = failed(code::INVALID_CONTENT, unrecoverable, image);
    says(&card_words(&job, facts(), Locale::En), &["The image on line 12 is damaged", "Replace or remove that image"]);
    says(&card_words(&job, facts(), Locale::ZhCn), &["第 12 行的图片已损坏", "替换或删除该图片"]);
}

#[test]
fn every_code_and_reason_has_a_sentence_of_its_own() {
    let unrecoverable = FailureClass::Unrecoverable;
    let reasons = ["empty_text", "too_large", "contains_nul", "missing_glyph", "too_deep", "too_slow"];
    let faults = ["address", "format", "damaged", "too_large", "linked"];
    let codes = [code::INVALID_PAYLOAD, code::NOT_FOUND, code::PERMISSION, code::QUOTA, code::INVALID_CREDENTIALS];
    let jobs: Vec<JobGlance> = reasons
        .iter()
        .map(|reason| failed(code::INVALID_CONTENT, unrecoverable, json!({"reason": reason, "line": 1})))
        .chain(faults.iter().map(|fault| {
            failed(code::INVALID_CONTENT, unrecoverable, json!({"reason": "broken_image", "fault": fault, "line": 1}))
        }))
        .chain(codes.iter().map(|code| failed(code, unrecoverable, json!({}))))
        .chain([
            failed("typeset", unrecoverable, json!({})),
            failed("permission", unrecoverable, json!({"reason": "storage"})),
            failed("timeout", FailureClass::Retryable, json!({})),
            failed(code::STALLED_OUT, FailureClass::Stalled, json!({})),
        ])
        .collect();
    for locale in Locale::ALL {
        let mut seen = std::collections::HashSet::new();
        for job in &jobs {
            let params = job.error_params.as_ref().unwrap().as_object().unwrap();
            let error_code = job.error_code.as_deref().unwrap();
            let sentence = recipient_sentence(locale, job.error_class, error_code, params, 5, true);
            assert!(!sentence.contains('{') && !sentence.contains("export-"), "{sentence}");
            assert_ne!(sentence, locale.text("export-content-other"));
            assert_ne!(sentence, locale.text("export-failed-other"));
            assert!(seen.insert(sentence.clone()), "twice: {sentence}");
            assert!(!words::advice(locale, &view(job, facts())).is_empty());
        }
    }
    // What nobody has a sentence for still gets one; a code from data cannot name another message.
    let other = recipient_sentence(Locale::En, Some(unrecoverable), "head-ready", &Map::new(), 1, true);
    assert_eq!(other, Locale::En.text("export-failed-other"));
}

#[test]
fn data_is_text_and_operators_words_stay_away() {
    let hostile = "</title><script>alert(1)</script>\"'&\u{0}";
    let mut job = failed(code::INVALID_CONTENT, FailureClass::Unrecoverable, json!({"reason": hostile, "line": "<b>"}));
    job.fields["title"] = json!(hostile);
    job.fields["export_format"] = json!("<i>");
    for state in JobState::ALL {
        let job = JobGlance { state, stage: Some(hostile.to_owned()), ..job.clone() };
        for locale in Locale::ALL {
            let html = page(&job, facts(), locale);
            assert!(!html.contains("<script>") && !html.contains("<i>") && !html.contains("<b>&lt;"), "{html}");
            assert_eq!(html.matches("</title>").count(), 1);
            for secret in ["operator's detail", "worker-7", "secret words", "exports/x"] {
                assert!(!html.contains(secret), "{secret}");
            }
        }
    }
}

#[test]
fn every_page_is_small_has_no_inline_style_and_no_missing_message() {
    let jobs = [
        pending(),
        uploading(JobState::Running),
        uploading(JobState::Retrying),
        succeeded(),
        failed(code::PERMISSION, FailureClass::Unrecoverable, json!({})),
        job(JobState::Canceled),
    ];
    for job in &jobs {
        for locale in Locale::ALL {
            let html = page(job, ExportFacts { ahead: Some(2), run_seconds: Some((20.0, 40.0)), ..facts() }, locale);
            assert!(html.len() < 30_000, "{} bytes", html.len());
            assert!(!html.contains(" style="), "{html}");
            assert_eq!(html.matches("<h1").count(), 1);
            assert_eq!(html.matches("<script").count(), 1);
            let visible = words_of(&html);
            assert!(!visible.contains("export-") && !visible.contains("{$") && !visible.contains("{ $"), "{visible}");
            assert!(!visible.contains(words::SLOT), "{visible}");
            // Each icon is in the sprite.
            for name in html.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(view::SPRITE.contains(&format!("id=\"{name}\"")), "{name}");
            }
        }
    }
}

#[test]
fn problems_read_the_same_for_what_is_not_there_and_what_is_not_yours() {
    let assets = Assets::default();
    for locale in Locale::ALL {
        let frame = Frame { locale, theme: Some(Theme::Dark), assets: &assets, nonce: "n" };
        let id = pending().id;
        for problem in [
            Problem::LinkInvalid,
            Problem::LinkExpired,
            Problem::NotReady(id),
            Problem::FileGone { id, can_again: false },
            Problem::Trouble,
        ] {
            let html = render_problem(problem, &frame, "/e/x\"><script>");
            assert!(!html.contains("<script"), "{html}");
            assert!(html.contains("data-theme=\"dark\""));
            assert!(!words_of(&html).contains("export-"));
        }
    }
}

#[test]
fn refused_text_comes_back_whole_and_harmless() {
    let assets = Assets::default();
    let frame = Frame { locale: Locale::En, theme: None, assets: &assets, nonce: "n" };
    let refused = RefusedText {
        reason: "Why <not>".to_owned(),
        title: "\"><script>",
        markdown: Some("\n# A & B\n</textarea><script>alert(1)</script>"),
        format: "html",
        mishap: "none",
    };
    let html = render_refused_text(&refused, &frame);
    assert!(!html.contains("<script>"), "{html}");
    // The first line feed after the tag is eaten by browsers, the second is the text's own.
    assert!(html.contains("required>\n\n# A &amp; B\n&lt;/textarea&gt;"), "{html}");
    assert!(html.contains("Why &lt;not&gt;"));
    let chosen = html.split("<input").find(|input| input.contains("value=\"html\"")).unwrap();
    assert!(chosen.contains("checked"), "{chosen}");
    assert!(!render_refused_text(&RefusedText { markdown: None, ..refused }, &frame).contains("<textarea"));
}

#[test]
fn numbers_read_well() {
    let places: Vec<_> = [1, 2, 3, 4, 11, 12, 13, 21, 102, 111, 1204].map(|n| words::place(Locale::En, n)).into();
    assert_eq!(places, ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "102nd", "111th", "1,204th"]);
    let range = |low, high| words::range(Locale::En, low, high);
    assert_eq!(range(0.2, 3.0), "a few seconds");
    assert_eq!(range(41.0, 68.0), "40–70 s");
    assert_eq!(range(70.0, 110.0), "1–2 min");
    assert_eq!(range(600.0, 600.0), "9–10 min");
    assert_eq!(words::stopwatch(at(0), at(38)), "0:38");
    assert_eq!(words::stopwatch(at(38), at(0)), "0:00");
}

#[test]
fn present_history_ends_at_a_persons_retry() {
    let attempt = |token: i64, number: i32, outcome: AttemptOutcome| Attempt {
        job_id: pending().id,
        token,
        attempt: number,
        outcome,
        worker: None,
        stage: None,
        started_at: at(token as u32),
        ended_at: at(token as u32 + 1),
        error_class: None,
        error_code: None,
        error: None,
        error_params: None,
        next_run_at: None,
    };
    use AttemptOutcome::{Failed, RateLimited};
    let history = [attempt(4, 1, RateLimited), attempt(3, 3, Failed), attempt(2, 2, Failed), attempt(1, 1, Failed)];
    let running = JobGlance { attempts: 1, ..job(JobState::Running) };
    let tokens = |job: &JobGlance, attempts: &[Attempt]| -> Vec<i64> {
        present_history(job, attempts).iter().map(|attempt| attempt.token).collect()
    };
    assert_eq!(tokens(&running, &history), [4]);
    assert_eq!(tokens(&running, &history[1..]), [0_i64; 0]);
    let failed = JobGlance { attempts: 3, ..job(JobState::Failed) };
    assert_eq!(tokens(&failed, &history[1..]), [3, 2, 1]);
}
