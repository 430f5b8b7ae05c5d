import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { brotliCompressSync, constants, gzipSync } from "node:zlib";
import type { Plugin } from "vite";

const TEXT = /\.(js|css|html|svg|txt)$/;
const SMALLEST = 1024;

/** Writes each file in compressed forms too, which the gateway serves to browsers that take them. */
export function compressed(): Plugin {
  let directory = "";
  return {
    name: "compressed",
    apply: "build",
    configResolved(config) {
      directory = resolve(config.root, config.build.outDir);
    },
    closeBundle() {
      for (const name of readdirSync(directory, { recursive: true, encoding: "utf8" })) {
        if (!TEXT.test(name)) continue;
        const path = join(directory, name);
        const text = readFileSync(path);
        if (text.length < SMALLEST) continue;
        writeFileSync(`${path}.gz`, gzipSync(text, { level: 9 }));
        const params = { [constants.BROTLI_PARAM_QUALITY]: 9 };
        writeFileSync(`${path}.br`, brotliCompressSync(text, { params }));
      }
    },
  };
}
