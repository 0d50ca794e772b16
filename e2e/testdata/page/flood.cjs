// flood.cjs watches the page while many lines come, until its stdin ends, and prints the
// longest task of the browser's main thread: node flood.cjs MODULES CHROMIUM ADDRESS
const [modules, chromium, address] = process.argv.slice(2);
const puppeteer = require(modules + "/puppeteer-core");

(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox"], protocolTimeout: 170_000 });
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  await page.setViewport({ width: 1600, height: 900 });
  await page.evaluateOnNewDocument(() => {
    window.longest = 0;
    new PerformanceObserver(list => { for (const e of list.getEntries()) window.longest = Math.max(window.longest, e.duration); }).observe({ type: "longtask", buffered: true });
  });
  await page.goto(address);
  await page.waitForFunction(() => document.querySelector("#text-of-lines").children.length > 1000 && document.querySelectorAll(".process").length >= 50);
  await page.evaluate(() => { window.longest = 0; }); // what loads the page is not what is measured
  console.log("following");
  await new Promise(done => process.stdin.resume().on("end", done));
  const seen = await page.evaluate(() => ({ longest: window.longest, lines: document.querySelector("#text-of-lines").children.length }));
  await browser.close();
  console.log(JSON.stringify(seen));
})().catch(e => { console.error(e); process.exit(1); });
