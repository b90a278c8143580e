### Exporting a document.

demo-title = Export a document
demo-intro = Paste Markdown, choose a format, watch every step. A second click on the same text opens the same export.
demo-options = Options
demo-field-title = Title
demo-field-format = Format
demo-format-pdf = for print
demo-format-html = one file
demo-open-file = Open file
demo-submit = Export as { $format }
demo-mishap = What should happen
demo-mishap-none = Everything works
demo-mishap-storage-fails = Storage fails twice
demo-mishap-storage-fails-hint = retried, then fine
demo-mishap-slow-down = Provider says slow down
demo-mishap-slow-down-hint = waits as long as asked
demo-mishap-storage-refuses = Storage refuses once
demo-mishap-storage-refuses-hint = fails; an operator can retry
demo-sample-title = Q3 research notes
demo-not-allowed = Your role may look but not export. An admin can widen it.
