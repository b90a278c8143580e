import { MISHAPS, exportDocument } from "./support/pages.ts";
import { type Page, expect, test } from "./support/test.ts";

test.use({ deckOptions: { name: "pages" } });

/** One heading, a language and a name for every page; nothing to scroll sideways. */
async function expectSound(page: Page, lang: string): Promise<string> {
  await expect(page.getByRole("heading", { level: 1 })).toHaveCount(1);
  await expect(page.locator("html")).toHaveAttribute("lang", lang);
  await expect(page.getByRole("main")).toHaveCount(1);
  const title = await page.title();
  expect(title).toMatch(/\S.* – Jobdeck$/);
  const sideways = await page.evaluate(() => {
    const wide = [...document.querySelectorAll("body *")].filter(
      (element) => element.getBoundingClientRect().right > innerWidth + 1 && !element.closest("[tabindex='0'], pre, .tabs"),
    );
    const { scrollWidth, clientWidth } = document.documentElement;
    return scrollWidth > clientWidth ? `${scrollWidth} > ${clientWidth}: ${wide.slice(0, 3).map((element) => element.outerHTML.slice(0, 200))}` : "";
  });
  expect(sideways, page.url()).toBe("");
  return title;
}

for (const [locale, lang] of [
  ["en-GB", "en"],
  ["zh-CN", "zh-CN"],
] as const) {
  test(`every page is sound at 360 px, ${lang}`, async ({ deck, visit }) => {
    // The labels that bring about the jobs are English.
    const english = await visit("operator");
    const failed = await exportDocument(english, {
      title: `A title that goes on for rather longer than a small screen has room for ${lang}`,
      text: "# Fails",
      mishap: MISHAPS.storageRefuses,
    });
    await deck.jobIs(failed, "failed");
    const exportPage = new URL(english.url()).pathname;

    const options = { locale, viewport: { width: 360, height: 740 } };
    const page = await visit("operator", undefined, options);
    const cookies = await english.context().cookies(new URL(exportPage, deck.url).href);
    await page.context().addCookies(cookies.filter((cookie) => cookie.path.startsWith("/e/")));
    const titles: string[] = [];
    for (const path of ["/jobs", "/jobs?state=failed", `/jobs/${failed}`, "/demo", exportPage]) {
      await page.goto(path);
      titles.push(await expectSound(page, lang));
    }
    const nobody = await visit(null, "/sign-in", options);
    titles.push(await expectSound(nobody, lang));
    expect(new Set(titles).size, titles.join(" | ")).toBe(titles.length);
  });
}

test("whoever is not signed in is led to the sign-in and back", async ({ visit }) => {
  const page = await visit(null, "/jobs?state=failed");
  await expect(page).toHaveURL(/\/sign-in\?next=/);
  await page.getByLabel("E-mail").fill("viewer@example.com");
  await page.getByLabel("Password", { exact: true }).fill("not the password at all");
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await expect(page.getByRole("alert")).toContainText(/wrong/);
  await page.getByLabel("E-mail").fill("viewer@example.com");
  await page.getByLabel("Password", { exact: true }).fill("a password for tests only");
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await expect(page).toHaveURL(/\/jobs\?state=failed$/);
  await page.getByRole("button", { name: "Sign out" }).first().click();
  await expect(page).toHaveURL(/\/sign-in$/);
  await page.goto("/jobs");
  await expect(page).toHaveURL(/\/sign-in(\?|$)/);
  await page.goBack();
  await expect(page.getByRole("heading", { level: 1 })).toHaveText("Sign in");
});

test("addresses that lead nowhere say so", async ({ visit, expectFault }) => {
  expectFault(/status of 404/);
  const page = await visit("viewer");
  for (const path of ["/nowhere", "/jobs/01a22b0e-9268-773c-b768-db5b8f4d3e27", "/jobs/x"]) {
    const answer = await page.goto(path);
    expect(answer?.status(), path).toBe(404);
    await expect(page.getByRole("heading", { level: 1 })).toHaveCount(1);
  }
});

test("a viewer may not export", async ({ deck, visit }) => {
  const page = await visit("viewer", "/demo");
  await expect(page.getByRole("button", { name: /^Export as/ })).toBeDisabled();
  const form = { title: "By a viewer", format: "pdf", markdown: "# No", mishap: "none" };
  const answer = await page.request.post("/demo", { form, headers: { origin: deck.url }, maxRedirects: 0 });
  expect(answer.status()).toBe(403);
  expect(await deck.jobsTitled(form.title)).toHaveLength(0);
});

test("a form of another site is refused", async ({ deck, visit }) => {
  const page = await visit("operator", "/jobs");
  const form = { title: "From elsewhere", format: "pdf", markdown: "# No", mishap: "none" };
  for (const headers of [{ origin: "https://elsewhere.example" }, { origin: "null" }]) {
    const answer = await page.request.post("/demo", { form, headers, maxRedirects: 0 });
    expect(answer.status()).toBe(403);
  }
  expect(await deck.jobsTitled(form.title)).toHaveLength(0);
});
