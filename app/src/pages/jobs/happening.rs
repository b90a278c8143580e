//! One column for all states: stage and percent, why it waits, next try and cause, error, result.

use chrono::{DateTime, Utc};
use jobdeck::{FailureClass, JobState};
use leptos::prelude::*;

use crate::components::badge::{class_icon, class_word};
use crate::components::progress_bar::progress_bar;
use crate::format::long_duration;
use crate::i18n::Locale;
use crate::model::{JobRow, TypeView};
use crate::words;

/// What happens to a job now.
struct Happening {
    class: Option<FailureClass>,
    /// Stage and percent.
    percent: Option<i16>,
    main: String,
    second: String,
}

fn happening(locale: Locale, types: &[TypeView], row: &JobRow, now: DateTime<Utc>) -> Happening {
    let plain = |main: String, second: String| Happening { class: None, percent: None, main, second };
    let stage = row.stage.as_ref().map(|stage| words::stage(locale, types, &row.job_type, stage));
    let cause = || row.error.clone().or_else(|| row.error_code.as_deref().map(|code| words::code(locale, code)));
    let is_due = row.run_after <= now;
    let wait = || long_duration(locale, (row.run_after - now).num_milliseconds() + 999);
    match row.state {
        JobState::Running if row.cancel_requested => {
            plain(locale.text("happening-stopping"), stage.unwrap_or_default())
        }
        JobState::Running => Happening {
            class: None,
            percent: row.progress,
            main: stage.unwrap_or_else(|| locale.text("happening-working")),
            second: String::new(),
        },
        JobState::Pending | JobState::Retrying if !row.type_is_known => {
            plain(locale.text("happening-no-worker"), String::new())
        }
        JobState::Pending if is_due => plain(locale.text("happening-waits"), String::new()),
        JobState::Pending => plain(locale.format("happening-due-in", &[("wait", wait().into())]), String::new()),
        JobState::Retrying => Happening {
            class: row.error_class,
            percent: None,
            main: if is_due {
                locale.text("happening-next-try-now")
            } else {
                locale.format("happening-next-try", &[("wait", wait().into())])
            },
            second: cause().unwrap_or_default(),
        },
        JobState::Failed => Happening {
            class: row.error_class,
            percent: None,
            main: cause().unwrap_or_else(|| words::state_meaning(locale, JobState::Failed)),
            second: String::new(),
        },
        JobState::Succeeded => plain(stage.unwrap_or_else(|| locale.text("happening-finished")), String::new()),
        JobState::Canceled => match stage {
            Some(stage) => plain(locale.format("happening-canceled-in", &[("stage", stage.into())]), String::new()),
            None => plain(locale.text("happening-canceled"), String::new()),
        },
    }
}

/// The cell's content.
pub(super) fn happening_view(locale: Locale, types: &[TypeView], row: &JobRow, now: DateTime<Utc>) -> AnyView {
    let Happening { class, percent, main, second } = happening(locale, types, row, now);
    if let Some(percent) = percent {
        let shown = locale.format("percent", &[("n", percent.clamp(0, 100).into())]);
        return view! {
            <span class="mini-progress">
                {progress_bar(percent, main.clone(), "progress-bar thin")}
                <span>{main} " " <span class="faint">{shown}</span></span>
            </span>
        }
        .into_any();
    }
    let mark = class.map(|class| {
        view! {
            <svg
                class="i i-sm"
                viewBox="0 0 16 16"
                role="img"
                aria-label=words::class(locale, class)
                data-class=class_word(class)
            >
                <use_ href=format!("#i-{}", class_icon(class))></use_>
            </svg>
        }
    });
    let all = if second.is_empty() { main.clone() } else { format!("{main}: {second}") };
    view! {
        <span class="row gap-1.5 max-w-full" title=all>
            {mark}
            <bdi class="truncate">{main}</bdi>
            {(!second.is_empty()).then(|| view! { <bdi class="faint truncate second">{second}</bdi> })}
        </span>
    }
    .into_any()
}
