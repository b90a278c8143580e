### Words that every page shares.

skip-to-content = Skip to content
sidebar = Side bar
nav-main = Main
nav-main-small = Main, small screens
nav-jobs = Jobs
nav-demo = Export a document
nav-demo-short = Export
account-of = Account of { $name }
sign-in = Sign in
sign-out = Sign out
theme-system = Theme: follow system
theme-light = Theme: light
theme-dark = Theme: dark
try-again = Try again

role-viewer = Viewer
role-operator = Operator
role-admin = Admin
admins-only = Admins only.
not-for-viewers = Operators and admins only.

## States

state-pending = Pending
state-running = Running
state-retrying = Retrying
state-succeeded = Succeeded
state-failed = Failed
state-canceled = Canceled
state-pending-meaning = Not started. It may be due later or wait for a slot.
state-running-meaning = A worker holds it and sends heartbeats.
state-retrying-meaning = An attempt ended without success; the next one is planned.
state-succeeded-meaning = Finished.
state-failed-meaning = Ended without success; nothing will happen by itself.
state-canceled-meaning = Stopped by a person or a rule before it ended.

## Stages that no worker has registered

stage-waiting = Waiting
stage-preparing = Preparing
stage-generating = Generating
stage-rendering = Rendering
stage-uploading = Uploading
stage-downloadable = Ready to download
stage-expired = File expired

## Failure classes and codes

class-retryable = Retryable
class-rate-limited = Rate-limited
class-stalled = Stalled
class-unrecoverable = Unrecoverable
class-retryable-meaning = May work later without a change.
class-rate-limited-meaning = A provider asked us to wait; no attempt is counted.
class-stalled-meaning = The worker went silent; the job was taken back, late results are refused.
class-unrecoverable-meaning = Would fail again; attempts left are not used.

code-timeout = Timed out
code-connection = Connection lost
code-http-5xx = Service error
code-panic = Handler crashed
code-io = Input or output failed
code-database = Database error
code-slow-down = Asked to wait
code-mail-deferred = Mail put off by the server
code-lease-lost = Lease lost
code-stalled-out = Stalled too often
code-invalid-payload = Invalid payload
code-invalid-content = Content not processable
code-invalid-recipient = Address does not work
code-not-found = Not found
code-permission = Not permitted
code-quota = Quota used up
code-invalid-credentials = Credentials refused
code-mail-refused = Mail refused
code-http-4xx = Request refused by the service
code-http-unexpected = Unexpected answer

outcome-failed = Failed
outcome-rate-limited = Rate-limited
outcome-snoozed = Put off
outcome-stalled = Stalled
outcome-released = Handed back
outcome-canceled = Canceled

## Actions and what became of them

action-retry = Retry now
action-cancel = Cancel
action-retry-job = retried it
action-rerun-job = had it made again
action-cancel-job = canceled it
action-enqueue-job = enqueued it
action-read-job = opened it
action-follow-job = opened it

notice-retried = It waits to run again.
notice-canceled = It is canceled.
notice-cancel-requested = It was asked to stop. A running job stops within about 2 seconds.
notice-is-state = Nothing was changed, because the job is now in another state: { $state }.
notice-key-held = Nothing was changed: another job holds the same idempotency key.
notice-open-other = Open { $id }
notice-gone = Nothing was changed: the job no longer exists.
notice-forbidden = Nothing was changed: your role does not allow it. The attempt was written to the audit log.
notice-failed = Nothing was changed: the server could not do it. Try again.

## Live updates

live-on = Live
live-paused = Paused
live-off = Not live
live-pause = Pause live updates
live-resume = Resume live updates
live-signed-out = You are signed out. This page no longer follows changes.
live-sign-in = Sign in again
live-silent = Not live. Last update { $time }. Trying again by itself.
live-try-now = Try now

## Errors

error-signed-out = You are signed out
error-signed-out-text = Sign in to go on. Filter and page are kept.
error-forbidden = You cannot see this
error-forbidden-text = An admin can widen your role.
error-not-found = Not found
error-not-found-text = There is nothing at this address.
error-too-slow = This search takes too long
error-too-slow-text = We stopped after 2 seconds to protect the queue. Choose a type or a state, or search for other words.
error-unreachable = The server cannot be reached
error-unreachable-text = Jobs keep running. Try again in a moment.
error-no-database = The database does not answer
error-no-database-text = Nothing is lost: jobs wait there and go on when it is back. Try again in a moment.
error-bad-request = The server could not read this request
error-bad-request-text = Load the page again. If a new version was just started, that is enough.
error-internal = This could not be loaded
error-internal-text = Jobs keep running. Ref { $reference }

not-found-title = Page not found
not-found-heading = There is no such page
not-found-text = The address may be mistyped, or the page was removed.
not-found-link = Go to jobs

## Time and size

time-now = now
time-seconds-ago = { $n } s ago
time-minutes-ago = { $n } min ago
time-hours-ago = { $n } h ago
time-days-ago = { $n } d ago
time-in-seconds = in { $n } s
time-in-minutes = in { $n } min
time-in-hours = in { $n } h
time-in-days = in { $n } d
duration-seconds = { $s } s
duration-minutes = { $m } min
duration-minutes-seconds = { $m } min { $s } s
duration-hours = { $h } h
duration-hours-minutes = { $h } h { $m } min
duration-days = { $d } d
percent = { $n } %

json-cut = Only the beginning is shown. The whole is { $size }.
json-whole = Download all of it
json-hidden = Hidden
