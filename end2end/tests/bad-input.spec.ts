import { readFileSync } from "node:fs";

import type { APIResponse } from "@playwright/test";

import { download, expectHeading, exportDocument, fixture, fixturePath, heading, pressExport, textOfPdf } from "./support/pages.ts";
import { type Deck, type Page, expect, test } from "./support/test.ts";

test.use({ deckOptions: { name: "bad-input" } });

/** Sends a form as bytes, which no text field could hold. */
async function send(page: Page, deck: Deck, title: string, markdown: Buffer): Promise<APIResponse> {
  const encoded = [...markdown].map((byte) => `%${byte.toString(16).padStart(2, "0")}`).join("");
  return page.request.post("/demo", {
    data: `title=${encodeURIComponent(title)}&format=pdf&mishap=none&markdown=${encoded}`,
    headers: { origin: deck.url, "content-type": "application/x-www-form-urlencoded", accept: "text/html" },
    maxRedirects: 0,
  });
}

/** The plain sentence on a job's export page, and the operator's detail on the job's own. */
async function expectFailure(deck: Deck, page: Page, id: string, hasScript: boolean, plain: RegExp, detail: RegExp) {
  await expectHeading(page, "This export could not be finished", hasScript);
  await expect(page.getByText(plain)).toBeVisible();
  await expect(page.getByRole("heading", { name: "What you can do" })).toBeVisible();
  const job = await deck.jobIs(id, "failed");
  expect(job.attempts).toBe(1);
  expect(job.error_class).toBe("unrecoverable");
  expect(job.error_code).toBe("invalid_content");
  expect(job.last_error).toMatch(detail);
  expect(await deck.filesOf(id)).toEqual([]);
  await page.goto(`/jobs/${id}`);
  await expect(page.getByRole("main")).toContainText(detail);
  await expect(page.getByRole("main")).toContainText("invalid_content");
  await expect(page.getByRole("main")).toContainText("Unrecoverable");
}

test("a text without content is refused with words, and kept", async ({ deck, visit, expectFault }) => {
  expectFault(/status of 422/);
  const page = await visit("operator");
  await pressExport(page, { title: "Nothing", text: " \n\n " });
  await expect(heading(page)).toHaveText("The document was not exported");
  await expect(page.getByRole("alert")).toHaveText("The text is empty. Write some Markdown, then export it.");
  await expect(page.getByRole("textbox", { name: "Title" })).toHaveValue("Nothing");
  // The same form goes on from there.
  await page.getByRole("textbox", { name: "Markdown" }).fill("# Something");
  await page.getByRole("button", { name: "Export again" }).click();
  await page.waitForURL(/\/e\/[0-9a-f-]{36}/);
  expect(await deck.jobsTitled("Nothing")).toHaveLength(1);
});

test("an empty field is not sent at all", async ({ deck, visit }) => {
  const page = await visit("operator");
  await pressExport(page, { title: "Empty field", text: "" });
  await expect(page.getByRole("textbox", { name: "Markdown" })).toBeFocused();
  expect(new URL(page.url()).pathname).toBe("/demo");
  expect(await deck.jobsTitled("Empty field")).toHaveLength(0);
});

test("a text of comments only fails with words", async ({ deck, visit, hasScript }) => {
  const page = await visit("operator");
  const id = await exportDocument(page, { title: "Comments only", text: "<!-- nothing to see -->\n" });
  await expectFailure(deck, page, id, hasScript, /There is nothing to show: the text is empty/, /empty|nothing/i);
});

/** Sends the demo form with a text that would take long to type. */
async function sendLong(page: Page, title: string, words: number): Promise<void> {
  await page.goto("/demo");
  await page.getByRole("textbox", { name: "Title" }).fill(title);
  await page.getByRole("textbox", { name: "Markdown" }).evaluate((field: HTMLTextAreaElement, words) => {
    // Unseen, because laying out so much text takes long.
    field.hidden = true;
    field.value = "word ".repeat(words);
    field.form?.requestSubmit();
  }, words);
}

test("20 MB are refused at once with words", async ({ deck, visit, expectFault }) => {
  expectFault(/status of 413/);
  const page = await visit("operator");
  const answered = page.waitForEvent("console", {
    predicate: (message) => message.text().includes("status of 413"),
    timeout: 40_000,
  });
  await sendLong(page, "Twenty megabytes", 4_000_000);
  await answered;
  await expect(page.locator("body")).toContainText(/too (large|much)/i);
  await expect(page.locator("body")).toContainText(/\d+ ?(MB|KiB|MiB|KB)/);
  expect(await deck.jobsTitled("Twenty megabytes")).toHaveLength(0);
  await page.goto("/jobs");
  await expect(heading(page)).toHaveText("Jobs");
});

test("a text just over the limit is refused with the limit, and kept", async ({ deck, visit, expectFault }) => {
  expectFault(/status of 422/);
  const page = await visit("operator");
  await sendLong(page, "Somewhat long", 900_000);
  await expect(page.locator("[role=alert]")).toHaveText(/The text has 4\.\d MB, the limit is \d+(\.\d)? MB\./);
  await expect(page.locator("textarea")).toHaveCount(1);
  expect(await deck.jobsTitled("Somewhat long")).toHaveLength(0);
});

test("a NUL character is named with its place", async ({ deck, visit }) => {
  const page = await visit("operator", "/jobs");
  const answer = await send(page, deck, "With a NUL", readFileSync(fixturePath("nul.md")));
  expect(answer.status()).toBe(422);
  expect(await answer.text()).toContain("Line 4, column 16 holds a NUL character, which no text has.");
  expect(await deck.jobsTitled("With a NUL")).toHaveLength(0);
});

test("bytes that are not UTF-8 are refused with words", async ({ deck, visit }) => {
  const page = await visit("operator", "/jobs");
  const answer = await send(page, deck, "Not UTF-8", Buffer.from([0x23, 0x20, 0xc3, 0x28, 0xff, 0xfe, 0x0a]));
  expect(answer.status()).toBe(422);
  expect(await answer.text()).toContain("The text is not valid UTF-8. Save the file as UTF-8, then export it.");
  expect(await deck.jobsTitled("Not UTF-8")).toHaveLength(0);
});

test("a broken image is named with its line", async ({ deck, visit, hasScript }) => {
  const page = await visit("operator");
  const id = await exportDocument(page, { title: "Broken image", text: fixture("broken-image.md") });
  await expectFailure(deck, page, id, hasScript, /The image on line 5 is damaged or cut off\./, /line 5/);
});

test("a missing glyph is named with its line, and HTML does without", async ({ deck, visit, hasScript }) => {
  const page = await visit("operator");
  const text = fixture("missing-glyph.md");
  const id = await exportDocument(page, { title: "Missing glyph", text });
  await expectFailure(deck, page, id, hasScript, /No font at hand can draw one character: U\+10BEEF on line 5\./, /U\+10BEEF/);
  await exportDocument(page, { title: "Missing glyph", text, format: "HTML" });
  await expectHeading(page, "Ready to download", hasScript);
});

test("raw HTML arrives as text, and nothing of it runs", async ({ visit, hasScript }) => {
  const page = await visit("operator");
  const document = { title: "Raw HTML", text: fixture("raw-html.md") };
  await exportDocument(page, document);
  await expectHeading(page, "Ready to download", hasScript);
  const pdf = await textOfPdf((await download(page)).bytes);
  expect(pdf).toContain("<script>document.title");
  expect(pdf).toContain("The last sentence is still here.");
  await exportDocument(page, { ...document, format: "HTML" });
  await expectHeading(page, "Ready to download", hasScript);
  const html = (await download(page)).bytes.toString("utf8");
  expect(html).toContain("&lt;script&gt;document.title");
  expect(html).not.toMatch(/<script|<img|javascript:alert\(3\)"|onclick="|onerror="/i);
  const reader = await visit(null);
  const asked: string[] = [];
  reader.on("request", (request) => asked.push(request.url()));
  reader.on("dialog", (dialog) => asked.push(dialog.message()));
  await reader.setContent(html);
  expect(asked).toEqual([]);
  await expect(reader.getByText("The last sentence is still here.")).toBeVisible();
});

test("a ragged table is made even", async ({ visit, hasScript }) => {
  const page = await visit("operator");
  await exportDocument(page, { title: "Ragged table", text: fixture("ragged-table.md") });
  await expectHeading(page, "Ready to download", hasScript);
  const pdf = await textOfPdf((await download(page)).bytes);
  expect(pdf).toContain("no number was written down");
  expect(pdf).toContain("After the table the text goes on.");
});
