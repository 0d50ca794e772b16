// Runs a whole session with one of the official TypeScript clients:
//
//	node session.mjs sdk1|client2-legacy|client2-modern PMCP
//
// The client itself checks each structured result against the declared schema. On a
// failure, the script prints the reason and exits with code 1.
import assert from "node:assert/strict";

const [kind, pmcp] = process.argv.slice(2);
const modern = kind === "client2-modern";

// connect returns a client, the set of resources of which it received updates, and the
// transport to connect it with.
async function connect() {
  const parameters = { command: pmcp, args: [], env: { ...process.env, PM_STRUCTURED_OUTPUT: "true" }, cwd: process.env.PM_PROJECT_DIR, stderr: "inherit" };
  const info = { name: kind, version: "1" };
  const updates = new Set();
  if (kind === "sdk1") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    const { ResourceUpdatedNotificationSchema } = await import("@modelcontextprotocol/sdk/types.js");
    const client = new Client(info);
    client.setNotificationHandler(ResourceUpdatedNotificationSchema, (n) => void updates.add(n.params.uri));
    return { client, updates, transport: new StdioClientTransport(parameters) };
  }
  const { Client } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const client = new Client(info, modern ? { versionNegotiation: { mode: "auto" } } : {});
  client.setNotificationHandler("notifications/resources/updated", (n) => void updates.add(n.params.uri));
  return { client, updates, transport: new StdioClientTransport(parameters) };
}

const { client, updates, transport } = await connect();
const problems = [];
client.onerror = (error) => problems.push(error);
await client.connect(transport);

const version = client.getNegotiatedProtocolVersion?.() ?? "legacy"; // the old client has no such method
if (kind !== "sdk1") assert.equal(version, modern ? "2026-07-28" : "2025-11-25");
assert.equal(client.getServerVersion().name, "pmcp");
assert.match(client.getInstructions(), /start_process/);

const { tools } = await client.listTools(); // from here on callTool validates against it
assert.ok(tools.length >= 28, `${tools.length} tools`);
for (const tool of tools) assert.equal(tool.outputSchema?.type ?? "object", "object", tool.name);

async function call(name, args = {}) {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(!result.isError, `${name}: ${result.content?.[0]?.text}`);
  assert.ok(result.content[0].text.length > 0, `${name} has no text`);
  return result.structuredContent;
}

async function fails(name, args, pattern) {
  const result = await client.callTool({ name, arguments: args });
  assert.ok(result.isError, `${name} did not fail`);
  assert.match(result.content[0].text, pattern);
}

if (modern) await client.listen({ resourceSubscriptions: ["processes://web"], resourcesListChanged: true });
else await client.subscribeResource({ uri: "processes://web" });

const server = `require("http").createServer((q, r) => r.end("hello")).listen(0, "127.0.0.1", () => console.log("listening"))`;
const web = await call("start_process", { name: "web", command: process.execPath, args: ["-e", server], ready: { port: 0 }, health: { tcp: "1" } });
assert.equal(web.ready, true);
const job = await call("start_process", { name: "job", command: "sh", args: ["-c", "echo 'Error: it broke' >&2; exit 3"], wait: "exit" });
assert.equal(job.exit_code, 3);
assert.match(job.lines.join("\n"), /it broke/);

for (const name of ["list_processes", "get_system_stats", "get_server_info", "get_logs", "tail_logs", "get_errors", "get_latest_errors", "list_groups"]) await call(name);
for (const name of ["get_process_info", "get_process_stats", "check_process_health"]) await call(name, { process: "web" });
await call("search_logs", { query: "broke", context: 1 });
await call("create_group", { name: "stack", members: [{ process: "web" }, { process: "job", depends_on: [{ process: "web" }] }] });
await call("start_group", { group: "stack" });
await call("stop_group", { group: "stack" });
await call("restart_process", { process: "web", wait: "ready" });
await fails("start_process", { name: "x", comand: "y" }, /did you mean command\?/);
await fails("get_logs", { process: "wbe" }, /did you mean web\?/);
await assert.rejects(client.callTool({ name: "start_proces", arguments: {} }), /did you mean start_process\?/);

const aborted = new AbortController();
let wait;
const progress = new Promise((resolve) => {
  const options = { signal: aborted.signal, onprogress: resolve };
  wait = client.callTool({ name: "wait_for_process", arguments: { process: "web", until: "exit" } }, ...(kind === "sdk1" ? [undefined, options] : [options]));
});
const waiting = assert.rejects(wait);
assert.match((await progress).message, /web: running/);
await call("list_processes");
aborted.abort("enough");
await waiting;

const { resources } = await client.listResources();
assert.ok(resources.some((r) => r.uri === "logs://job"));
for (const { uri, mimeType } of resources) {
  const { text } = (await client.readResource({ uri })).contents[0];
  if (uri.startsWith("ui://")) assert.ok(mimeType === "text/html;profile=mcp-app" && /^<!doctype html>/i.test(text), uri);
  else JSON.parse(text);
}
await assert.rejects(client.readResource({ uri: "processes://nobody" }), (e) => e.code === (kind === "sdk1" ? -32002 : -32602));
assert.ok((await client.listResourceTemplates()).resourceTemplates.length >= 3);
const { prompts } = await client.listPrompts();
for (const prompt of prompts) {
  const [{ name }] = prompt.arguments;
  const value = name === "group" ? "stack" : "web";
  assert.ok((await client.getPrompt({ name: prompt.name, arguments: { [name]: value } })).messages[0].content.text.length > 50);
  await assert.rejects(client.getPrompt({ name: prompt.name }), (e) => e.code === -32602);
}
const completion = await client.complete({ ref: { type: "ref/prompt", name: "debug_process" }, argument: { name: "process", value: "j" } });
assert.deepEqual(completion.completion.values, ["job"]);
if (!modern) {
  await client.setLoggingLevel("error");
  await client.ping();
}
for (const end = Date.now() + 60_000; !updates.has("processes://web"); await new Promise((resolve) => setTimeout(resolve, 20))) {
  assert.ok(Date.now() < end, "no update of processes://web");
}
await call("stop_process", { process: "*" });
await client.close();
assert.deepEqual(problems, []);
console.log(`${kind}: ${version}, ${tools.length} tools, ${resources.length} resources, ${prompts.length} prompts: fine`);
