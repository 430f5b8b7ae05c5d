import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";
import { compressed } from "./plugins/compressed";
import { licences } from "./plugins/licences";

// The content security policy allows the gateway's own files only: nothing is inlined as a data: URL.
export default defineConfig({
  plugins: [react(), licences(), compressed()],
  resolve: { alias: { "~": fileURLToPath(new URL("./src", import.meta.url)) } },
  build: {
    outDir: "../toban/gateway/static",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    manifest: "manifest.json",
    modulePreload: { polyfill: false },
    target: ["chrome123", "firefox121", "safari17.5"],
  },
  worker: { format: "es" },
  server: { proxy: { "/api": { target: process.env.TOBAN_GATEWAY ?? "http://127.0.0.1:7290", changeOrigin: true } } },
});
