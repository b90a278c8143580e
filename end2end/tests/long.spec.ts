import { download, expectHeading, exportDocument, fixture, textOfPdf } from "./support/pages.ts";
import { expect, test } from "./support/test.ts";

test.use({ deckOptions: { name: "long" } });

test("about 300 pages arrive as a PDF, and the way there is shown", async ({ deck, visit, hasScript }) => {
  test.setTimeout(300_000);
  const text = fixture("long.md");
  const page = await visit("operator");
  const id = await exportDocument(page, { title: "A year of waiting", text });
  await expectHeading(page, /^(Generating|Rendering|Uploading|Ready to download)$/, hasScript);
  await expectHeading(page, "Ready to download", hasScript, 240_000);
  const job = await deck.job(id);
  const seconds = (Number(job.finished_at) - Number(job.started_at)) / 1000;
  console.log(`long.md: ${job.result?.file.pages} pages, ${job.result?.file.bytes} bytes, ${seconds.toFixed(1)} s`);
  expect(job.result?.file.pages).toBeGreaterThan(250);
  const pdf = await textOfPdf((await download(page)).bytes);
  for (const chapter of chaptersOf(text)) expect(pdf).toContain(chapter);
});

test("the same pages arrive as HTML", async ({ deck, visit, hasScript }) => {
  test.setTimeout(120_000);
  const text = fixture("long.md");
  const page = await visit("operator");
  const id = await exportDocument(page, { title: "A year of waiting", text, format: "HTML" });
  await expectHeading(page, "Ready to download", hasScript, 90_000);
  const html = (await download(page)).bytes.toString("utf8");
  for (const chapter of chaptersOf(text)) expect(html).toContain(chapter);
  expect(await deck.filesOf(id)).toHaveLength(1);
});

const chaptersOf = (text: string): string[] => {
  const chapters = [...text.matchAll(/^## (Chapter \d+\. .+)$/gm)].map((match) => match[1] ?? "");
  expect(chapters.length).toBeGreaterThan(2);
  return chapters;
};
