### Signing in and first set-up.

field-name = Your name
field-email = E-mail
field-password = Password

sign-in-title = Sign in
sign-in-next = Then you go on to the page you asked for.
sign-in-error-wrong = E-mail or password is wrong.
sign-in-error-wait = Too many tries. Try again in { $wait }.
access-error-other = That did not work. Try again.

set-up-title = Set up Jobdeck
set-up-intro = You create the first admin. Others can be added afterwards; this page then closes for ever.
set-up-password-hint = { $n } characters or more. Paste and password managers work.
set-up-submit = Create admin
set-up-error-name = Enter a name of at most 100 characters.
set-up-error-email = Enter an e-mail address, such as ana@example.com.
set-up-error-short = The password is too short: it needs { $n } characters or more.
set-up-error-long = The password is too long: at most 1,024 bytes.
set-up-error-common = This password is a common one that others try first. Choose words that do not belong together.
set-up-error-own = The password is made of your name or e-mail address. Choose other words.
set-up-error-pattern = The password is a row of keys or a pattern that repeats. Choose words that do not belong together.
set-up-closed-title = This link does not work
set-up-closed-text = It was used already, is too old, or is incomplete. A set-up link works once.
set-up-closed-new-link = For a new link, start Jobdeck again, or run this where it is installed:
set-up-closed-sign-in = If there is an admin already, sign in.
