// Builds the package after it was installed from its folder. npm does not install
// the compiler then, since that is a development dependency.
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";

const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("npm_")));

function npm(...args) {
  const { status } = spawnSync("npm", args, { env, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}

if (!existsSync("node_modules/typescript")) npm("ci", "--ignore-scripts", "--no-audit", "--no-fund");
npm("run", "build");
