### The jobs list.

jobs-title = Jobs
jobs-title-state = Jobs: { $state }
jobs-loading = Loading jobs
jobs-all = All
jobs-by-state = Jobs by state
jobs-new = { $n ->
    [one] { $n } new job
   *[other] { $n } new jobs
  }
jobs-filter = Filter jobs
jobs-filter-go = Filter
jobs-filter-clear = Clear filter
jobs-type = Type
jobs-any-type = Any type
jobs-search = Search in id, type, key, payload, owner and error
jobs-search-hint = Id, key, payload, error…
jobs-table-scroll = Jobs, scrolls sideways
jobs-table-caption = Jobs, newest first
jobs-no-longer-matches = no longer matches

jobs-none = No jobs yet
jobs-none-text = Enqueue one from your code, or try the demo export.
jobs-no-match = No job matches this filter
jobs-no-match-text = { $n ->
    [one] Without it there would be { $n } job.
   *[other] Without it there would be { $n } jobs.
  }
jobs-no-match-uncounted = Choose another state or type, or search for other words.
jobs-not-counted = Not counted yet
jobs-past-end = There is nothing on this page
jobs-past-end-text = The jobs that were here have changed or were removed.
jobs-to-newest = Go to the newest jobs

column-state = State
column-job = Job
column-happening = What is happening
column-queue = Queue
column-payload = Payload
column-attempt = Attempt
column-run-time = Run time
column-changed = Changed
column-actions = Actions

happening-working = Working
happening-stopping = Asked to stop
happening-no-worker = No live worker knows this type
happening-waits = Waits for a free slot
happening-due-in = Due in { $wait }
happening-next-try = Next try in { $wait }
happening-next-try-now = Next try is due
happening-finished = Finished
happening-canceled = Canceled before it started
happening-canceled-in = Canceled while at: { $stage }

pager-from = Enqueued from
pager-to = back to
pager-stop = .{" "}
pager-matches = { $n ->
    [one] { $n } job matches.
   *[other] { $n } jobs match.
  }
pager-not-counted = Matching jobs are not counted yet.
pager-rows = Rows
pager-pages = Pages
pager-newer = Newer
pager-older = Older
