# The pages of the person who waits for an export, and the answer to a text that cannot be exported.
# { $time } and { $ref } may be elements. Plain words: no queue, no worker, no trace.

export-title = { $what } – Jobdeck
export-times-utc = Times in UTC
export-times-local = Times in your time zone, { $zone }
export-steps = Steps

# What it is
export-untitled = Document
export-meta-asked = { $format }, asked for at { $time }
export-meta-stopped = { $format }, stopped at { $time }
export-meta-done = { $format }, { $size }
export-meta-done-pages = { $format }, { $n ->
    [one] 1 page
   *[other] { $n } pages
  }, { $size }

# Headings
export-head-waiting = Waiting in line
export-head-starting = Starting
export-head-retrying = Taking a little longer
export-head-canceling = Canceling
export-head-failed = This export could not be finished
export-head-canceled = Export canceled
export-head-ready = Ready to download

# Window titles, short
export-short-waiting = Waiting
export-short-place = Waiting, { $place } in line
export-short-percent = { $stage }, { $percent } %
export-short-failed = Export not finished
export-short-canceled = Canceled

# Stages
export-stage-waiting = Waiting
export-stage-generating = Generating
export-stage-rendering = Rendering
export-stage-uploading = Uploading
export-stage-downloadable = Ready to download
export-step-done = , done
export-step-now = , now
export-step-next = , to come
export-step-stopped = , stopped
export-step-again = , will be tried again
export-since = since { $time }
export-step-interrupted = Interrupted at { $time }, try { $n } of { $max } is next
export-step-try = Try { $n } of { $max }
export-step-until = Until { $time }

# What happens now
export-lead-waiting = Your export starts by itself, you do not need to do anything.
export-lead-no-machine = It starts as soon as a machine is free. You do not need to do anything.
export-lead-starting = A machine has taken your export and begins.
export-lead-generating = The text is being read and checked.
export-lead-rendering = The pages are being laid out.
export-lead-rendering-html = The file is being put together.
export-lead-uploading = The document is finished and is being stored for you.
export-lead-other = Your export is being worked on.
export-lead-canceling = It stops within a few seconds.
export-lead-canceled = It was canceled at { $time }. Nothing was charged.
export-lead-ready = Finished at { $time }, in { $duration }.
export-lead-due = The next try starts as soon as a machine is free.

# Numbers
export-fact-place = Your place
export-ahead = { $n ->
    [0] you are next
   *[other] { $n } ahead of you
  }
export-fact-ready = Ready in about
export-usual = usually { $range } of work
export-if-it-works = if it works then
export-fact-next = Next try in
export-at = at { $time }
export-range-seconds = { $low }–{ $high } s
export-range-minutes = { $low }–{ $high } min
export-few-seconds = a few seconds
export-percent = { $percent } %
export-of-step = of this step
export-left = about { $duration } left
export-left-few = a few seconds left
export-longer = takes longer than usual
export-say-percent = { $stage }, { $percent } percent
export-say-retrying = Taking a little longer. The next try comes by itself.

# An attempt ended badly and another follows
export-retry-timeout = It took too long. We will try again by ourselves.
export-retry-connection = A service could not be reached. We will try again by ourselves.
export-retry-http_5xx = A service has a problem. We will try again by ourselves.
export-retry-panic = Something went wrong on our side. We will try again by ourselves.
export-retry-storage = The storage cannot be reached. We will try again by ourselves, your text is kept.
export-retry-lease_lost = The work was interrupted and starts again.
export-retry-slow_down = The service is busy. We will try again at { $time }.
export-retry-database = Something went wrong on our side. We will try again by ourselves.
export-retry-io = Something went wrong on our side. We will try again by ourselves.
export-retry-mail_deferred = The mail server asked us to come back later. We will try again by ourselves.
export-retry-http_unexpected = A service gave an answer we cannot read. We will try again by ourselves.
export-retry-other = Something did not work. We will try again by ourselves.

# It ended without a file
export-failed-gave-up = It did not work after { $n ->
    [one] 1 try
   *[other] { $n } tries
  }. Nothing was charged.
export-failed-stalled_out = It was interrupted several times. We have been told; try again later.
export-failed-invalid_payload = The request was incomplete. Start it again from the document.
export-failed-not_found = The document no longer exists.
export-failed-permission = You no longer have access to the document.
export-failed-quota = Your quota is used up.
export-failed-invalid_credentials = The connection to the service must be renewed.
export-failed-invalid_recipient = The e-mail address does not work. Check it, then send again.
export-failed-mail_refused = The mail server refused the message.
export-failed-http_4xx = A service refused the request. That is a fault on our side.
export-failed-http_unexpected = A service gave an answer we cannot use.
export-failed-storage = The file was made, but the storage refused to keep it. That is a fault on our side.
export-failed-typeset = The pages could not be laid out. That is a fault on our side.
export-failed-other = Something went wrong on our side.
export-same-again = Without a change, another try would end the same way.

# The text cannot be processed; { $line } counts from 1
export-content-empty_text = There is nothing to show: the text is empty.
export-content-too_large = The text is longer than { $limit } MB.
export-content-contains_nul = Line { $line } holds a character that is no text, as a program or picture file does.
export-content-missing_glyph = No font at hand can draw one character: { $code } on line { $line }.
export-content-missing_glyph-title = No font at hand can draw one character of the title: { $code }.
export-content-too_deep = Lists, quotes or emphasis are nested too deeply on line { $line }.
export-content-too_slow = The text could not be read within { $seconds } seconds.
export-content-other = The text could not be processed.
export-image-address = The image on line { $line } has a damaged address.
export-image-format = The image on line { $line } is none of PNG, JPEG, GIF, WebP and SVG.
export-image-damaged = The image on line { $line } is damaged or cut off.
export-image-too_large = The image on line { $line } is too large.
export-image-linked = The image on line { $line } refers to another file, which is never fetched.
export-image-other = The image on line { $line } cannot be used.

# What you can do
export-advice = What you can do
export-advice-change-text = Change the text, then export it again.
export-advice-empty = Write some text, then export it again.
export-advice-split = Split the text into several documents, then export each.
export-advice-text-file = Choose a text file, or remove that character, then export again.
export-advice-remove-character = Remove or replace that character, then export again.
export-advice-html = Or export as HTML, which uses the fonts on your device.
export-advice-image = Replace or remove that image, then export again.
export-advice-flatten = Take some levels out of that place, then export again.
export-advice-again = Make it again. It may work now.
export-advice-ask = If it stops again, ask whoever runs this service and give the reference below.
export-advice-from-document = Start the export again from the document.

# Actions
export-cancel = Cancel this export
export-download = Download { $format }, { $size }
export-copy = Copy link
export-copied = Link copied
export-again = Make it again
export-back = Back to the export

# Also good to know
export-note-close = You can close this page. The export goes on, and this link keeps working until { $time }.
export-note-until = The file can be downloaded with this link until { $time }.
export-note-anyone = Anyone with this link can open the file.
export-note-free = Nothing was charged for this export.
export-note-reference = If you ask for help, give this reference: { $ref }
export-banner-running = This export is already on its way, so we brought you here.
export-banner-made = This export is already made, so we brought you here.

# Signs while the page is open; { $time } is filled in by the page
export-sign-offline = No connection. The export goes on; this page catches up by itself.
export-sign-quiet = Not live. Last update { $time }. Trying again by itself.
export-sign-polling = Updates every 15 s.

# Pages instead of an export
export-invalid-head = This link does not work
export-invalid-lead = It may be mistyped, withdrawn or meant for someone else. Ask whoever sent it for a new one.
export-expired-head = This link has expired
export-expired-lead = Links work for a limited time. Ask whoever sent it for a new one.
export-not-ready-head = The file is not ready
export-not-ready-lead = The page of this export says how far it is.
export-gone-head = This file is no longer there
export-gone-lead = It was removed from the storage. The document can be exported again.
export-trouble-head = This page could not be loaded
export-trouble-lead = Something went wrong on our side. The export goes on; load this page again in a moment.

# A text that was not exported
export-demo-head = The document was not exported
export-demo-empty = The text is empty. Write some Markdown, then export it.
export-demo-nul = Line { $line }, column { $column } holds a NUL character, which no text has. Choose a text file, or remove that character.
export-demo-title-nul = The title holds a character that is no text. Type it again.
export-demo-encoding = The text is not valid UTF-8. Save the file as UTF-8, then export it.
export-demo-too-long = The text has { $size }, the limit is { $limit }. Split it into several documents.
export-demo-body-too-large = That is too much at once: the limit is { $limit } of text. Split it into several documents.
export-demo-busy = Many large documents arrive at this moment. Go back and export it again in a few seconds.
export-demo-format = Choose PDF or HTML.
export-demo-media = The form was sent in a way this page does not read. Use the page’s own form.
export-demo-forbidden = You cannot export documents. An admin can widen your role.
export-demo-trouble = Nothing was exported: the queue could not be reached. Your text is still here, try again in a moment.
export-demo-kept = Your text is kept below.
export-demo-title = Title
export-demo-text = Markdown
export-demo-as = Format
export-demo-send = Export again
export-demo-back = Back to “Export a document”
