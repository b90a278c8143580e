import { expectHeading, expectLive, exportDocument, recordHeadings, rowOf } from "./support/pages.ts";
import { type Page, expect, test } from "./support/test.ts";

test.use({ deckOptions: { name: "live", run: "web" } });

/** Marks the document, so that a reload would show. */
const mark = (page: Page) => page.evaluate(() => void Object.assign(window, { e2eMark: true }));
const isMarked = (page: Page) => page.evaluate(() => "e2eMark" in window);

test("two tabs and the progress page follow a job without a reload", async ({ deck, visit }) => {
  const waiting = await visit("operator");
  const headings = await recordHeadings(waiting);
  const id = await exportDocument(waiting, { title: "Followed", text: "# Followed\n\nText." });
  const first = await visit("viewer", "/jobs");
  const second = await first.context().newPage();
  await second.goto("/jobs?type=export_markdown");
  const job = await visit("viewer", `/jobs/${id}`);
  for (const page of [first, second, job]) {
    await expectLive(page);
    await mark(page);
  }
  await mark(waiting);
  for (const page of [first, second]) await expect(rowOf(page, id)).toContainText("Pending");
  await expect(job.locator(".job-head")).toContainText("Pending");

  await deck.slowStages(2);
  deck.worker();
  const running = [first, second].map((page) => expect(rowOf(page, id)).toContainText("Running", { timeout: 20_000 }));
  await Promise.all([...running, expect(job.locator(".job-head")).toContainText("Running", { timeout: 20_000 })]);
  await expect(rowOf(first, id)).toContainText(/Generating|Rendering|Uploading/);
  for (const page of [first, second]) await expect(rowOf(page, id)).toContainText("Succeeded", { timeout: 20_000 });
  await expect(job.locator(".job-head")).toContainText("Succeeded");
  await expectHeading(waiting, "Ready to download", true);
  await deck.normalSpeed();

  expect((await headings()).filter((heading) => heading !== "Starting")).toEqual([
    "Waiting in line",
    "Generating",
    "Rendering",
    "Uploading",
    "Ready to download",
  ]);
  for (const page of [first, second, job, waiting]) expect(await isMarked(page)).toBe(true);
  const succeeded = first.getByRole("navigation", { name: "Jobs by state" }).getByRole("link", { name: /^Succeeded/ });
  await expect(succeeded).toHaveText(/Succeeded\s*1$/);
});

test("new jobs announce themselves, and a paused page stays as it is", async ({ deck, visit }) => {
  const operator = await visit("operator");
  const before = await exportDocument(operator, { title: "Before", text: "# Before" });
  await deck.jobIs(before, "succeeded");
  const page = await visit("viewer", "/jobs");
  await expectLive(page);
  await mark(page);
  const id = await exportDocument(operator, { title: "After", text: "# After" });
  const pill = page.getByRole("link", { name: /\d+ new job/ });
  await expect(pill).toBeVisible();
  await expect(rowOf(page, id)).toHaveCount(0);
  expect(await isMarked(page)).toBe(true);
  await pill.click();
  await expect(rowOf(page, id)).toHaveCount(1);

  await page.getByRole("button", { name: "Pause live updates" }).click();
  await expect(page.getByText("Paused", { exact: true })).toBeVisible();
  const [row] = await deck.sql<{ n: string }>("select count(*)::text as n from jobdeck.jobs");
  await deck.jobIs(await exportDocument(operator, { title: "Unseen", text: "# Unseen" }), "succeeded");
  // Two of the hub's ticks and a paint later nothing has come.
  await page.waitForTimeout(2500);
  const all = page.getByRole("navigation", { name: "Jobs by state" }).getByRole("link", { name: /^All/ });
  await expect(all).toHaveText(new RegExp(`All\\s*${row?.n}$`));
  await page.getByRole("button", { name: "Resume live updates" }).click();
  await expect(all).toHaveText(new RegExp(`All\\s*${Number(row?.n) + 1}$`));
});

test("a signed-out tab says so and leads back to where it was", async ({ deck, visit, expectFault }) => {
  // Only if the server's last word comes after the connection's end.
  expectFault(/status of 401/);
  const page = await visit("viewer", "/jobs?state=failed");
  await expectLive(page);
  await deck.sql("delete from jobdeck.sign_in_sessions s using jobdeck.users u where u.id = s.user_id and u.role = 'viewer'");
  await expect(page.getByRole("alert")).toContainText("You are signed out", { timeout: 20_000 });
  await expect(page.getByText("Not live", { exact: true })).toBeVisible();
  await page.getByRole("link", { name: "Sign in again" }).click();
  await expect(page).toHaveURL(/\/sign-in\?next=%2Fjobs%3Fstate%3Dfailed$/);
});
