import { expectHeading, exportDocument, fixture } from "./support/pages.ts";
import { expect, test } from "./support/test.ts";

const LEASE_SECS = 6;

test.use({
  deckOptions: { name: "crash", run: "web", env: { JOBDECK_LEASE_SECS: String(LEASE_SECS), JOBDECK_HEARTBEAT_SECS: "2" } },
});

test("a worker killed while rendering: another one finishes, with one file", async ({ deck, visit }) => {
  test.setTimeout(400_000);
  const page = await visit("operator");
  const first = deck.worker();
  const id = await exportDocument(page, { title: "Killed once", text: fixture("long.md") });
  await deck.jobWhere(id, "rendering", (job) => job.stage === "rendering", 120_000);
  await first.kill();
  const [killed] = await deck.sql<{ at: Date }>("select clock_timestamp() as at");
  expect((await deck.job(id)).status).toBe("running");

  deck.worker();
  const again = await deck.jobWhere(id, "running again", (job) => job.starts === 2, 60_000);
  const waited = (Number(again.started_at) - Number(killed?.at)) / 1000;
  console.log(`started again ${waited.toFixed(1)} s after the kill, with a lease of ${LEASE_SECS} s`);
  expect(waited).toBeLessThan(LEASE_SECS + 2);
  const done = await deck.jobIs(id, "succeeded", 240_000);
  expect([done.stalled_count, done.starts]).toEqual([1, 2]);
  expect(await deck.filesOf(id)).toEqual([`${done.token}.pdf`]);
  const attempts = await deck.sql("select outcome::text, stage from jobdeck.attempts where job_id = $1", [id]);
  expect(attempts).toEqual([{ outcome: "stalled", stage: "rendering" }]);

  await expectHeading(page, "Ready to download", true);
  await page.goto(`/jobs/${id}`);
  await expect(page.getByRole("region", { name: /^Attempts/ })).toContainText("Stalled");
});
