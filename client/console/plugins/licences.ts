import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Plugin } from "vite";

interface Package {
  name: string;
  version: string;
  license?: string;
}

/** Writes licences.txt: the licence of each package that the built files contain. */
export function licences(): Plugin {
  const directories = new Set<string>();
  return {
    name: "licences",
    apply: "build",
    generateBundle(_options, bundle) {
      for (const chunk of Object.values(bundle)) {
        if (chunk.type !== "chunk") continue;
        for (const module of chunk.moduleIds) {
          const found = packageDirectory(module);
          if (found) directories.add(found);
        }
      }
      // Loaded as a file of its own, by a worker.
      directories.add(join(process.cwd(), "node_modules/elkjs"));
      const texts = [...directories].sort().map(licenceText);
      this.emitFile({ type: "asset", fileName: "licences.txt", source: texts.join("\n") });
    },
  };
}

function packageDirectory(module: string): string | undefined {
  if (!module.includes("/node_modules/")) return undefined;
  let directory = dirname(module.replace(/^\0/, "").replace(/\?.*$/, ""));
  while (!directory.endsWith("/node_modules")) {
    const path = join(directory, "package.json");
    if (existsSync(path) && (JSON.parse(readFileSync(path, "utf8")) as Partial<Package>).version) return directory;
    directory = dirname(directory);
  }
  return undefined;
}

function licenceText(directory: string): string {
  const about = JSON.parse(readFileSync(join(directory, "package.json"), "utf8")) as Package;
  const file = readdirSync(directory).find((name) => /^(licen[sc]e|copying)/i.test(name));
  const text = file ? readFileSync(join(directory, file), "utf8").trim() : "";
  return `== ${about.name} ${about.version} (${about.license ?? "see below"})\n\n${text}\n`;
}
