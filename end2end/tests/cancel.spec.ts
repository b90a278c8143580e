import { eventually, expectHeading, expectLive, exportDocument, heading, rowOf } from "./support/pages.ts";
import { expect, test } from "./support/test.ts";

// No worker: jobs stay pending.
test.use({ deckOptions: { name: "cancel", run: "web" } });

test("an admin cancels; an operator is offered no such thing and refused on the server", async ({ deck, visit, hasScript }) => {
  const operator = await visit("operator");
  const mine = await exportDocument(operator, { title: "Canceled", text: "# Canceled" });
  const other = await exportDocument(operator, { title: "Stays", text: "# Stays" });
  await expectHeading(operator, "Waiting in line", hasScript);
  await expect(operator.getByText("It starts as soon as a machine is free.")).toBeVisible();

  const usable = 'button:not([aria-disabled="true"]):not([disabled])';
  await operator.goto(`/jobs/${mine}`);
  await expect(heading(operator)).toHaveText("export_markdown");
  await expect(operator.getByRole("main").locator(usable).filter({ hasText: /Cancel/ })).toHaveCount(0);
  await operator.goto("/jobs");
  await expect(rowOf(operator, mine)).toContainText("Pending");
  await expect(rowOf(operator, mine).getByRole("button", { name: /Cancel/ })).toHaveCount(0);

  const admin = await visit("admin", `/jobs/${mine}`);
  if (hasScript) await expectLive(admin);
  const sent = admin.waitForRequest((request) => request.method() === "POST");
  await admin.getByRole("button", { name: /^Cancel/ }).click();
  const request = await sent;
  await eventually(admin, hasScript, (timeout) => expect(admin.locator(".job-head")).toContainText("Canceled", { timeout }));
  expect((await deck.job(mine)).status).toBe("canceled");

  // The admin's own request, for the other job, with the operator's cookie.
  const before = await deck.job(other);
  const body = (request.postData() ?? "").replaceAll(mine, other);
  expect(body).toContain(other);
  const replay = (accept: string) =>
    operator.request.post(request.url(), {
      data: body,
      headers: { origin: deck.url, accept, "content-type": "application/x-www-form-urlencoded" },
      maxRedirects: 0,
    });
  expect((await replay("application/json")).status()).toBe(403);
  const plain = await replay("text/html");
  expect([302, 303, 403]).toContain(plain.status());
  if (plain.status() !== 403) expect(plain.headers().location).toContain("notice=forbidden");
  expect(await deck.job(other)).toEqual(before);
  const audit = (id: string) =>
    deck.sql("select actor, action, outcome from jobdeck.audit_log where target = $1 and action = 'cancel_job' order by id", [id]);
  expect(await audit(mine)).toEqual([{ actor: "Ana Costa", action: "cancel_job", outcome: "done" }]);
  const refused = { actor: "Omar Diaz", action: "cancel_job", outcome: "refused" };
  expect(await audit(other)).toEqual([refused, refused]);
});

test("an admin cancels from the list", async ({ deck, visit, hasScript }) => {
  const operator = await visit("operator");
  const id = await exportDocument(operator, { title: "From the list", text: "# From the list" });
  const admin = await visit("admin", "/jobs?state=pending");
  if (hasScript) await expectLive(admin);
  await rowOf(admin, id).getByRole("button", { name: /^Cancel/ }).click();
  await expect(admin.getByRole("status").filter({ hasText: /cancel/i }).first()).toBeVisible();
  await deck.jobIs(id, "canceled");
  if (hasScript) await expect(rowOf(admin, id)).toContainText("Canceled");
  else await expect(rowOf(admin, id)).toHaveCount(0);
});

test("whoever waits cancels their own export and has it made again", async ({ deck, visit, hasScript }) => {
  const page = await visit("operator");
  const id = await exportDocument(page, { title: "Not needed", text: "# Not needed" });
  await page.getByRole("button", { name: "Cancel this export" }).click();
  await expectHeading(page, "Export canceled", hasScript);
  expect((await deck.job(id)).status).toBe("canceled");
  await page.getByRole("button", { name: "Make it again" }).click();
  await expectHeading(page, "Waiting in line", hasScript);
  expect((await deck.job(id)).status).toBe("pending");
});
