// flood.cjs watches the page while many lines come, until its stdin ends, and prints the longest
// task of the page's thread in milliseconds, on the clock (longest) and of the processor
// (longestCPU): node flood.cjs MODULES CHROMIUM ADDRESS
const [modules, chromium, address] = process.argv.slice(2);
const puppeteer = require(modules + "/puppeteer-core");

(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox"], protocolTimeout: 170_000, timeout: 170_000 });
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  await page.setViewport({ width: 1600, height: 900 });
  await page.goto(address);
  await page.waitForFunction(() => document.querySelectorAll("#lines time").length > 20 && document.querySelectorAll(".process").length >= 50);
  await page.tracing.start({ categories: ["toplevel", "__metadata"] }); // after what loads the page
  console.log("following");
  await new Promise(done => process.stdin.resume().on("end", done));
  const { traceEvents } = JSON.parse(Buffer.from(await page.tracing.stop()).toString());
  const renderers = new Set(traceEvents.filter(e => e.name === "thread_name" && e.args.name === "CrRendererMain").map(e => e.pid + " " + e.tid));
  const tasks = traceEvents.filter(e => e.name === "ThreadControllerImpl::RunTask" && e.tdur && renderers.has(e.pid + " " + e.tid));
  const most = of => Math.max(...tasks.map(of)) / 1000;
  const lines = await page.evaluate(() => document.querySelectorAll("#lines time").length);
  await browser.close();
  console.log(JSON.stringify({ longest: most(e => e.dur), longestCPU: most(e => e.tdur), tasks: tasks.length, lines }));
})().catch(e => { console.error(e); process.exit(1); });
