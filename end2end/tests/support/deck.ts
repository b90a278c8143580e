// One Jobdeck on a database of its own.

import { randomBytes } from "node:crypto";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import type { Browser, BrowserContext } from "@playwright/test";
import pg from "pg";

import { createDatabase, databaseUrl, dropDatabase } from "./database.ts";
import { PASSWORD, type Role, emailOf } from "./people.ts";
import { Program } from "./process.ts";
import { TEMPLATE } from "./template.ts";

/** Which deck a file of tests gets. Files with equal options would share one, so `name` is the file's. */
export interface DeckOptions {
  name: string;
  /** What runs at first. Default `serve`: pages and a worker. */
  run?: "serve" | "web";
  /** Whether there is a user per role. Default true. */
  hasUsers?: boolean;
  env?: Record<string, string>;
}

export type JobState = "pending" | "running" | "retrying" | "succeeded" | "failed" | "canceled";

export interface JobRow {
  id: string;
  status: JobState;
  stage: string | null;
  attempts: number;
  starts: number;
  stalled_count: number;
  token: string;
  version: string;
  stages_at: Record<string, string>;
  error_class: string | null;
  error_code: string | null;
  last_error: string | null;
  result: { file: { object: string; name: string; bytes: number; pages: number | null } } | null;
  payload: Record<string, unknown>;
  created_at: Date;
  started_at: Date | null;
  finished_at: Date | null;
}

type StorageState = Awaited<ReturnType<BrowserContext["storageState"]>>;

const START_WITHIN_MS = 30_000;

export class Deck {
  url = "";
  /** What was printed while it started. */
  greeting = "";
  private readonly programs: Program[] = [];
  private readonly signedIn = new Map<Role, StorageState>();

  private constructor(
    private readonly options: DeckOptions,
    private readonly database: string,
    private readonly folder: string,
    private readonly pool: pg.Pool,
  ) {}

  static async start(options: DeckOptions): Promise<Deck> {
    const database = `jobdeck_e2e_${randomBytes(6).toString("hex")}`;
    const template = options.hasUsers === false ? null : process.env[TEMPLATE];
    if (template === undefined) throw new Error(`${TEMPLATE} is not set: the global set-up did not run`);
    await createDatabase(database, template);
    const pool = new pg.Pool({ connectionString: databaseUrl(database), max: 3 });
    // A connection that the server ends while idle is no test's failure.
    pool.on("error", () => {});
    const deck = new Deck(options, database, await mkdtemp(join(tmpdir(), "jobdeck-e2e-")), pool);
    try {
      await deck.startPages(options.run ?? "serve");
    } catch (error) {
      await deck.stop();
      throw error;
    }
    return deck;
  }

  private async startPages(run: "serve" | "web"): Promise<void> {
    const program = this.program([run], { JOBDECK_LISTEN: "127.0.0.1:0" });
    const [, url] = await program.prints(/Jobdeck is at (http:\/\/\S+)/, START_WITHIN_MS);
    this.url = url ?? "";
    const until = Date.now() + START_WITHIN_MS;
    let seen = "no answer";
    while (seen !== "200 ok") {
      if (Date.now() > until) throw new Error(`/healthz: ${seen}\n${program.log}`);
      seen = await fetch(`${this.url}/healthz`).then(
        async (answer) => `${answer.status} ${(await answer.text()).trim()}`,
        (error) => String(error),
      );
    }
    this.greeting = program.printed;
  }

  /** Starts another process on the same database and folder. */
  program(args: string[], env: Record<string, string> = {}): Program {
    const program = new Program(args, {
      DATABASE_URL: databaseUrl(this.database),
      JOBDECK_DATA_DIR: this.folder,
      ...this.options.env,
      ...env,
    });
    this.programs.push(program);
    return program;
  }

  /** Starts a worker beside the pages. */
  worker(env: Record<string, string> = {}): Program {
    return this.program(["work"], env);
  }

  /** The log of every process so far. */
  get log(): string {
    return this.programs.map((program) => program.log).join("\n--- next process\n");
  }

  async stop(): Promise<void> {
    const ends = await Promise.allSettled(this.programs.map((program) => program.stop()));
    await this.pool.end();
    await dropDatabase(this.database);
    await rm(this.folder, { recursive: true, force: true });
    for (const end of ends) if (end.status === "rejected") throw end.reason;
  }

  /** Cookies of someone with this role, who signed in by the form. */
  async cookiesOf(role: Role, browser: Browser): Promise<StorageState> {
    const known = this.signedIn.get(role);
    if (known) return known;
    const context = await browser.newContext({ baseURL: this.url });
    const page = await context.newPage();
    await page.goto("/sign-in");
    await page.getByLabel("E-mail").fill(emailOf(role));
    await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.waitForURL("**/jobs");
    const state = await context.storageState();
    await context.close();
    this.signedIn.set(role, state);
    return state;
  }

  async sql<Row extends pg.QueryResultRow>(text: string, values: unknown[] = []): Promise<Row[]> {
    return (await this.pool.query<Row>(text, values)).rows;
  }

  async job(id: string): Promise<JobRow> {
    const [job] = await this.sql<JobRow>("select * from jobdeck.jobs where id = $1", [id]);
    if (!job) throw new Error(`there is no job ${id}`);
    return job;
  }

  async jobsTitled(title: string): Promise<JobRow[]> {
    return this.sql<JobRow>("select * from jobdeck.jobs where payload->>'title' = $1 order by id", [title]);
  }

  /** Waits until the job is as wanted. */
  async jobWhere(id: string, what: string, wanted: (job: JobRow) => boolean, withinMs = 30_000): Promise<JobRow> {
    const until = Date.now() + withinMs;
    for (;;) {
      const job = await this.job(id);
      if (wanted(job)) return job;
      if (Date.now() > until) {
        const { status, stage, attempts, stalled_count, last_error } = job;
        const seen = JSON.stringify({ status, stage, attempts, stalled_count, last_error });
        throw new Error(`job ${id} was not ${what} within ${withinMs} ms; last seen ${seen}`);
      }
      await new Promise((next) => setTimeout(next, 50));
    }
  }

  async jobIs(id: string, state: JobState, withinMs?: number): Promise<JobRow> {
    return this.jobWhere(id, state, (job) => job.status === state, withinMs);
  }

  /** Stored files of a job, by name. */
  async filesOf(id: string): Promise<string[]> {
    const folder = join(this.folder, "files", "exports", id);
    return (await readdir(folder).catch(() => [])).sort();
  }

  /** Makes every claim and change of stage take a while in the database, so that people can see each of them. */
  async slowStages(seconds: number): Promise<void> {
    await this.sql(`
      create or replace function jobdeck.e2e_wait() returns trigger language plpgsql as
      $$ begin perform pg_sleep(${seconds}); return new; end $$`);
    await this.sql(`
      create or replace trigger e2e_slow before update on jobdeck.jobs for each row
      when (old.stage is distinct from new.stage and new.stage is not null
            or old.status = 'pending' and new.status = 'running')
      execute function jobdeck.e2e_wait()`);
  }

  async normalSpeed(): Promise<void> {
    await this.sql("drop trigger if exists e2e_slow on jobdeck.jobs");
  }
}
