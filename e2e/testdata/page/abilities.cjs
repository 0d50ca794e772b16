// abilities.cjs uses each ability of the page once, in headless Chromium, and prints what it saw
// as JSON: node abilities.cjs MODULES CHROMIUM ADDRESS SCREENSHOTS
const [modules, chromium, address, screenshots] = process.argv.slice(2);
const puppeteer = require(modules + "/puppeteer-core");
const axe = require("fs").readFileSync(modules + "/axe-core/axe.min.js", "utf8");

(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox"], protocolTimeout: 170_000, timeout: 170_000 });
  const page = await browser.newPage();
  page.setDefaultTimeout(60_000);
  await page.setViewport({ width: 1400, height: 900 });
  await browser.defaultBrowserContext().overridePermissions(new URL(address).origin, ["clipboard-read", "clipboard-write", "clipboard-sanitized-write"]);
  await (await page.createCDPSession()).send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: screenshots, eventsEnabled: true });
  const seen = { wrong: [], violations: [] };
  page.on("pageerror", e => seen.wrong.push(e.message));
  page.on("console", m => { if (m.type() === "error") seen.wrong.push(m.text()); });
  const text = selector => page.$eval(selector, e => e.innerText);
  const until = (selector, words) => page.waitForFunction((s, w) => [...document.querySelectorAll(s)].some(e => e.textContent.includes(w)), {}, selector, words);
  const gone = (selector, words) => page.waitForFunction((s, w) => ![...document.querySelectorAll(s)].some(e => e.textContent.includes(w)), {}, selector, words);
  const press = async label => (await page.waitForSelector(`[aria-label="${label}"]:not([disabled])`)).click();
  const button = async (within, words) => (await page.waitForSelector(`${within} ::-p-xpath(.//button[starts-with(normalize-space(.), '${words}')])`)).click();
  const choose = async name => { await button("#processes", name); await until("#about", name); };
  const look = async (name, width, height) => {
    await page.setViewport({ width, height });
    await page.mouse.move(width - 5, height - 5);
    for (const scheme of ["light", "dark"]) {
      await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
      await page.evaluate(axe);
      const r = await page.evaluate(() => axe.run());
      seen.violations.push(...r.violations.filter(v => ["serious", "critical"].includes(v.impact)).map(v => name + ": " + v.id + ": " + v.nodes[0].html));
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (over > 0) seen.violations.push(name + " is " + over + " pixels too wide");
      await page.screenshot({ path: `${screenshots}/${name}-${width}-${scheme}.png` });
    }
  };

  // Cards: what is wrong is first, with its error; the title says so too.
  await page.goto(address);
  await until("#lines", "the last words");
  seen.first = await page.$eval(".process", e => e.innerText);
  seen.title = await page.title();
  await until("#processes", "of errors in 15 min");
  seen.healed = await page.$$eval(".process", all => all.filter(e => e.querySelector(".name").textContent === "varies").map(e => e.querySelector("button.one").className + ": " + e.innerText)[0]);
  seen.counts = await text("#counts");

  // The log: stored levels, a stack and repeats in one, errors one by one, one process hidden.
  await choose("app");
  await until("#lines", "Traceback");
  seen.levels = await page.$$eval(".l:not(.own)", all => all.map(e => [e.className.split(" ")[1], e.textContent.slice(8)].join(": ")));
  await button("#lines", "▸");
  await until("#lines", "in find");
  seen.stack = await text("#lines");
  await page.keyboard.press("E");
  await page.waitForSelector(".hit");
  seen.hit = await text(".hit");
  await page.keyboard.press("E");
  await page.waitForFunction(before => document.querySelector(".hit") && document.querySelector(".hit").innerText !== before, {}, seen.hit);
  seen.hitBefore = await text(".hit");
  await page.keyboard.press("Escape");
  await until("#about", "all processes");
  await until("#lines", "the last words");
  await button("#chips", "bad");
  await gone("#lines", "the last words");
  seen.hidden = page.url();
  await button("#chips", "show all");
  await until("#lines", "the last words");
  await page.click("#wrap");
  seen.wrapped = await page.$eval("#lines", e => e.classList.contains("wrap"));
  await page.click("#wrap");

  // A hundred thousand lines, back to the first, without a jump: a row that stays in sight moves only as far as a wheel scrolls.
  await choose("many");
  await until("#lines", "line 100000");
  seen.jumps = []; seen.rows = 0;
  for (let n = 0; n < 1500; n++) {
    const r = await page.evaluate(async step => {
      const box = document.querySelector("#lines"), rows = () => [...document.querySelectorAll(".l")], top = box.getBoundingClientRect().top;
      const mark = rows().find(e => e.getBoundingClientRect().top >= top), was = mark && mark.getBoundingClientRect().top, from = box.scrollTop;
      box.scrollTop -= step;
      const by = from - box.scrollTop;
      await new Promise(done => setTimeout(done, 30));
      const far = mark && mark.isConnected ? Math.abs(mark.getBoundingClientRect().top - was - by) : 0;
      return { far, rows: rows().length, first: document.querySelector("#rows").textContent.includes("line 000001") && box.scrollTop === 0 };
    }, n % 5 ? 3000 : 300);
    seen.rows = Math.max(seen.rows, r.rows);
    if (r.far > 2) seen.jumps.push(n + ": " + r.far);
    if (r.first) { seen.reached = true; break; }
  }
  await button("#around", "↓");
  await until("#lines", "line 100000");

  // A search, its context in place, a copy and a download.
  await page.type("#text", "line 050000");
  await page.keyboard.press("Enter");
  await until("#status", "1 matching line");
  await button("#lines", "+ context");
  await until("#lines", "line 050003");
  seen.context = await text("#lines");
  await page.click("#copy");
  await until("#status", "copied");
  seen.copied = await page.evaluate(() => navigator.clipboard.readText());
  await page.click("#save");
  await page.click("#text", { clickCount: 3 });
  await page.keyboard.press("Backspace");
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");

  // The line of time: an event leads to its moment; a part of it limits the log.
  await until("#about", "all processes");
  await page.click("#happened summary");
  await until(".event", "bad (run 1)");
  await until("#happened", "Errors: the first of each kind.");
  seen.events = await page.$$eval(".event", all => all.map(e => e.innerText.replace(/\s+/g, " ")));
  await button("#happened", seen.events.find(e => e.includes("bad (run 1)")).slice(0, 8));
  await page.waitForSelector(".hit");
  seen.moment = await text(".hit");
  await page.$$eval(".event", all => all.find(e => /app \(run 1\).*KeyError/.test(e.textContent)).click());
  await until(".hit", "KeyError");
  seen.colours = [...new Set(await page.$$eval(".event .who, .process .who:not(:empty)", all => all.map(e => e.className.match(/c\d|$/)[0])))];
  await page.click("#follow");
  const strip = await (await page.$("#strip")).boundingBox();
  await page.mouse.move(strip.x + strip.width * .3, strip.y + 10);
  await page.mouse.down();
  await page.mouse.move(strip.x + strip.width * .6, strip.y + 10);
  await page.mouse.up();
  await button("#chips", ""); // takes the time away again
  await gone("#chips", "–");

  // One process, by an address that a reload keeps.
  await choose("web");
  await page.click("#tab-process");
  await until("#process", "Processes of its tree");
  await until("#process td", "http.server");
  seen.process = await text("#process");
  await look("process", 1400, 900);
  seen.address = page.url();
  await page.reload();
  await until("#process td", "http.server");
  seen.kept = page.url() === seen.address && await page.$eval("#tab-process", e => e.getAttribute("aria-selected"));
  await page.goBack();
  await until("#about", "web");
  await page.goto("about:blank");
  await page.goto(seen.address);
  await press("Log of run 1");
  await until("#chips", "run 1");
  await until("#lines", "Serving HTTP");
  seen.firstRun = await page.$$eval(".own", all => all.map(e => e.textContent));
  await page.keyboard.press("Escape");
  await page.keyboard.press("Escape");

  // The errors of a process are counted on each of its tabs.
  await page.goto("about:blank");
  await page.goto(address + "&name=app&tab=process");
  await until("#tab-errors", "Errors 2");
  await page.click("#everyone");
  await until("#about", "all processes");
  seen.count = await text("#tab-errors");

  // Errors of one kind in two processes are one; resolved, it is gone.
  await page.click("#tab-errors");
  await until("#errors", "ECONNREFUSED");
  seen.errors = await page.$$eval(".fault", all => all.map(e => e.innerText).filter(t => t.includes("ECONNREFUSED")));
  await look("errors", 2560, 1440);

  // An error leads to its own line, though it is known a moment later.
  seen.marks = [];
  const marked = async () => { await page.waitForSelector(".hit"); seen.marks.push(await page.$$eval(".hit", all => all.map(e => e.innerText).join(" / "))); };
  await page.$$eval(".fault", all => [...all.find(e => e.innerText.includes("disk full")).querySelectorAll("button")].find(b => b.textContent === "Show in the log").click());
  await until("#about", "late");
  await marked();
  await page.keyboard.press("Escape"); // all processes
  await until("#about", "all processes");
  await page.waitForFunction(() => !document.querySelector(".hit"));
  await page.$$eval(".process", all => all.find(e => e.querySelector(".name").textContent === "late").querySelector("button.one").click());
  await until("#about", "late");
  await marked();

  // A time leads to the first line that is not before it.
  seen.time = await page.$eval(".hit time", e => e.textContent);
  await page.click("#everyone");
  await until("#about", "all processes");
  await page.waitForFunction(() => !document.querySelector(".hit"));
  await page.type("#at", seen.time);
  await page.keyboard.press("Enter");
  seen.at = await page.waitForSelector(".hit time").then(e => e.evaluate(e => e.textContent));
  await page.click("#tab-errors");
  await button(".fault:has(details)", "Resolve");
  await until("#status", "resolved");
  seen.open = await page.$$eval(".fault", all => all.length);
  await page.click("#resolved");
  await page.waitForSelector(".fault.resolved");
  await button(".fault.resolved", "Reopen");
  await until("#status", "reopened");
  await page.click("#resolved");
  seen.reopened = await page.$$eval(".fault", all => all.length);
  await page.click("#tab-log");
  await page.click("#happened summary");
  await until(".event", "was reopened by the person on the page");
  seen.marked = await page.$$eval(".event .act", all => all.map(e => e.textContent).filter(t => t.includes(": error ")));
  await page.setViewport({ width: 380, height: 800 });
  seen.logTop = await page.$eval("#lines", e => e.getBoundingClientRect().top);
  await page.click("#happened summary");
  await page.setViewport({ width: 1400, height: 900 });

  // A group is stopped and started, and a process that has ended.
  await page.click("#tab-groups");
  await press("Stop group stack");
  await until("#groups h2", "down");
  await press("Start group stack");
  await until("#groups h2", "up");
  seen.groups = await text("#groups");
  await press("Start later");
  await page.waitForFunction(() => [...document.querySelectorAll(".process")].some(e => e.textContent.includes("later") && e.textContent.includes("running")));
  await press("Stop later");
  await page.waitForFunction(() => [...document.querySelectorAll(".process")].some(e => e.textContent.includes("later") && e.textContent.includes("stopped")));

  await page.click("#tab-log");
  await look("log", 380, 800);
  await look("log", 2560, 1440);
  await look("log", 1400, 900);

  // A notice goes by itself; the keys stay until they are closed.
  await until("#status", "connected");
  const keys = { show: () => until("#status", "next error"), gone: () => until("#status", "connected") };
  for (const close of [() => page.keyboard.press("?"), () => page.click("#help"), () => page.keyboard.press("Escape")]) {
    await page.click("#help");
    await keys.show();
    await close();
    await keys.gone();
  }
  await page.keyboard.press("j");
  await page.waitForFunction(() => document.querySelector("#about").textContent !== "all processes");
  await browser.close();
  console.log(JSON.stringify(seen));
})().catch(e => { console.error(e); process.exit(1); });
