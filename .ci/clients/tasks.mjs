// Has one of the official TypeScript clients run a build as an MCP task, cancel another task, and a thousand
// more, and checks what is left:
//
//	node tasks.mjs sdk1|client2-legacy|client2-modern PMCP [SECONDS]
//
// SECONDS (3; with client2-modern 60, as a call becomes a task after 50 s) is how long the build takes. Client 2 leaves
// tasks to the package ext-tasks. On a failure, the script prints the reason and exits with code 1.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";

const [kind, pmcp] = process.argv.slice(2);
const modern = kind === "client2-modern";
const seconds = Number(process.argv[4] ?? (modern ? 60 : 3));
const parameters = { command: pmcp, args: [], env: process.env, cwd: process.env.PM_PROJECT_DIR, stderr: "inherit" };
const info = { name: kind, version: "1" };

// open returns text, which calls a tool, and build, which runs one as a task: build returns cancel, which cancels it, and
// ended, a promise of the text of its result or the status without one. created, a promise too, says that it is a task.
const open = { sdk1: openFirst, "client2-legacy": openSecond, "client2-modern": openSecond }[kind];

async function openFirst() {
  const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
  const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
  const client = new Client(info, { capabilities: { tasks: {} } });
  const transport = new StdioClientTransport(parameters);
  await client.connect(transport);
  await client.listTools(); // tells it which tools may be tasks
  return {
    pid: transport.pid,
    close: () => client.close(),
    text: async (name, args) => (await client.callTool({ name, arguments: args })).content[0].text,
    build(name, args) {
      let id, isTask;
      const created = new Promise((resolve) => (isTask = resolve));
      const ended = (async () => {
        for await (const m of client.experimental.tasks.callToolStream({ name, arguments: args })) {
          if (m.type === "taskCreated") isTask((id = m.task.taskId));
          if (m.type === "result") return m.result.content[0].text;
          if (m.type === "error") return m.error.message;
        }
      })();
      return { created, ended, cancel: () => client.experimental.tasks.cancelTask(id) };
    },
  };
}

async function openSecond() {
  const { Client } = await import("@modelcontextprotocol/client");
  const { StdioClientTransport } = await import("@modelcontextprotocol/client/stdio");
  const { createTaskSessionFromClient } = await import("@modelcontextprotocol/ext-tasks/client");
  const capabilities = modern ? {} : { tasks: {} };
  const client = new Client(info, { capabilities, ...(modern ? { versionNegotiation: { mode: "auto" } } : {}) });
  const transport = new StdioClientTransport(parameters);
  await client.connect(transport);
  const framing = { protocolVersion: "2026-07-28", clientInfo: info, clientCapabilities: {} };
  const session = createTaskSessionFromClient(client, { endpointId: "pmcp", ...(modern ? { rawDispatch: rawDispatch(transport), v2RequestFraming: framing } : {}) });
  const { tools } = await client.listTools();
  assert.equal(tools.filter((t) => t.execution?.taskSupport === "optional").length, modern ? 0 : 4);
  const { toolDeclarationFromMcpTool } = await import("@modelcontextprotocol/ext-tasks/client");
  return {
    pid: transport.pid,
    close: async () => (await session.close(), client.close()),
    text: async (name, args) => (await client.callTool({ name, arguments: args })).content[0].text,
    build(name, args) {
      const declaration = toolDeclarationFromMcpTool(tools.find((t) => t.name === name));
      const begun = session.callTool(name, args, { declaration, task: { preference: modern ? "allow" : "prefer" } });
      const created = begun.then((execution) => execution.handle?.taskId);
      const ended = begun.then((execution) => execution.settle()).then(({ outcome }) => outcome.result?.content[0].text ?? outcome.status);
      return { created, ended, cancel: async () => (await begun).cancel() };
    },
  };
}

// rawDispatch sends requests that the SDK's client would not let pass, under ids of its own.
function rawDispatch(transport) {
  const waiting = new Map();
  let last = 0;
  const deliver = transport.onmessage;
  transport.onmessage = (m, ...rest) => {
    const answer = waiting.get(m.id);
    if (!answer) return deliver(m, ...rest);
    waiting.delete(m.id);
    answer(m.error ? { kind: "error", error: m.error } : { kind: "result", result: m.result });
  };
  return (request) =>
    new Promise((resolve, reject) => {
      const id = `raw-${++last}`;
      waiting.set(id, resolve);
      transport.send({ jsonrpc: "2.0", id, ...request }).catch(reject);
    });
}

// memory returns the bytes of the server's own memory: that of the child of the launched process.
function memory(guardian) {
  const [server] = execFileSync("pgrep", ["-P", guardian], { encoding: "utf8" }).trim().split("\n");
  return 1024 * Number(/RssAnon:\s+(\d+)/.exec(readFileSync(`/proc/${server}/status`, "utf8"))[1]);
}

const { text, build, pid, close } = await open();
const built = build("start_process", { name: "build", command: `sleep ${seconds}; echo built`, wait: "exit", timeout_ms: 600_000 });
assert.ok(await built.created, "the build is no task");
assert.match(await text("list_processes", {}), /build: (starting|running)/); // the task comes before the process
assert.match(await built.ended, /build: exited, exit code 0[^]* built\n/);
assert.doesNotMatch(await text("list_processes", {}), /events/);

const server = build("start_process", { name: "server", command: "sleep 1000", wait: "exit", timeout_ms: 600_000 });
assert.ok(await server.created, "the start is no task");
await server.cancel();
assert.match(await server.ended, /cancelled/);
assert.match(await text("list_processes", {}), /server: running/);

let grown = 0;
if (!modern) { // there every task takes 50 s
  const before = memory(pid);
  for (let i = 0; i < 20; i++) { // client 1 looks once a second whether a task has ended
    await Promise.all(Array.from({ length: 50 }, async () => {
      const wait = build("wait_for_process", { process: "server", until: "exit", timeout_ms: 600_000 });
      await wait.created;
      await wait.cancel();
      await wait.ended;
    }));
  }
  grown = (memory(pid) - before) / 2 ** 20;
  assert.ok(grown < 16, `the server has grown by ${grown} MiB`);
}
await text("stop_process", { process: "*" });
await close();
console.log(`${kind}: tasks: fine${modern ? "" : `, ${grown.toFixed(1)} MiB more after 1,000`}`);
process.exit(0); // timers of the clients go on
