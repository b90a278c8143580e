### A job's page.

job-title = { $type } { $id }, { $state }
job-loading = Loading the job
job-not-found = There is no such job
job-not-found-text = The address may be mistyped, or the job was removed.
job-gone = This job was removed. What you see is the last that was known of it.
job-crumbs = Breadcrumb
job-stage = Stage: { $stage }
job-attempt = attempt { $n } of { $of }
job-never-started = not started yet
job-path = Path through the states
job-so-far = { $time } so far
job-stages = Stages
job-attempts = Attempts without success
job-attempts-order = newest first
job-details = Details
job-payload = Payload
job-payload-label = Payload as JSON
job-result = Result
job-result-label = Result as JSON
job-audit = Audit trail

why-waiting = Why is it not running?
why-failed = Why did it stop for good?
why-checked = Checked
why-starting = It is about to start.
why-paused = It waits because the queue { $queue } is paused by { $by }.
why-due-later = It is due in { $time }.
why-due-later-after = It tries again in { $time }, because attempt { $n } ended with: { $error }
why-no-worker = It waits because no live worker knows the type { $type }. It starts as soon as one comes.
why-next = It is next in line and starts as soon as a slot is free.
why-ahead = { $n ->
    [one] It waits for a free slot; { $n } job is ahead of it.
   *[other] It waits for a free slot; { $n } jobs are ahead of it.
  }
why-unrecoverable = { $n ->
    [0] It ended as unrecoverable: { $code }. The same payload would fail again.
    [one] It ended as unrecoverable: { $code }. The attempt left was not used, because the same payload would fail again.
   *[other] It ended as unrecoverable: { $code }. The { $n } attempts left were not used, because the same payload would fail again.
  }
why-stalled-out = { $n ->
    [one] The worker went silent { $n } time, which is more often than the type bears.
   *[other] The worker went silent { $n } times, which is more often than the type bears.
  }
why-gave-up = { $n ->
    [one] It gave up after { $n } attempt. The last one ended with: { $code }.
   *[other] It gave up after { $n } attempts. The last one ended with: { $code }.
  }
check-due = Due
check-due-now = it may start now
check-due-later = not before
check-in = in { $time }
check-queue = Queue
check-queue-open = { $queue } is taking jobs
check-queue-paused = { $queue } is paused by { $by }
check-place = Place
check-place-next = next in line
check-place-ahead = { $n } ahead
check-worker = Worker
check-worker-none = no live worker knows this type
check-worker-some = { $n ->
    [one] { $n } live worker knows this type
   *[other] { $n } live workers know this type
  }
check-slots = { $n ->
    [one] { $n } slot
   *[other] { $n } slots
  }

stage-standing-done = done
stage-standing-here = now
stage-standing-stopped = stopped here
stage-standing-to-come = to come

attempt-n = Attempt { $n }
attempt-error = Error
attempt-worker = Worker
attempt-stage = Stage
attempt-ran = Ran
attempt-next = Next start
attempt-not-counted = Not counted as an attempt

detail-id = Id
detail-queue = Queue
detail-queue-priority = { $queue }, priority { $priority }
detail-attempts = Attempts used
detail-n-of = { $n } of { $of }
detail-starts = { $n ->
    [one] { $n } start in all
   *[other] { $n } starts in all
  }
detail-stalls = Stalls
detail-worker = Last worker
detail-enqueued = Enqueued
detail-by = by
detail-ended = Ended
detail-owner = Owner
detail-key = Idempotency key
detail-duplicates = Duplicates
detail-n-duplicates = { $n ->
    [0] None landed here
    [one] { $n } landed here
   *[other] { $n } landed here
  }
detail-last = last
detail-export = Export page
detail-export-link = Open as the recipient sees it

audit-refused = refused
audit-someone = Someone
