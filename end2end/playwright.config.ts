import { defineConfig } from "@playwright/test";

// One Jobdeck of its own per file and project, on a real Postgres, in the system's Chromium.
//
// Environment, set by `cargo xtask e2e` and `cargo xtask test`:
// JOBDECK_BIN                the binary under test; default target/debug/jobdeck
// JOBDECK_TEST_DATABASE_URL  a Postgres server where databases may be created
// CHROMIUM_PATH              default /usr/bin/chromium
// SCREENSHOTS=1              also writes docs/screenshots
const screenshots = /screenshots\.spec\.ts$/;

export default defineConfig({
  testDir: "tests",
  outputDir: "test-results",
  globalSetup: "./tests/support/template.ts",
  workers: 2,
  retries: 0,
  forbidOnly: !!process.env.CI,
  timeout: 60_000,
  expect: { timeout: 10_000 },
  reporter: [["list"], ["json", { outputFile: "test-results/report.json" }]],
  use: {
    locale: "en-GB",
    timezoneId: "UTC",
    viewport: { width: 1440, height: 900 },
    actionTimeout: 10_000,
    navigationTimeout: 20_000,
    trace: "off",
    launchOptions: {
      executablePath: process.env.CHROMIUM_PATH ?? "/usr/bin/chromium",
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
      ],
    },
  },
  projects: [
    { name: "script", testIgnore: process.env.SCREENSHOTS ? [] : [screenshots] },
    {
      name: "noscript",
      // Crashes and the long document are the worker's affair, whatever the browser does.
      testIgnore: [/\.hydrate\.spec\.ts$/, /(crash|long)\.spec\.ts$/, screenshots],
      use: { javaScriptEnabled: false },
    },
  ],
});
