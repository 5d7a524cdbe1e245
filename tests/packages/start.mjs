// A child process with the environment of a proxy of its own.
import { spawnSync } from "node:child_process";
import { start } from "politely-proxy";

const proxy = await start("-v");
const fetches = new URL("fetch.mjs", import.meta.url).pathname;
spawnSync(process.execPath, [fetches, ...process.argv.slice(2)], { stdio: "inherit", env: proxy.environment });
await proxy.close();
