import { fileURLToPath } from "node:url";
import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

const page = (path: string) => fileURLToPath(new URL(path, import.meta.url));

// `npm run dev` serves the app with hot reload and passes the API on to a running Millpond.
const server = process.env.MILLPOND ?? "http://127.0.0.1:8081";

export default defineConfig({
	// References are relative, so that the app works below any path. The share page lies in s/ because it is served at /s/{id}.
	base: "./",
	cacheDir: "../node_modules/.vite",
	plugins: [react()],
	build: {
		target: "es2023",
		modulePreload: { polyfill: false },
		// The server's Content-Security-Policy allows no data: URLs but images.
		assetsInlineLimit: 0,
		rolldownOptions: { input: { dashboard: page("index.html"), share: page("s/index.html") } },
	},
	server: {
		host: "127.0.0.1",
		// The server answers to its own name and its own origin only.
		proxy: { "/api": { target: server, ws: true, changeOrigin: true, headers: { Origin: server } } },
	},
	test: { testTimeout: 30_000, include: ["src/**/*.test.ts", "src/**/*.test.tsx"] },
});
