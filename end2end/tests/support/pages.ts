// What people do on the pages, by roles and labels.

import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";

import { type Locator, type Page, expect } from "@playwright/test";

export const fixturePath = (name: string): string => join(import.meta.dirname, "../../fixtures", name);
export const fixture = (name: string): string => readFileSync(fixturePath(name), "utf8");

export type Format = "PDF" | "HTML";

export const MISHAPS = {
  storageFails: /^Storage fails twice/,
  slowDown: /^Provider says slow down/,
  storageRefuses: /^Storage refuses/,
};

export interface Document {
  title: string;
  text: string;
  format?: Format;
  mishap?: RegExp;
}

/** Fills in "Export a document" and presses its button. */
export async function pressExport(page: Page, { title, text, format = "PDF", mishap }: Document): Promise<void> {
  await page.goto("/demo");
  await page.getByRole("textbox", { name: "Title" }).fill(title);
  await page.getByRole("radio", { name: new RegExp(`^${format}`) }).check();
  if (mishap) {
    await page.getByText("What should happen").first().click();
    await page.getByRole("radio", { name: mishap }).check();
  }
  await fillMarkdown(page, text);
  await page.getByRole("button", { name: /^Export as/ }).click();
}

/** As if pasted. A long text is put in unseen, because laying it out takes longer than exporting it. */
async function fillMarkdown(page: Page, text: string): Promise<void> {
  const field = page.getByRole("textbox", { name: "Markdown" });
  if (text.length < 50_000) return field.fill(text);
  await field.evaluate((field: HTMLTextAreaElement, text) => {
    field.hidden = true;
    field.value = text;
  }, text);
}

/** Exports a document and returns the id of its job, whose page is then shown. */
export async function exportDocument(page: Page, document: Document): Promise<string> {
  await pressExport(page, document);
  await page.waitForURL(/\/e\/[0-9a-f-]{36}(\?|$)/);
  return jobIdOf(page);
}

export function jobIdOf(page: Page): string {
  const id = new URL(page.url()).pathname.split("/").pop();
  if (!id) throw new Error(`${page.url()} names no job`);
  return id;
}

/** The part of a job's id that lists show. */
export const short = (id: string): string => id.slice(-8);

export const heading = (page: Page): Locator => page.getByRole("heading", { level: 1 });

/** Waits until the page says so by itself; without script the page is asked for again. */
export async function expectHeading(page: Page, text: string | RegExp, hasScript: boolean, withinMs = 30_000): Promise<void> {
  await eventually(page, hasScript, (timeout) => expect(heading(page)).toHaveText(text, { timeout }), withinMs);
}

/** With script the page changes by itself. Without, it is right after a reload. */
export async function eventually(
  page: Page,
  hasScript: boolean,
  holds: (timeout: number) => Promise<void>,
  withinMs = 30_000,
): Promise<void> {
  if (hasScript) return holds(withinMs);
  let reloads = false;
  await expect(async () => {
    if (reloads) await page.reload();
    reloads = true;
    await holds(1000);
  }).toPass({ timeout: withinMs, intervals: [300] });
}

/** The steps on an export's page, as "word, how it stands". */
export async function stepsOf(page: Page): Promise<string[]> {
  const steps = await page.getByRole("list", { name: "Steps" }).getByRole("listitem").all();
  return Promise.all(steps.map(async (step) => (await step.innerText()).replace(/\s+/g, " ").trim()));
}

/** Notes every heading of an export's page, also those that stand for a moment only. */
export async function recordHeadings(page: Page): Promise<() => Promise<string[]>> {
  await page.addInitScript(() => {
    if (!location.pathname.startsWith("/e/")) return;
    const look = () => {
      const heading = document.querySelector("h1")?.textContent?.trim();
      const seen: string[] = JSON.parse(sessionStorage.getItem("e2e-headings") ?? "[]");
      if (!heading || seen.at(-1) === heading) return;
      sessionStorage.setItem("e2e-headings", JSON.stringify([...seen, heading]));
    };
    new MutationObserver(look).observe(document, { subtree: true, childList: true, characterData: true });
  });
  return () => page.evaluate(() => JSON.parse(sessionStorage.getItem("e2e-headings") ?? "[]"));
}

/** Presses Download and returns the file. */
export async function download(page: Page): Promise<{ name: string; bytes: Buffer }> {
  const started = page.waitForEvent("download");
  await page.getByRole("link", { name: /^Download/ }).click();
  const file = await started;
  return { name: file.suggestedFilename(), bytes: await readFile(await file.path()) };
}

/** The text of a PDF, in one line. */
export async function textOfPdf(bytes: Buffer): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "jobdeck-pdf-"));
  try {
    const path = join(folder, "file.pdf");
    await writeFile(path, bytes);
    const { stdout } = await promisify(execFile)("pdftotext", ["-enc", "UTF-8", path, "-"], { maxBuffer: 64 << 20 });
    return stdout.replace(/\s+/g, " ");
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Waits until the browser half runs: pages that follow changes say so. */
export async function expectLive(page: Page): Promise<void> {
  await expect(page.getByRole("button", { name: "Pause live updates" })).toBeVisible({ timeout: 20_000 });
  await expect(page.getByText("Live", { exact: true })).toBeVisible({ timeout: 20_000 });
}

export const rowOf = (page: Page, id: string): Locator =>
  page.getByRole("row").filter({ has: page.getByRole("link", { name: short(id) }) });
