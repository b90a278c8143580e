//! Where a handler panicked. A task's `JoinError` carries the panic's value but not its place, so a panic hook notes the
//! place under the task's id, and whoever reads the `JoinError` looks it up.
//!
//! The hook calls the one that was there before. A program that sets a hook of its own afterwards, without calling the
//! earlier one, loses the place and nothing else.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Mutex, Once, PoisonError};

use tokio::task::{Id, JoinError};

use crate::{JobError, MAX_ERROR_BYTES, code};

/// How many panics are remembered that nobody has asked for yet. Most are asked for at once; a task that is never
/// joined leaves its own behind.
const REMEMBERED: usize = 256;

static SEEN: Mutex<VecDeque<(Id, String)>> = Mutex::new(VecDeque::new());

/// Sets the hook, once for the process, however many workers start.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    // A panicking thread may not change the hook. Whoever starts a worker there does without places.
    if std::thread::panicking() {
        return;
    }
    INSTALLED.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            note(panic);
            previous(panic);
        }));
    });
}

fn note(panic: &PanicHookInfo<'_>) {
    // Panics outside of tasks are no handler's.
    let (Some(task), Some(location)) = (tokio::task::try_id(), panic.location()) else { return };
    let place = format!("{}:{}", location.file(), location.line());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    if seen.len() >= REMEMBERED {
        seen.pop_front();
    }
    seen.push_back((task, place));
}

/// The place of the task's last panic, which ended it; earlier ones it caught by itself.
fn take_place(task: Id) -> Option<String> {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let place = seen.iter().rev().find(|(of, _)| *of == task).map(|(_, place)| place.clone());
    seen.retain(|(of, _)| *of != task);
    place
}

/// What a task's panic means for the job: class retryable, code `panic`, and the message, at most [`MAX_ERROR_BYTES`]
/// of it, after the place.
pub(crate) fn panic_error(error: JoinError) -> JobError {
    let place = take_place(error.id()).map(|place| format!(" at {place}")).unwrap_or_default();
    match error.try_into_panic() {
        Ok(value) => {
            let text = format!("handler panicked{place}: {}", message(value.as_ref()));
            discard(value);
            JobError::retryable(code::PANIC, text)
        }
        Err(_) => JobError::retryable(code::PANIC, "the handler's task was canceled"),
    }
}

fn message(value: &(dyn Any + Send)) -> &str {
    let text = value.downcast_ref::<&str>().copied().or_else(|| value.downcast_ref::<String>().map(String::as_str));
    // Cut here too, so that a message of megabytes is not copied around.
    text.map_or("a value that is not text", |text| &text[..text.floor_char_boundary(MAX_ERROR_BYTES)])
}

/// Drops a panic's value. Its destructor is the handler's code and may panic again; that must not reach the worker.
fn discard(value: Box<dyn Any + Send>) {
    if let Err(again) = panic::catch_unwind(AssertUnwindSafe(|| drop(value))) {
        // The value of that panic may be one more of its kind.
        std::mem::forget(again);
    }
}
