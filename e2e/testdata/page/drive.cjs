// drive.cjs uses the page as a person would, in headless Chromium, and prints what it saw
// as JSON: node drive.cjs MODULES CHROMIUM ADDRESS SCREENSHOTS
const [modules, chromium, address, screenshots] = process.argv.slice(2);
const puppeteer = require(modules + "/puppeteer-core");
const axe = require("fs").readFileSync(modules + "/axe-core/axe.min.js", "utf8");

(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox"], protocolTimeout: 170_000, timeout: 170_000 });
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  const seen = { wrong: [], elsewhere: [] };
  page.on("pageerror", e => seen.wrong.push(e.message));
  page.on("console", m => { if (m.type() === "error") seen.wrong.push(m.text()); });
  page.on("dialog", d => { seen.wrong.push("dialog " + d.message()); d.dismiss(); });
  page.on("request", r => { if (new URL(r.url()).host !== new URL(address).host) seen.elsewhere.push(r.url()); });

  const text = selector => page.$eval(selector, e => e.textContent);
  const until = (selector, words) => page.waitForFunction((s, w) => document.querySelector(s).textContent.includes(w), {}, selector, words);
  const serious = async () => {
    await page.evaluate(axe);
    const r = await page.evaluate(() => axe.run());
    return r.violations.filter(v => ["serious", "critical"].includes(v.impact)).map(v => v.id + ": " + v.nodes[0].html);
  };
  seen.violations = [];
  const look = async (name, width, scheme) => {
    await page.setViewport({ width, height: 900 });
    await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
    seen.violations.push(...await serious());
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    if (over > 0) seen.violations.push(name + " is " + over + " pixels too wide");
    await page.screenshot({ path: screenshots + "/" + name + ".png" });
  };

  await page.goto(address);
  await until("#processes", "web");
  await until("#processes", "bad");
  await until("#lines", "<script>");
  seen.log = await text("#lines");
  seen.scripts = await page.evaluate(() => document.scripts.length + document.images.length);
  await look("wide-light", 1600, "light");
  await look("narrow-dark", 360, "dark");
  await page.setViewport({ width: 1600, height: 900 });

  await page.type("#text", "needle 7");
  await page.keyboard.press("Enter");
  await until("#status", "match");
  await page.waitForSelector("mark"); // the lines are drawn a frame later
  seen.found = await text("#lines");
  seen.marked = await page.$$eval("mark", all => all.map(e => e.textContent));
  await page.click("#text", { clickCount: 3 });
  await page.keyboard.press("Backspace");

  const cards = await page.$$(".name");
  for (const c of cards) if (await c.evaluate(e => e.textContent) === "web") await c.click();
  await page.waitForFunction(() => { const t = document.querySelector("#lines").textContent; return t.includes("Serving HTTP") && !t.includes("needle"); });

  await page.focus("#tab-log"); // by keyboard only
  await page.keyboard.press("ArrowRight");
  seen.focused = await page.evaluate(() => document.activeElement.id);
  for (const c of await page.$$(".name")) if (await c.evaluate(e => e.textContent) === "web") await c.click(); // all processes again
  await until("#errors", "ValueError");
  const failed = ".fault ::-p-xpath(.//details[contains(., 'ValueError')])"; // another stream's errors may be newer
  await (await page.$(failed + " summary")).focus();
  await page.keyboard.press("Enter");
  seen.unfolded = await page.$eval(failed, e => e.open && e.innerText);
  await look("errors", 1600, "dark");
  await page.click("#tab-groups");
  await until("#groups", "stack");
  seen.groups = await page.$$eval("#groups li", all => all.map(e => e.innerText.replace(/\s+/g, " ")).join("\n"));
  await look("groups", 1600, "light");
  await page.click('[aria-label="Restart web"]');
  await page.waitForFunction(() => [...document.querySelectorAll(".process")].some(e => e.textContent.includes("web") && e.textContent.includes("run 2") && e.textContent.includes("running")));
  await (await page.waitForSelector('[aria-label="Stop web"]:not([disabled])')).click();
  await page.waitForFunction(() => [...document.querySelectorAll(".process")].some(e => e.textContent.includes("web") && e.textContent.includes("stopped")));

  // All projects: the other one has the same names.
  await page.click("#everything");
  const other = await page.waitForSelector(".project:nth-of-type(n+2) button");
  await other.click();
  seen.other = await text("#about");
  await until("#groups", "pair");
  seen.otherGroups = await page.$$eval("#groups li", all => all.map(e => e.innerText.replace(/\s+/g, " ")).join("\n"));
  await page.click("#tab-errors");
  await until("#errors", "KeyError");
  seen.otherErrors = await text("#errors");
  await page.click("#tab-log");
  await until("#lines", "other says");
  seen.otherLog = await text("#lines");
  await look("all-projects", 1600, "light");
  const its = await page.waitForSelector('.project:nth-of-type(n+2) ~ .process:has(a)');
  await (await its.$(".name")).click();
  await until("#about", "web of ");
  await page.waitForFunction(() => { const t = document.querySelector("#lines").textContent; return t.includes("other says") && !t.includes("KeyError"); });
  seen.otherLinks = await its.$$eval("a", all => all.map(e => e.href));
  await (await its.$('[aria-label^="Stop web"]')).click();
  await page.waitForFunction(e => e.textContent.includes("stopped"), {}, its);
  await page.click("#everything");
  await page.waitForFunction(() => !document.querySelector(".project") && document.querySelector("#about").textContent === "all processes");
  await browser.close();
  console.log(JSON.stringify(seen));
})().catch(e => { console.error(e); process.exit(1); });
