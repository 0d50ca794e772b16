// bad.cjs shows what nobody planned for in headless Chromium, and prints what it saw as JSON:
// node bad.cjs MODULES CHROMIUM ADDRESS SCREENSHOTS GUARDIAN SERVER SESSION NAME
// It kills the pids GUARDIAN and SERVER of one session, and ends SESSION, another one. NAME is the widest process.
const [modules, chromium, address, screenshots, guardian, server, session, wide] = process.argv.slice(2);
const puppeteer = require(modules + "/puppeteer-core");

let page;
(async () => {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ["--no-sandbox"], protocolTimeout: 170_000, timeout: 170_000 });
  page = await browser.newPage();
  page.setDefaultTimeout(30_000);
  await page.setViewport({ width: 1400, height: 900 });
  const seen = { wrong: [], elsewhere: [], untrue: [], wide: [] };
  page.on("pageerror", e => seen.wrong.push(e.message));
  page.on("console", m => { if (m.type() === "error") seen.wrong.push(m.text()); });
  page.on("dialog", d => { seen.wrong.push("dialog " + d.message()); d.dismiss(); });
  page.on("request", r => { if (new URL(r.url()).host !== new URL(address).host) seen.elsewhere.push(r.url()); });
  const text = selector => page.$eval(selector, e => e.innerText);
  const until = (selector, words) => page.waitForFunction((s, w) => [...document.querySelectorAll(s)].some(e => e.textContent.includes(w)), {}, selector, words);
  const card = name => page.evaluate(n => [...document.querySelectorAll(".process")].find(e => e.querySelector(".name").textContent === n)?.innerText, name);
  const choose = async name => { await page.evaluate(n => [...document.querySelectorAll(".name")].find(e => e.textContent === n).click(), name); await until("#about", name); };
  const look = async what => { // each view, narrow and wide
    const all = await page.evaluate(() => document.body.innerText + document.title + [...document.querySelectorAll("[title], [aria-label]")].map(e => e.getAttribute("title") + e.ariaLabel).join("\n"));
    for (const m of all.matchAll(/.*(\bNaN\b|undefined|Invalid Date|\[object|[\x1b\u202a-\u202e\u2066-\u2069]).*/g)) seen.untrue.push(what + ": " + m[0].slice(0, 200));
    for (const width of [380, 1400]) {
      await page.setViewport({ width, height: 900 });
      const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (over > 0) seen.wide.push(what + ", at " + width + ": by " + over);
      await page.screenshot({ path: `${screenshots}/bad-${what}-${width}.png` });
    }
  };

  // Hostile output, a line of 1 MB, the widest name, a directory of markup.
  await page.goto(address);
  await until("#lines", "the wide one");
  await look("log");
  seen.colours = [...new Set(await page.$$eval(".process .who:not(:empty)", all => all.map(e => e.className)))];
  await choose("hostile");
  await until("#lines", "ValueError");
  await look("hostile");
  await page.click("#tab-errors");
  await until("#errors", "ValueError");
  await look("errors");
  await page.click("#tab-process");
  await until("#process", "svg onload");
  await look("process");
  await choose(wide);
  await page.click("#tab-log");
  await until("#lines", "the wide one");
  await look("wide");
  seen.scripts = await page.evaluate(() => document.scripts.length + document.images.length);
  await page.keyboard.press("Escape");

  // Sessions end while their cards are shown.
  await choose("orphan");
  for (const pid of [guardian, server]) process.kill(+pid, "SIGSTOP"); // else one cleans up after the other
  for (const pid of [server, guardian]) process.kill(+pid, "SIGKILL");
  process.kill(+session, "SIGTERM");
  await until("#processes", "nobody has owned it for");
  await page.waitForFunction(() => [...document.querySelectorAll(".process")].some(e => e.textContent.includes("follows") && !e.textContent.includes("running")));
  seen.orphan = await card("orphan");
  seen.follows = await card("follows");
  seen.counts = await text("#counts");
  await page.click("#tab-process");
  await until("#process", "Processes of its tree");
  await look("orphan");
  await page.keyboard.press("Escape");

  // 200 processes in 12 projects.
  await page.click("#everything");
  await page.waitForFunction(() => document.querySelectorAll(".process").length >= 200);
  seen.cards = await page.$$eval(".process", all => all.length);
  await look("projects");
  await page.click("#everything");
  await page.waitForFunction(() => document.querySelectorAll(".process").length < 20);

  // A clock that jumps ahead and back.
  for (const hours of [5, -5]) {
    await page.evaluate(ms => { const now = Date.now.bind(Date); window.realNow ??= now; Date.now = () => window.realNow() + ms; }, hours * 3600e3);
    await page.evaluate(() => { document.querySelector("#text").value = ""; });
    await choose(wide);
    await page.click("#tab-process");
    await until("#process", "Runs");
    await new Promise(done => setTimeout(done, 4000)); // a round of all that the page reads
    await look("clock" + hours);
    await page.click("#tab-log");
    await page.keyboard.press("Escape");
  }
  await page.reload();

  // A time, a pattern and an address that mean nothing.
  await until("#lines", "the wide one");
  await page.type("#at", "soon");
  await page.keyboard.press("Enter");
  await until("#status", "no such time");
  seen.time = await text("#status");
  await page.click("#regexp");
  await page.type("#text", "(");
  await page.keyboard.press("Enter");
  await page.waitForSelector("#status.bad");
  await until("#status", "(");
  seen.search = await text("#status");
  await page.goto("about:blank");
  await page.goto(address + "&tab=none&name=%00%E2%80%AE&since=never&until=%3Cb%3E&hidden=,,&run=-x&level=loud&query=(&regexp=1&all=1");
  await page.waitForSelector("#status.bad");
  await page.waitForSelector(".process");
  await page.goto("about:blank");
  await page.goto(address);
  await until("#lines", "the wide one");
  await browser.close();
  console.log(JSON.stringify(seen));
})().catch(async e => { console.error(e, await page?.evaluate(() => document.body.innerText.slice(0, 2000))); process.exit(1); });
