// app.cjs is a client with MCP Apps, made of the extension's own SDK: it runs pmcp, shows the
// page of list_processes in a sandboxed frame of headless Chromium, uses it, and prints what it
// saw as JSON: node app.cjs MODULES CHROMIUM SCREENSHOT PMCP
const [modules, chromium, screenshot, pmcp] = process.argv.slice(2);
const puppeteer = require(modules + "/puppeteer-core");
const esbuild = require(modules + "/esbuild");
const { readFileSync, mkdtempSync, rmSync } = require("fs");

// bundle returns the path of a script that holds what an ES module exports.
const temporary = mkdtempSync("/tmp/pmcp-app-");
async function bundle(name, contents, options) {
  const outfile = temporary + "/" + name;
  await esbuild.build({ stdin: { contents, resolveDir: modules }, bundle: true, outfile, logLevel: "error", ...options });
  return outfile;
}

(async () => {
  const node = require(await bundle("node.cjs", 'export { Client } from "@modelcontextprotocol/client"; export { StdioClientTransport } from "@modelcontextprotocol/client/stdio"; export { getToolUiResourceUri, isToolVisibilityModelOnly, RESOURCE_MIME_TYPE } from "@modelcontextprotocol/ext-apps/app-bridge";', { platform: "node", format: "cjs" }));
  const sdk = await bundle("sdk.js", 'export { AppBridge, PostMessageTransport } from "@modelcontextprotocol/ext-apps/app-bridge";', { format: "iife", globalName: "sdk" });

  const client = new node.Client({ name: "a client with MCP Apps", version: "1" }, { capabilities: { extensions: { "io.modelcontextprotocol/ui": { mimeTypes: [node.RESOURCE_MIME_TYPE] } } } });
  await client.connect(new node.StdioClientTransport({ command: pmcp, env: process.env, stderr: "ignore" }));
  const structured = { "pmcp/structured": true };
  const call = (name, args, _meta) => client.callTool({ name, arguments: args, _meta });
  await call("start_process", { name: "web", command: "python3 -m http.server {PORT} --bind 127.0.0.1", ports: { PORT: 0 }, ready: { port: 0 } });

  const seen = { calls: [], heights: [], links: [], wrong: [], elsewhere: [] };
  const { tools } = await client.listTools();
  const tool = tools.find(t => node.getToolUiResourceUri(t));
  seen.tool = tool.name;
  seen.modelOnly = node.isToolVisibilityModelOnly(tool);
  const { contents } = await client.readResource({ uri: node.getToolUiResourceUri(tool) });
  seen.type = contents[0].mimeType === node.RESOURCE_MIME_TYPE;

  // What the extension's specification lets an app do that asks for nothing.
  const policy = `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">`;

  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox"], protocolTimeout: 170_000, timeout: 170_000 });
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  await page.setViewport({ width: 1000, height: 800 });
  page.on("pageerror", e => seen.wrong.push(e.message));
  page.on("console", m => { if (m.type() === "error") seen.wrong.push(m.text()); });
  page.on("request", r => { if (!/^(about|data):/.test(r.url())) seen.elsewhere.push(r.url()); });
  await page.exposeFunction("callTool", (name, args, meta) => { seen.calls.push(name); return call(name, args, meta); });
  await page.exposeFunction("resized", height => { seen.heights.push(height); });
  await page.exposeFunction("opened", url => { seen.links.push(url); });
  await page.setContent(`<iframe id="app" sandbox="allow-scripts" width="960" height="100"></iframe>`);
  await page.evaluate(readFileSync(sdk, "utf8") + ";globalThis.sdk = sdk;");
  await page.evaluate(async html => {
    const frame = document.getElementById("app");
    const bridge = globalThis.bridge = new sdk.AppBridge(null, { name: "host", version: "1" }, { serverTools: {}, openLinks: {} }, { hostContext: { theme: "dark" } });
    bridge.oncalltool = ({ name, arguments: args, _meta }) => callTool(name, args, _meta);
    bridge.onsizechange = ({ height }) => { frame.height = height; resized(height); };
    bridge.onopenlink = async ({ url }) => { await opened(url); return {}; };
    const initialized = new Promise(done => { bridge.oninitialized = done; });
    await bridge.connect(new sdk.PostMessageTransport(frame.contentWindow, frame.contentWindow));
    frame.srcdoc = html;
    await initialized;
    await bridge.sendToolInput({ arguments: {} });
    await bridge.sendToolResult(await callTool("list_processes", {}));
  }, contents[0].text.replace("<meta", policy + "<meta"));
  const frame = await (await page.$("#app")).contentFrame();
  const until = (f, ...rest) => frame.waitForFunction(f, {}, ...rest);
  const back = () => frame.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await until(() => document.querySelector("#processes").textContent.includes("web"));
  await until(() => document.querySelector("#lines").textContent.includes("Serving HTTP"));
  await until(() => innerHeight > 300);
  seen.dark = await back();
  await page.screenshot({ path: screenshot });
  await page.evaluate(() => bridge.setHostContext({ theme: "light" }));
  await until(dark => getComputedStyle(document.body).backgroundColor !== dark, seen.dark);
  seen.light = await back();
  await frame.click("#processes a");
  await frame.click('[aria-label="Stop web"]');
  await until(() => [...document.querySelectorAll(".process")].some(e => e.textContent.includes("web") && e.textContent.includes("stopped")));
  seen.state = (await call("get_process_info", { process: "web" }, structured)).structuredContent.state;
  await page.evaluate(() => bridge.teardownResource({}));
  seen.status = await frame.evaluate(() => document.querySelector("#status").textContent);

  // A host that lets the page call no tools shows the result of the model's call.
  await page.evaluate(async (html, result) => {
    const frame = document.getElementById("app");
    const bridge = new sdk.AppBridge(null, { name: "host", version: "1" }, {}, {});
    const initialized = new Promise(done => { bridge.oninitialized = done; });
    await bridge.connect(new sdk.PostMessageTransport(frame.contentWindow, frame.contentWindow));
    frame.srcdoc = html;
    await initialized;
    await bridge.sendToolInput({ arguments: {} });
    await bridge.sendToolResult(result);
  }, contents[0].text.replace("<meta", policy + "<meta"), { content: [{ type: "text", text: "web: running, run 7" }] });
  const bare = await (await page.$("#app")).contentFrame();
  await bare.waitForFunction(() => document.body.textContent.includes("web: running, run 7"));
  await browser.close();
  await client.close();
  console.log(JSON.stringify(seen));
})().catch(e => { console.error(e); process.exitCode = 1; }).finally(() => { rmSync(temporary, { recursive: true }); if (process.exitCode) process.exit(); });
