// For `globalSetup` of Vitest: tests read `process.env.REDIS_URL`, or `inject("redisUrl")`.

import { startForTests } from "./for-tests.js";

export default async function setup(project) {
  const { url, stop } = await startForTests();
  project.provide("redisUrl", url);
  return stop;
}
