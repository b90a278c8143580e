import { MISHAPS, download, eventually, expectHeading, expectLive, exportDocument, heading, rowOf } from "./support/pages.ts";
import { expect, test } from "./support/test.ts";

test.use({ deckOptions: { name: "retry" } });

test("a failed export says so and is retried on the job's page", async ({ deck, visit, hasScript }) => {
  const page = await visit("operator");
  const id = await exportDocument(page, {
    title: "Retried on its page",
    text: "# Retried on its page",
    mishap: MISHAPS.storageRefuses,
  });
  await expectHeading(page, "This export could not be finished", hasScript);
  await expect(page.getByText("the storage refused to keep it")).toBeVisible();
  const recipient = page;
  expect((await deck.job(id)).error_class).toBe("unrecoverable");

  const job = await visit("operator", `/jobs/${id}`);
  await expect(heading(job)).toHaveText("export_markdown");
  if (hasScript) await expectLive(job);
  await expect(job.getByRole("main")).toContainText("storage refuses this once");
  await job.getByRole("button", { name: /^Retry/ }).click();
  const isDone = (timeout: number) => expect(job.locator(".job-head")).toContainText("Succeeded", { timeout });
  await eventually(job, hasScript, isDone);
  const after = await deck.jobIs(id, "succeeded");
  expect(after.starts).toBe(2);
  expect(await deck.filesOf(id)).toHaveLength(1);
  const audit = await deck.sql("select actor, outcome from jobdeck.audit_log where action = 'retry_job' and target = $1", [id]);
  expect(audit).toEqual([{ actor: "Omar Diaz", outcome: "done" }]);

  await recipient.reload();
  await expectHeading(recipient, "Ready to download", hasScript);
  await download(recipient);
});

test("a failed job is retried from the list", async ({ deck, visit, hasScript }) => {
  const page = await visit("operator");
  const id = await exportDocument(page, {
    title: "Retried in the list",
    text: "# Retried in the list",
    mishap: MISHAPS.storageRefuses,
  });
  await deck.jobIs(id, "failed");
  await page.goto("/jobs");
  if (hasScript) await expectLive(page);
  const row = rowOf(page, id);
  await expect(row).toContainText("Failed");
  await row.getByRole("button", { name: /^Retry/ }).click();
  await expect(page.getByRole("status").filter({ hasText: /\S/ }).first()).toBeVisible();
  await eventually(page, hasScript, (timeout) => expect(row).toContainText("Succeeded", { timeout }));
  expect((await deck.job(id)).starts).toBe(2);
});

test("what the storage refuses for a moment is tried again by itself", async ({ deck, visit, hasScript }) => {
  const page = await visit("operator");
  const id = await exportDocument(page, { title: "Twice", text: "# Twice", mishap: MISHAPS.storageFails });
  await expectHeading(page, "Taking a little longer", hasScript);
  await expect(page.getByText("The storage cannot be reached. We will try again by ourselves, your text is kept.")).toBeVisible();
  await expectHeading(page, "Ready to download", hasScript, 40_000);
  const job = await deck.job(id);
  expect([job.attempts, job.status]).toEqual([3, "succeeded"]);
  expect(await deck.filesOf(id)).toHaveLength(1);
});

test("a viewer cannot retry", async ({ deck, visit }) => {
  const operator = await visit("operator");
  const id = await exportDocument(operator, { title: "Viewed", text: "# Viewed", mishap: MISHAPS.storageRefuses });
  const before = await deck.jobIs(id, "failed");
  const page = await visit("viewer", `/jobs/${id}`);
  await expect(heading(page)).toHaveText("export_markdown");
  await expect(page.locator('button:not([aria-disabled="true"]):not([disabled])').filter({ hasText: /^Retry/ })).toHaveCount(0);
  const answer = await page.request.post("/api/fn/retry_job", {
    form: { id, back: "/jobs" },
    headers: { origin: deck.url, accept: "application/json" },
    maxRedirects: 0,
  });
  expect(answer.status()).toBe(403);
  expect((await deck.job(id)).version).toBe(before.version);
});
