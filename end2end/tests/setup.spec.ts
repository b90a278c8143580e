import { heading } from "./support/pages.ts";
import { PASSWORD } from "./support/people.ts";
import { expect, test } from "./support/test.ts";

test.use({ deckOptions: { name: "setup", hasUsers: false } });

test("the printed link makes the first admin, once", async ({ deck, visit }) => {
  const link = deck.greeting.match(/First sign-in.*(http:\/\/\S+)/)?.[1] ?? "";
  expect(link, deck.greeting).toContain(`${deck.url}/setup?token=`);

  const page = await visit(null, link);
  await page.getByLabel("Your name").fill("Ana Costa");
  await page.getByLabel("E-mail").fill("ana@example.com");
  await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
  await page.getByRole("button", { name: "Create admin" }).click();
  await page.waitForURL("**/demo");
  await expect(heading(page)).toHaveText("Export a document");
  await page.goto("/jobs");
  await expect(heading(page)).toHaveText("Jobs");
  await expect(page.getByText("Ana Costa").filter({ visible: true }).first()).toBeVisible();
  const users = await deck.sql<{ email: string; role: string }>("select email, role::text from jobdeck.users");
  expect(users).toEqual([{ email: "ana@example.com", role: "admin" }]);

  const second = await visit(null, link);
  await expect(second.getByRole("alert")).toBeVisible();
  await expect(second.getByRole("alert")).toContainText(/link/i);
  await expect(second.getByRole("button", { name: "Create admin" })).toHaveCount(0);
  const token = new URL(link).searchParams.get("token") ?? "";
  const form = { token, name: "Eve", email: "eve@example.com", password: PASSWORD };
  const answer = await second.request.post("/setup", { form, headers: { origin: deck.url }, maxRedirects: 0 });
  expect([answer.status(), answer.headers().location]).toEqual([303, "/setup?error=link"]);
  expect(await deck.sql("select email from jobdeck.users")).toHaveLength(1);
});
