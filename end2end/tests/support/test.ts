// `test` and `expect` for all files: a deck, pages of people with a role, and no fault of any page unnoticed.

import { type BrowserContext, type Page, test as base, expect } from "@playwright/test";

import { Deck, type DeckOptions } from "./deck.ts";
import type { Role } from "./people.ts";

export { expect };
export { Deck, type DeckOptions, type JobRow, type JobState } from "./deck.ts";
export type { Role } from "./people.ts";
export type { Page } from "@playwright/test";

interface TestFixtures {
  /** A page of someone with this role, or of nobody, in a browser profile of its own. */
  visit: (who: Role | null, path?: string, options?: VisitOptions) => Promise<Page>;
  /** Faults that this test brings about on purpose. */
  expectFault: (pattern: RegExp) => void;
  hasScript: boolean;
}

interface WorkerFixtures {
  deckOptions: DeckOptions;
  deck: Deck;
}

export type VisitOptions = NonNullable<Parameters<import("@playwright/test").Browser["newContext"]>[0]>;

export const test = base.extend<TestFixtures, WorkerFixtures>({
  deckOptions: [{ name: "shared" }, { scope: "worker", option: true }],

  deck: [
    async ({ deckOptions }, use) => {
      const deck = await Deck.start(deckOptions);
      await use(deck);
      await deck.stop();
    },
    { scope: "worker", timeout: 90_000 },
  ],

  hasScript: async ({ javaScriptEnabled }, use) => use(javaScriptEnabled !== false),

  expectFault: async ({}, use, info) => {
    const expected: RegExp[] = [];
    expectedFaults.set(info.testId, expected);
    await use((pattern) => expected.push(pattern));
  },

  visit: async ({ browser, deck, hasScript, expectFault: _ }, use, info) => {
    const faults: string[] = [];
    const contexts: BrowserContext[] = [];
    await use(async (who, path, options = {}) => {
      const storageState = who ? await deck.cookiesOf(who, browser) : undefined;
      const context = await browser.newContext({ baseURL: deck.url, storageState, ...options });
      contexts.push(context);
      await context.addInitScript(reportPolicyViolations);
      context.on("page", (page) => watch(page, faults, hasScript));
      const page = await context.newPage();
      if (path) await page.goto(path);
      return page;
    });
    for (const context of contexts) await context.close();
    if (info.status !== info.expectedStatus) {
      await info.attach("server log", { body: deck.log, contentType: "text/plain" });
      console.log(`--- server log of ${info.titlePath.join(" › ")}\n${deck.log.slice(-6000)}`);
    }
    const expected = expectedFaults.get(info.testId) ?? [];
    const unexpected = faults.filter((fault) => !expected.some((pattern) => pattern.test(fault)));
    expect(unexpected, "faults of pages").toEqual([]);
  },
});

const expectedFaults = new Map<string, RegExp[]>();

function reportPolicyViolations(): void {
  addEventListener("securitypolicyviolation", (event) => {
    console.error(`content policy: ${event.violatedDirective} refused ${event.blockedURI} in ${event.sourceFile}`);
  });
}

/** Collects errors on the console, uncaught errors and requests that failed. */
function watch(page: Page, faults: string[], hasScript: boolean): void {
  page.on("console", (message) => {
    const text = message.text();
    if (message.type() === "error" || /hydration|panicked/i.test(text)) {
      faults.push(`${page.url()}: console: ${text} (${message.location().url})`);
    }
  });
  page.on("pageerror", (error) => faults.push(`${page.url()}: uncaught: ${error.stack ?? error.message}`));
  page.on("requestfailed", (request) => {
    const why = request.failure()?.errorText ?? "";
    // Leaving a page ends its streams; a download ends its navigation. Chromium with script switched off refuses to load
    // scripts ahead of time, and calls that the content policy.
    const isUnwanted = why === "csp" && !hasScript && request.resourceType() === "script";
    if (why !== "net::ERR_ABORTED" && !isUnwanted) faults.push(`${page.url()}: request: ${request.method()} ${request.url()} ${why}`);
  });
  page.on("crash", () => faults.push(`${page.url()}: the page crashed`));
}
