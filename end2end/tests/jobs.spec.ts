import { expectLive, heading, short } from "./support/pages.ts";
import { type Deck, type Page, expect, test } from "./support/test.ts";

// No worker: what the list shows stays as it is.
test.use({ deckOptions: { name: "jobs", run: "web" } });

const ODD = "50% off+a&b=c #1 / ü 漢 %2F";
const COUNTS = { All: 60, Pending: 8, Running: 0, Retrying: 2, Succeeded: 30, Failed: 15, Canceled: 5 };

async function fill(deck: Deck): Promise<void> {
  if ((await deck.sql("select 1 from jobdeck.jobs limit 1")).length > 0) return;
  await deck.sql(`
    insert into jobdeck.job_types (type, queue, max_attempts, max_stalled)
    values ('send_email', 'mail', 5, 3), ('export_markdown', 'exports', 5, 3)`);
  await deck.sql(
    `insert into jobdeck.jobs (type, queue, payload, payload_preview, status, attempts, run_after, error_class, error_code,
       last_error, finished_at, created_at, updated_at)
     select case when n % 3 = 0 then 'export_markdown' else 'send_email' end,
            case when n % 3 = 0 then 'exports' else 'mail' end,
            jsonb_build_object('title', title), 'title=' || title, state::jobdeck.job_state,
            case when state in ('pending', 'canceled') then 0 else 1 end,
            now() + case when state in ('pending', 'retrying') then interval '1 day' else interval '0' end,
            case when state in ('failed', 'retrying') then 'retryable'::jobdeck.failure_class end,
            case when state in ('failed', 'retrying') then 'connection' end,
            case when state in ('failed', 'retrying') then 'the mail server did not answer' end,
            case when state in ('succeeded', 'failed', 'canceled') then now() end,
            now(), now()
     from (select n, case when n = 7 then $1 else 'number ' || n end as title,
                  case when n <= 8 then 'pending' when n <= 10 then 'retrying' when n <= 40 then 'succeeded'
                       when n <= 55 then 'failed' else 'canceled' end as state
           from generate_series(1, 60) n) rows`,
    [ODD],
  );
}

const shown = (page: Page) => page.getByRole("row").getByRole("link");
const tab = (page: Page, name: string) =>
  page.getByRole("navigation", { name: "Jobs by state" }).getByRole("link", { name: new RegExp(`^${name}`) });

/** Waits for the address, whether the page changes by script or is a new one. */
async function expectAddress(page: Page, search: string): Promise<void> {
  await expect.poll(() => new URL(page.url()).search, { timeout: 10_000 }).toBe(search);
}

test.beforeEach(({ deck }) => fill(deck));

test("tabs count every state and narrow the list", async ({ visit, hasScript }) => {
  const page = await visit("viewer", "/jobs");
  if (hasScript) await expectLive(page);
  await expect(heading(page)).toHaveText("Jobs");
  for (const [name, n] of Object.entries(COUNTS)) await expect(tab(page, name)).toHaveText(new RegExp(`${name}\\s*${n}$`));
  await tab(page, "Failed").click();
  await expectAddress(page, "?state=failed");
  await expect(shown(page)).toHaveCount(15);
  await expect(tab(page, "Failed")).toHaveAttribute("aria-current", "page");
  await tab(page, "Running").click();
  await expectAddress(page, "?state=running");
  await expect(page.getByText("No job matches")).toBeVisible();
  await tab(page, "All").click();
  await expectAddress(page, "");
  await expect(shown(page)).toHaveCount(50);
});

test("type and text stand in the address; back, forward and reload keep them", async ({ visit, hasScript }) => {
  const page = await visit("viewer", "/jobs?state=succeeded");
  if (hasScript) await expectLive(page);
  await expect(shown(page)).toHaveCount(30);
  await page.getByRole("combobox", { name: "Type" }).selectOption("export_markdown");
  if (!hasScript) await page.getByRole("search").getByRole("button", { name: "Filter" }).click();
  await expect.poll(() => new URL(page.url()).searchParams.get("type")).toBe("export_markdown");
  await expect(shown(page)).toHaveCount(10);
  expect(new URL(page.url()).searchParams.get("state")).toBe("succeeded");

  await page.getByRole("searchbox").fill("number 2");
  await page.getByRole("searchbox").press("Enter");
  await expect.poll(() => new URL(page.url()).searchParams.get("q")).toBe("number 2");
  // 12, 15 and so on are no matches; 21, 24 and 27 are.
  await expect(shown(page)).toHaveCount(3);

  await page.reload();
  await expect(shown(page)).toHaveCount(3);
  await expect(page.getByRole("searchbox")).toHaveValue("number 2");
  await expect(page.getByRole("combobox", { name: "Type" })).toHaveValue("export_markdown");
  await page.goBack();
  await expect(shown(page)).toHaveCount(10);
  await expect(page.getByRole("combobox", { name: "Type" })).toHaveValue("export_markdown");
  await page.goBack();
  await expectAddress(page, "?state=succeeded");
  await expect(shown(page)).toHaveCount(30);
  await expect(page.getByRole("combobox", { name: "Type" })).toHaveValue("");
  await page.goForward();
  await page.goForward();
  await expect(shown(page)).toHaveCount(3);
  await expect(page.getByRole("searchbox")).toHaveValue("number 2");
});

test("odd characters survive the address", async ({ deck, visit, hasScript }) => {
  const [row] = await deck.sql<{ id: string }>("select id from jobdeck.jobs where payload->>'title' = $1", [ODD]);
  const page = await visit("viewer", "/jobs");
  if (hasScript) await expectLive(page);
  await page.getByRole("searchbox").fill(ODD);
  await page.getByRole("searchbox").press("Enter");
  await expect.poll(() => new URL(page.url()).searchParams.get("q")).toBe(ODD);
  await expect(shown(page)).toHaveCount(1);
  await expect(shown(page)).toContainText(short(row?.id ?? ""));
  await page.reload();
  await expect(page.getByRole("searchbox")).toHaveValue(ODD);
  await expect(shown(page)).toHaveCount(1);
  // A tab keeps the text; a job and back keeps the place.
  await tab(page, "Pending").click();
  await expect.poll(() => new URL(page.url()).searchParams.get("state")).toBe("pending");
  expect(new URL(page.url()).searchParams.get("q")).toBe(ODD);
  await shown(page).click();
  await expect(heading(page)).toHaveText("send_email");
  await page.goBack();
  await expect(page.getByRole("searchbox")).toHaveValue(ODD);
  await expect(shown(page)).toHaveCount(1);
});

test("older and newer pages lose and repeat no job", async ({ deck, visit, hasScript }) => {
  const ids = (await deck.sql<{ id: string }>("select id from jobdeck.jobs order by id desc")).map((row) => short(row.id));
  const page = await visit("viewer", "/jobs?n=25");
  if (hasScript) await expectLive(page);
  const read = async () => (await shown(page).allInnerTexts()).map((text) => text.trim().split(/\s+/).pop() ?? "");
  const pages: string[][] = [];
  for (const n of [25, 25, 10]) {
    await expect(shown(page)).toHaveCount(n);
    if (pages.length > 0) await expect(shown(page).first()).not.toContainText(pages.at(-1)?.[0] ?? "");
    pages.push(await read());
    if (n === 25) await page.getByRole("link", { name: "Older" }).click();
    if (n === 25) await expect(shown(page).first()).not.toContainText(pages.at(-1)?.[0] ?? "");
  }
  expect(pages.flat()).toEqual(ids);
  await expect(page.getByRole("link", { name: "Older" })).toHaveAttribute("aria-disabled", "true");
  await page.getByRole("link", { name: "Newer" }).click();
  await expect(shown(page)).toHaveCount(25);
  expect(await read()).toEqual(pages[1]);
  await page.reload();
  expect(await read()).toEqual(pages[1]);
  await page.goBack();
  await expect(shown(page)).toHaveCount(10);
});

test("the language is switched to Chinese and back, and the filter stays", async ({ visit, hasScript }) => {
  const page = await visit("viewer", "/jobs?state=failed&q=number");
  if (hasScript) await expectLive(page);
  await page.getByRole("button", { name: "简体中文" }).first().click();
  await expect(page.locator("html")).toHaveAttribute("lang", "zh-CN");
  await expect(heading(page)).toHaveText("任务");
  await expect(page.getByText("已失败").filter({ visible: true }).first()).toBeVisible();
  const address = new URL(page.url());
  expect([address.searchParams.get("state"), address.searchParams.get("q")]).toEqual(["failed", "number"]);
  await shown(page).first().click();
  await expect(page.getByText("已失败").filter({ visible: true }).first()).toBeVisible();
  await page.goto("/jobs");
  await page.getByRole("button", { name: "English" }).first().click();
  await expect(page.locator("html")).toHaveAttribute("lang", "en");
  await expect(heading(page)).toHaveText("Jobs");
});

test("the language follows the browser", async ({ visit }) => {
  const page = await visit(null, "/sign-in", { locale: "zh-TW" });
  await expect(page.locator("html")).toHaveAttribute("lang", "zh-CN");
  await expect(heading(page)).toHaveText("登录");
});

test("the theme is switched by a button and kept", async ({ visit, hasScript }) => {
  const page = await visit("viewer", "/jobs");
  if (hasScript) await expectLive(page);
  const brightness = () =>
    page.evaluate(() => {
      const paper = document.createElement("canvas").getContext("2d");
      if (!paper) return -1;
      paper.fillStyle = getComputedStyle(document.body).backgroundColor;
      paper.fillRect(0, 0, 1, 1);
      const [red = 0, green = 0, blue = 0] = paper.getImageData(0, 0, 1, 1).data;
      return (red + green + blue) / 3;
    });
  expect(await brightness()).toBeGreaterThan(180);
  // System, light, dark.
  await page.getByRole("button", { name: /theme/i }).first().click();
  await expect(page.locator("html")).toHaveAttribute("data-theme", "light");
  await page.getByRole("button", { name: /theme/i }).first().click();
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
  expect(await brightness()).toBeLessThan(80);
  await page.goto("/jobs?state=failed");
  await expect(page.locator("html")).toHaveAttribute("data-theme", "dark");
});
