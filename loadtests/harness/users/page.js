// Opens the tab of tokens first, gives its findings room, and draws TTFT and output over time below it and below Locust's
// own charts.
(() => {
  const TABS = ["tokens", "charts"], EVERY = 2000, WIDTH = 1100, HEIGHT = 260, LEFT = 64, RIGHT = 16, TOP = 34, BOTTOM = 26;
  const address = new URL(location.href);
  if (!address.searchParams.has("tab")) {
    address.searchParams.set("tab", TABS[0]);
    history.replaceState(null, "", address);
  }

  const seconds = (value) => (value >= 1 ? `${+value.toPrecision(3)} s` : `${+(value * 1000).toPrecision(3)} ms`);
  const rate = (value) => `${(+value.toPrecision(3)).toLocaleString("en")}`;
  const charts = [
    { title: "TTFT of the last 10 s", lines: [[1, "p50", "#ff9f00"], [2, "p99", "#9966cc"]], write: seconds, limited: true },
    { title: "Output tokens per second, over the last 10 s", lines: [[3, "tokens/s", "#00a04a"]], write: rate },
  ];

  function nice(top) {
    const step = 10 ** Math.floor(Math.log10(top / 4)), factor = [1, 2, 2.5, 5, 10].find((f) => f * step * 4 >= top * 0.999);
    return factor * step;
  }

  function draw(chart, { points, stages, limit }) {
    const first = points[0][0], last = Math.max(points.at(-1)[0], first + 10);
    const values = points.flatMap((point) => chart.lines.map(([at]) => point[at])).filter((value) => value !== null);
    const bound = chart.limited && limit !== null ? limit : 0;
    const step = nice(Math.max(...values, bound, 1e-6) * 1.05), top = Math.ceil(Math.max(...values, bound) * 1.02 / step) * step || 1;
    const x = (t) => LEFT + ((t - first) / (last - first)) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / top) * (HEIGHT - TOP - BOTTOM);
    const text = (tx, ty, body, more = "") => `<text x="${tx}" y="${ty}" fill="currentColor" ${more}>${body}</text>`;
    const parts = [text(LEFT, 16, chart.title, 'font-size="15" font-weight="600"')];
    for (let value = 0; value <= top * 1.001; value += step) {
      parts.push(`<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(value)}" y2="${y(value)}" stroke="currentColor" opacity=".15"/>`);
      parts.push(text(LEFT - 6, y(value) + 4, value ? chart.write(value) : "0", 'text-anchor="end"'));
    }
    let free = LEFT;
    for (const [at, label] of stages) {
      if (at < first && stages.some(([other]) => other > at && other <= first)) continue;
      const place = Math.max(x(at), LEFT);
      parts.push(`<line x1="${place}" x2="${place}" y1="${TOP}" y2="${HEIGHT - BOTTOM}" stroke="currentColor" opacity=".35" stroke-dasharray="2 3"/>`);
      if (place >= free) {
        const name = document.createElement("i");
        name.textContent = label;
        parts.push(text(place + 4, HEIGHT - 8, name.innerHTML));
        free = place + 8 * label.length + 8;
      }
    }
    if (bound) {
      parts.push(`<line x1="${LEFT}" x2="${WIDTH - RIGHT}" y1="${y(bound)}" y2="${y(bound)}" stroke="#d33" stroke-dasharray="6 4"/>`);
      parts.push(text(WIDTH - RIGHT, y(bound) - 5, `objective ${chart.write(bound)}`, 'text-anchor="end"'));
    }
    chart.lines.forEach(([at, name, colour], index) => {
      let path = "", pen = false;
      for (const point of points) {
        if (point[at] === null) { pen = false; continue; }
        path += `${pen ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(point[at]).toFixed(1)}`;
        pen = true;
      }
      parts.push(`<path d="${path}" fill="none" stroke="${colour}" stroke-width="2"/>`);
      const now = points.findLast((point) => point[at] !== null);
      const place = WIDTH - RIGHT - 170 * (chart.lines.length - 1 - index);
      parts.push(text(place, 16, `<tspan fill="${colour}">●</tspan> ${name} ${now ? chart.write(now[at]) : ""}`, 'text-anchor="end"'));
    });
    return `<svg viewBox="0 0 ${WIDTH} ${HEIGHT}" width="100%" font-size="12" role="img" aria-label="${chart.title}">${parts.join("")}</svg>`;
  }

  const style = document.createElement("style");
  style.textContent = `
    .MuiFormControl-root:has(:is([name=userCount], [name=spawnRate], [name=runTime]):disabled) { display: none; }
    .enginebench-tokens :is(th, td) { padding: 6px 8px; }
    .enginebench-tokens td:not(:nth-child(4)) { white-space: nowrap; } /* the fourth: whether the SLO is met, in words */
    .enginebench-tokens td:last-child { min-width: 17em; white-space: normal; font-size: 12px; }`;
  document.head.append(style);

  const box = document.createElement("div");
  box.id = "enginebench-charts";
  box.style = "margin: 24px 0; font-family: Roboto, sans-serif";

  async function refresh() {
    const place = document.querySelector(".MuiTabs-root")?.closest(".MuiContainer-root"); // there once a test has begun
    const tab = new URL(location.href).searchParams.get("tab");
    place?.classList.toggle("enginebench-tokens", tab === TABS[0]);
    box.hidden = !place || !TABS.includes(tab);
    if (box.hidden) return;
    if (place.lastElementChild !== box) place.append(box); // another tab's panel was put behind it
    try {
      const series = await (await fetch("./enginebench/series")).json();
      box.style.color = getComputedStyle(place).color;
      box.innerHTML = series.points.length < 2 ? "" : charts.map((chart) => draw(chart, series)).join("");
    } catch { /* Locust has ended: what was drawn stays */ }
  }

  const plan = document.createElement("p");
  let asked = null;

  async function describe() {
    const start = document.querySelector("input[name=userCount]")?.form?.querySelector("button[type=submit]");
    if (!start) { asked = null; return; }
    if (plan.nextSibling !== start) start.before(plan);
    const query = new URLSearchParams(new FormData(start.form)).toString();
    if (query === asked) return;
    asked = query;
    plan.textContent = await (await fetch(`./enginebench/plan?${query}`)).text();
  }

  addEventListener("click", () => setTimeout(refresh));
  setInterval(refresh, EVERY);
  setInterval(() => describe().catch(() => { asked = null; }), 500); // Locust's form tells nobody that it is there
  refresh();
})();
