// Writes the JSON schemas of what an MCP server sends: for each protocol revision, one
// file from the schemas that the official TypeScript SDK checks it with; for the two
// newest, also one from the specification's own schema.json, which the official
// conformance suite includes:
//
//	npm ci && npm pack @modelcontextprotocol/conformance@0.2.0-alpha.12 && tar xzf *.tgz
//	node generate.mjs DIRECTORY
//
// DIRECTORY/README.md describes where they come from and what was changed.
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as z from "zod";
import * as core from "@modelcontextprotocol/core/internal";
import * as first from "sdk-first/types.js";
import { zodToJsonSchema } from "zod-to-json-schema";

const dist = "node_modules/@modelcontextprotocol/client/dist";
const bundle = readFileSync(join(dist, readdirSync(dist).find((f) => /^src-.*\.mjs$/.test(f))), "utf8");

// frozen returns the SDK's schemas for one revision. The SDK does not export them, so
// frozen extracts the one function that builds them from its bundle.
function frozen(revision) {
  const start = bundle.indexOf(`//#region ../core-internal/src/wire/rev${revision}/buildSchemas.ts`);
  const region = bundle.slice(start, bundle.indexOf("//#endregion", start));
  const build = /^function (build\S*)\(\)/m.exec(region)[1];
  const names = Object.keys(core).filter((name) => !new RegExp(`(const|function|let) ${name}\\b`).test(region));
  const idle = "const TOOL_RESULT_FOREIGN_FAMILY_KEYS = [], normalizeContentlessToolResult = (v) => v;"; // needed by a schema that is not used
  return new Function("z", ...names, `${idle}\n${region}\nreturn ${build}();`)(z, ...names.map((name) => core[name]));
}

const modern = (schema) => z.toJSONSchema(schema, { io: "input", unrepresentable: "any", target: "draft-2020-12" });
const old = (schema) => zodToJsonSchema(schema, { $refStrategy: "none" });

// results maps the methods that a server answers to the names of their schemas.
const results = {
  initialize: "InitializeResult", ping: "EmptyResult", "logging/setLevel": "EmptyResult",
  "tools/list": "ListToolsResult", "tools/call": "CallToolResult",
  "resources/list": "ListResourcesResult", "resources/templates/list": "ListResourceTemplatesResult",
  "resources/read": "ReadResourceResult", "resources/subscribe": "EmptyResult", "resources/unsubscribe": "EmptyResult",
  "prompts/list": "ListPromptsResult", "prompts/get": "GetPromptResult", "completion/complete": "CompleteResult",
};
const notifications = {
  "notifications/progress": "ProgressNotification", "notifications/message": "LoggingMessageNotification",
  "notifications/resources/updated": "ResourceUpdatedNotification",
  "notifications/resources/list_changed": "ResourceListChangedNotification",
  "notifications/tools/list_changed": "ToolListChangedNotification",
  "notifications/prompts/list_changed": "PromptListChangedNotification",
};

function convert(schemas, names, toJSON) {
  return Object.fromEntries(Object.entries(names).map(([method, name]) => [method, toJSON(schemas[name + "Schema"])]));
}

// Since 2026-07-28 there is no handshake and no ping; subscriptions are streams.
const { initialize, ping, "logging/setLevel": _, "resources/subscribe": __, "resources/unsubscribe": ___, ...kept } = results;
const results2026 = { ...kept, "server/discover": "DiscoverResult", "subscriptions/listen": "SubscriptionsListenResult" };
const notifications2026 = { ...notifications, "notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification" };

const v2025 = frozen("2025-11-25"), v2026 = { ...frozen("2026-07-28") };
for (const [method, schema] of Object.entries(v2026.notificationSchemas2026)) v2026[notifications2026[method] + "Schema"] = schema;

const revisions = {
  "2024-11-05": { results: convert(first, results, old), notifications: convert(first, notifications, old) },
  "2025-11-25": { results: convert(v2025, results, modern), notifications: convert(v2025, notifications, modern) },
  "2026-07-28": { results: convert(v2026, results2026, modern), notifications: convert(v2026, notifications2026, modern) },
};

for (const [revision, schemas] of Object.entries(revisions)) {
  for (const schema of Object.values(schemas.results)) demandDefaults(schema);
  write(revision + ".sdk.json", schemas);
}

// The suite's bundle has each schema.json as an object literal, under a name that the
// minifier chose. One map lists them by revision, the newest last.
const suite = readFileSync("package/dist/index.js", "utf8");
const [, v2025Name, v2026Name] = /"2025-11-25":(\w+),\[\w+\]:(\w+)\}/.exec(suite);

function specification(name) {
  const start = suite.indexOf(`${name}={$schema:`) + name.length + 1;
  return new Function(`return ${suite.slice(start, endOfLiteral(suite, start))}`)();
}

// endOfLiteral returns the end of the object literal that starts at start.
function endOfLiteral(text, start) {
  for (let i = start, depth = 0, quote = ""; ; i++) {
    const c = text[i];
    if (quote) {
      if (c === "\\") i++;
      else if (c === quote) quote = "";
    } else if ("`'\"".includes(c)) quote = c;
    else if (c === "{") depth++;
    else if (c === "}" && --depth === 0) return i + 1;
  }
}

// The specification names its results and notifications as the SDK does.
for (const [name, revision, answers, notes] of [[v2025Name, "2025-11-25", results, notifications], [v2026Name, "2026-07-28", results2026, notifications2026]]) {
  const all = specification(name).$defs;
  const refer = (names) => Object.fromEntries(Object.entries(names).map(([method, name]) => [method, { $ref: "#/$defs/" + name }]));
  const schemas = { results: refer(answers), notifications: refer(notes), error: { $ref: "#/$defs/JSONRPCErrorResponse" }, $defs: {} };
  reach(schemas, all, schemas.$defs);
  write(revision + ".json", schemas);
}

// reach adds the definitions that schema refers to, directly or not, to found.
function reach(schema, all, found) {
  for (const [, name] of JSON.stringify(schema).matchAll(/"#\/\$defs\/(\w+)"/g)) {
    if (name in found) continue;
    found[name] = all[name];
    reach(all[name], all, found);
  }
}

function write(name, schemas) {
  writeFileSync(join(process.argv[2], name), JSON.stringify(schemas, strip) + "\n");
}

// demandDefaults makes those members required that the SDK fills in if they are missing:
// the specification requires them.
function demandDefaults(schema) {
  for (const name of ["content", "resultType"]) {
    if ("default" in (schema.properties?.[name] ?? {})) schema.required = [...new Set([...(schema.required ?? []), name])];
  }
}

// strip is a JSON replacer that drops descriptions, which are not checked.
function strip(key, value) {
  return key === "$schema" || (key === "description" && typeof value === "string") ? undefined : value;
}
