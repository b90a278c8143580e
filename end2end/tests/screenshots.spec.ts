// Pictures for the documentation, written only on request: SCREENSHOTS=1.

import { mkdirSync } from "node:fs";
import { join } from "node:path";

import { MISHAPS, expectHeading, expectLive, exportDocument, fixture } from "./support/pages.ts";
import { type Page, expect, test } from "./support/test.ts";

test.use({ deckOptions: { name: "screenshots", run: "web" } });

const FOLDER = join(import.meta.dirname, "../../docs/screenshots");
const SIZES = [
  [1440, 900],
  [390, 844],
] as const;

/** The page as it is, in both sizes and both schemes. */
async function shoot(page: Page, name: string, langs = ""): Promise<void> {
  mkdirSync(FOLDER, { recursive: true });
  for (const [width, height] of SIZES) {
    await page.setViewportSize({ width, height });
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
      await page.screenshot({ path: join(FOLDER, `${name}${langs}-${width}-${colorScheme}.png`), animations: "disabled", caret: "hide" });
    }
  }
  await page.emulateMedia({ colorScheme: null, reducedMotion: null });
}

test("pages of the deck and of an export", async ({ deck, visit }) => {
  test.setTimeout(300_000);
  await shoot(await visit(null, "/sign-in?next=%2Fjobs"), "sign-in");
  const page = await visit("admin");
  await page.goto("/demo");
  await expect(page.getByRole("button", { name: /^Export as/ })).toBeVisible();
  await shoot(page, "demo");

  const english = fixture("english.md");
  await exportDocument(page, { title: "The cost of waiting", text: english });
  await expectHeading(page, "Waiting in line", true);
  const worker = deck.worker({ JOBDECK_CONCURRENCY: "1" });
  await expectHeading(page, "Ready to download", true);
  await exportDocument(page, { title: "等待的代价", text: fixture("chinese.md") });
  await expectHeading(page, "Ready to download", true);

  await deck.sql(`
    insert into jobdeck.queues (name, paused_at, paused_by) values ('exports', now(), 'screenshots')
    on conflict (name) do update set paused_at = now(), paused_by = 'screenshots'`);
  await exportDocument(page, { title: "Q3 research notes", text: english });
  await expectHeading(page, "Waiting in line", true);
  await shoot(page, "export-waiting");
  // Below the bound of the queue's statements.
  await deck.slowStages(3);
  await deck.sql("update jobdeck.queues set paused_at = null, paused_by = null");
  await expectHeading(page, "Generating", true);
  await shoot(page, "export-generating");
  await deck.normalSpeed();
  await expectHeading(page, "Ready to download", true);
  await shoot(page, "export-downloadable");
  await page.goto(`${page.url().split("?")[0]}?lang=zh-CN`);
  await shoot(page, "export-downloadable", "-zh");

  const failed = await exportDocument(page, { title: "Menu with emoji", text: fixture("missing-glyph.md") });
  await expectHeading(page, "This export could not be finished", true);
  await shoot(page, "export-failed");
  await exportDocument(page, { title: "Release letter", text: "# Release letter\n\nDear reader.", mishap: MISHAPS.storageRefuses });
  await expectHeading(page, "This export could not be finished", true);
  await exportDocument(page, { title: "Field notes", text: "# Field notes\n\nDay one.", mishap: MISHAPS.slowDown });
  await expectHeading(page, "Taking a little longer", true);
  const succeeded = (await deck.jobsTitled("The cost of waiting"))[0]?.id ?? "";
  await worker.stop();
  await exportDocument(page, { title: "Minutes of the meeting", text: "# Minutes\n\nAll agreed." });

  await page.goto("/jobs");
  await expectLive(page);
  await shoot(page, "jobs");
  await page.goto(`/jobs/${succeeded}`);
  await expectLive(page);
  await shoot(page, "job");
  await page.goto(`/jobs/${failed}`);
  await expectLive(page);
  await shoot(page, "job-failed");
  await page.goto("/jobs");
  await page.setViewportSize({ width: 1440, height: 900 });
  await page.getByRole("button", { name: "简体中文" }).first().click();
  await expect(page.locator("html")).toHaveAttribute("lang", "zh-CN");
  await shoot(page, "jobs", "-zh");
});
