import pg from "pg";

function server(): URL {
  const url = process.env.JOBDECK_TEST_DATABASE_URL;
  if (!url) throw new Error("JOBDECK_TEST_DATABASE_URL must name a Postgres server; `cargo xtask e2e` sets it");
  return new URL(url);
}

/** The address of one database on the server for tests. */
export function databaseUrl(name: string): string {
  const url = server();
  url.pathname = `/${name}`;
  return url.href;
}

async function onServer(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: server().href });
  await client.connect();
  try {
    await client.query(statement);
  } finally {
    await client.end();
  }
}

/** Creates a database, as a copy of `template` if there is one. Names are our own, so quoting is enough. */
export async function createDatabase(name: string, template: string | null): Promise<void> {
  await onServer(`create database "${name}" template "${template ?? "template0"}"`);
}

export async function dropDatabase(name: string): Promise<void> {
  await onServer(`drop database if exists "${name}" with (force)`);
}
