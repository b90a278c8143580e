// The program under test. Only processes started here are ever ended.

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { resolve } from "node:path";

const STOP_WITHIN_MS = 20_000;
const running = new Set<ChildProcess>();

process.once("exit", () => {
  for (const child of running) child.kill("SIGKILL");
});

function binary(): string {
  const path = process.env.JOBDECK_BIN ?? resolve(import.meta.dirname, "../../../target/debug/jobdeck");
  if (!existsSync(path)) throw new Error(`JOBDECK_BIN: there is no ${path}; \`cargo xtask e2e\` builds it`);
  return path;
}

function start(args: string[], env: Record<string, string>): ChildProcess {
  const { PATH, HOME, TMPDIR, LANG } = process.env;
  const child = spawn(binary(), args, {
    env: { PATH, HOME, TMPDIR, LANG, RUST_BACKTRACE: "1", ...env } as NodeJS.ProcessEnv,
    stdio: ["ignore", "pipe", "pipe"],
  });
  running.add(child);
  child.once("exit", () => running.delete(child));
  return child;
}

/** Runs a command to its end and returns what it printed. */
export async function jobdeck(args: string[], env: Record<string, string>): Promise<string> {
  const program = new Program(args, env);
  const code = await program.ended;
  if (code !== 0) throw new Error(`jobdeck ${args.join(" ")} ended with ${code}:\n${program.log}`);
  return program.printed;
}

/** A running `jobdeck`. */
export class Program {
  /** Standard output alone. */
  printed = "";
  /** All output, in the order it came. */
  log = "";
  /** Exit code, or the signal's name. */
  readonly ended: Promise<number | string>;
  private readonly child: ChildProcess;
  private readonly waiting = new Set<() => void>();

  constructor(args: string[], env: Record<string, string>) {
    this.child = start(args, env);
    this.child.stdout?.setEncoding("utf8").on("data", (text: string) => {
      this.printed += text;
      this.log += text;
      for (const look of this.waiting) look();
    });
    this.child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.log += text;
    });
    this.ended = new Promise((done, fail) => {
      this.child.once("close", (code, signal) => {
        done(code ?? signal ?? "unknown");
        for (const look of this.waiting) look();
      });
      this.child.once("error", fail);
    });
  }

  get isRunning(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /** Waits until standard output matches. */
  async prints(pattern: RegExp, withinMs: number): Promise<RegExpMatchArray> {
    return new Promise((done, fail) => {
      const look = () => {
        const match = this.printed.match(pattern);
        if (match) end(() => done(match));
        else if (!this.isRunning) end(() => fail(new Error(`jobdeck ended early:\n${this.log}`)));
      };
      const end = (finish: () => void) => {
        clearTimeout(timer);
        this.waiting.delete(look);
        finish();
      };
      const timer = setTimeout(
        () => end(() => fail(new Error(`jobdeck did not print ${pattern} within ${withinMs} ms:\n${this.log}`))),
        withinMs,
      );
      this.waiting.add(look);
      look();
    });
  }

  /** Ends it at once, as a crash does. */
  async kill(): Promise<void> {
    if (this.isRunning) this.child.kill("SIGKILL");
    await this.ended;
  }

  /** Asks it to stop and waits; one that does not stop is an error. */
  async stop(): Promise<void> {
    if (!this.isRunning) return;
    this.child.kill("SIGTERM");
    const timer = setTimeout(() => this.child.kill("SIGKILL"), STOP_WITHIN_MS);
    const how = await this.ended;
    clearTimeout(timer);
    if (how === "SIGKILL") throw new Error(`jobdeck did not stop within ${STOP_WITHIN_MS} ms:\n${this.log}`);
  }
}
