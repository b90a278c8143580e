// Before all tests: one database with the schema and a user per role, from which each deck gets its copy.

import { randomBytes } from "node:crypto";

import { createDatabase, dropDatabase, databaseUrl } from "./database.ts";
import { PASSWORD, ROLES, emailOf, nameOf } from "./people.ts";
import { jobdeck } from "./process.ts";

/** The variable by which test processes find the template. */
export const TEMPLATE = "JOBDECK_E2E_TEMPLATE";

export default async function prepare(): Promise<() => Promise<void>> {
  const template = `jobdeck_e2e_${randomBytes(5).toString("hex")}`;
  await createDatabase(template, null);
  const env = { DATABASE_URL: databaseUrl(template), JOBDECK_PASSWORD: PASSWORD };
  try {
    for (const role of ROLES) {
      await jobdeck(["users", "create", "--email", emailOf(role), "--name", nameOf(role), "--role", role], env);
    }
  } catch (error) {
    await dropDatabase(template);
    throw error;
  }
  process.env[TEMPLATE] = template;
  return () => dropDatabase(template);
}
