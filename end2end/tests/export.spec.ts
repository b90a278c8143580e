import { download, expectHeading, exportDocument, fixture, heading, recordHeadings, stepsOf, textOfPdf } from "./support/pages.ts";
import { expect, test } from "./support/test.ts";

test.use({ deckOptions: { name: "export" } });

const STAGES = ["generating", "rendering", "uploading", "downloadable"];

const ENGLISH = [
  "The cost of waiting",
  "Notes on background jobs, gathered over one spring",
  "A progress bar is a promise.",
  "café, naïve and Ångström",
];
const CHINESE = ["等待的代价", "最慢的一次将近十一分钟", "进度条是一种承诺", "主要是因为长文档不再挡住短文档"];

test("every stage is seen on the way to the file", async ({ deck, visit, hasScript }) => {
  const page = await visit("operator");
  const headings = hasScript ? await recordHeadings(page) : undefined;
  await deck.slowStages(1.5);
  try {
    const id = await exportDocument(page, { title: "Every stage", text: fixture("english.md") });
    const seen: string[] = [];
    if (hasScript) {
      await expectHeading(page, "Ready to download", hasScript);
    } else {
      // The page asks for itself again every three seconds; nobody presses reload.
      await expect(async () => {
        const now = await heading(page).innerText();
        if (now !== seen.at(-1)) seen.push(now);
        expect(now).toBe("Ready to download");
      }).toPass({ timeout: 30_000, intervals: [100] });
    }
    if (headings) {
      const order = ["Waiting in line", "Generating", "Rendering", "Uploading", "Ready to download"];
      expect((await headings()).filter((heading) => heading !== "Starting")).toEqual(order);
    } else {
      expect(seen.length, `headings without script: ${seen}`).toBeGreaterThan(2);
    }
    const steps = await stepsOf(page);
    expect(steps).toHaveLength(5);
    for (const [index, word] of ["Waiting", "Generating", "Rendering", "Uploading"].entries()) {
      expect(steps[index]).toMatch(new RegExp(`^${word} ?, done [0-9.]+ ?s$`));
    }
    expect(steps[4]).toMatch(/^Ready to download ?, done Until /);
    const job = await deck.job(id);
    expect(Object.keys(job.stages_at).sort()).toEqual([...STAGES].sort());
    const times = STAGES.map((stage) => Date.parse(job.stages_at[stage] ?? ""));
    expect(times).toEqual([...times].sort((a, b) => a - b));
  } finally {
    await deck.normalSpeed();
  }
});

for (const [name, title, sentences] of [
  ["english.md", "The cost of waiting", ENGLISH],
  ["chinese.md", "等待的代价", CHINESE],
] as const) {
  const squeeze = (text: string) => (name === "chinese.md" ? text.replace(/\s/g, "") : text.replace(/\s+/g, " "));

  test(`${name} arrives as a PDF with its sentences`, async ({ deck, visit, hasScript }) => {
    const page = await visit("operator");
    const id = await exportDocument(page, { title, text: fixture(name) });
    await expectHeading(page, "Ready to download", hasScript);
    const file = await download(page);
    expect(file.name).toBe(`${title}.pdf`);
    const text = squeeze(await textOfPdf(file.bytes));
    for (const sentence of sentences) expect(text).toContain(squeeze(sentence));
    expect(await deck.filesOf(id)).toHaveLength(1);
  });

  test(`${name} arrives as HTML with its sentences`, async ({ deck, visit, hasScript }) => {
    const page = await visit("operator");
    const id = await exportDocument(page, { title, text: fixture(name), format: "HTML" });
    await expectHeading(page, "Ready to download", hasScript);
    const file = await download(page);
    expect(file.name).toBe(`${title}.html`);
    const source = file.bytes.toString("utf8");
    const text = squeeze(source.replace(/<[^>]+>/g, ""));
    for (const sentence of sentences) expect(text).toContain(squeeze(sentence));
    expect(source).toContain("<table");
    expect(source).toContain('src="data:image/');
    expect(source).not.toContain("<script");
    expect(await deck.filesOf(id)).toHaveLength(1);
  });
}

test("the same export again lands on the same page: one job, one file", async ({ deck, visit, hasScript }) => {
  const page = await visit("operator");
  const document = { title: "Asked for twice", text: "# Asked for twice\n\nThe very same text." };
  const id = await exportDocument(page, document);
  await expectHeading(page, "Ready to download", hasScript);
  expect(await exportDocument(page, document)).toBe(id);
  await expect(page.getByRole("status").filter({ hasText: "so we brought you here" })).toBeVisible();
  await expectHeading(page, "Ready to download", hasScript);
  await download(page);
  expect(await deck.jobsTitled(document.title)).toHaveLength(1);
  expect(await deck.filesOf(id)).toHaveLength(1);
});

test("fifty at once are still one job and one file", async ({ deck, visit, hasScript }) => {
  const page = await visit("operator", "/jobs");
  const form = { title: "Fifty at once", format: "html", markdown: "# Fifty at once\n\nText.", mishap: "none" };
  const presses = Array.from({ length: 50 }, () =>
    page.request.post("/demo", { form, headers: { origin: deck.url }, maxRedirects: 0 }),
  );
  const links = (await Promise.all(presses)).map((answer) => {
    expect(answer.status()).toBe(303);
    return new URL(answer.headers().location ?? "", deck.url);
  });
  expect(links.filter((link) => !link.searchParams.has("again"))).toHaveLength(1);
  const jobs = await deck.jobsTitled(form.title);
  expect(jobs).toHaveLength(1);
  const id = jobs[0]?.id ?? "";
  const pages = await Promise.all(links.map((link) => page.request.get(link.href, { maxRedirects: 0 })));
  for (const answer of pages) expect(answer.headers().location).toMatch(new RegExp(`^/e/${id}(\\?|$)`));
  await deck.jobIs(id, "succeeded");
  expect(await deck.filesOf(id)).toHaveLength(1);
  await page.goto(links[0]?.href ?? "");
  await expectHeading(page, "Ready to download", hasScript);
});

test("a link works for whoever has it, and for its own export only", async ({ visit, hasScript, expectFault }) => {
  const page = await visit("operator");
  const title = "For a recipient";
  await exportDocument(page, { title, text: "# For a recipient\n\nHere." });
  await expectHeading(page, "Ready to download", hasScript);
  const link = (await page.getByRole("link", { name: "Copy link" }).getAttribute("href")) ?? "";
  const recipient = await visit(null, link);
  await expect(heading(recipient)).toHaveText("Ready to download");
  await expect(recipient.getByText(title).first()).toBeVisible();
  expect((await download(recipient)).name).toBe("For a recipient.pdf");
  expectFault(/status of 404/);
  const stranger = await visit(null, new URL(recipient.url()).pathname);
  await expect(heading(stranger)).toHaveText("This link does not work");
  await stranger.goto(`${link.slice(0, -2)}xx`);
  await expect(heading(stranger)).toHaveText("This link does not work");
});
