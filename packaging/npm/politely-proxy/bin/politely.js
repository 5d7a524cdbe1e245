#!/usr/bin/env node
"use strict";
const { spawn } = require("node:child_process");
const { closeSync, openSync } = require("node:fs");
const { binary } = require("../index.js");

const child = spawn(binary(), process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`error: cannot run politely: ${error.message}`);
  process.exitCode = 126;
});
child.on("exit", (code, signal) => {
  if (signal === null) {
    process.exitCode = code;
    return;
  }
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});

// A terminal sends Ctrl-C to politely as well; what comes without a terminal comes here alone.
const typed = onTerminal() ? ["SIGINT", "SIGQUIT"] : [];
for (const signal of ["SIGINT", "SIGQUIT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2"]) {
  process.on(signal, () => typed.includes(signal) || child.kill(signal));
}

function onTerminal() {
  try {
    closeSync(openSync("/dev/tty"));
    return true;
  } catch {
    return false;
  }
}
