// Opens the tab of tokens first, gives its findings room, and shows in the start form what the test will run.
(() => {
  const TAB = "tokens";
  const address = new URL(location.href);
  if (!address.searchParams.has("tab")) {
    address.searchParams.set("tab", TAB);
    history.replaceState(null, "", address);
  }

  const style = document.createElement("style");
  style.textContent = `
    .MuiFormControl-root:has(:is([name=userCount], [name=spawnRate], [name=runTime]):disabled) { display: none; }
    .enginebench-tokens :is(th, td) { padding: 6px 8px; }
    .enginebench-tokens td:not(:nth-child(4)) { white-space: nowrap; } /* the fourth: whether the SLO is met, in words */
    .enginebench-tokens td:last-child { min-width: 17em; white-space: normal; font-size: 12px; }`;
  document.head.append(style);

  function mark() {
    const place = document.querySelector(".MuiTabs-root")?.closest(".MuiContainer-root"); // there once a test has begun
    place?.classList.toggle("enginebench-tokens", new URL(location.href).searchParams.get("tab") === TAB);
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

  addEventListener("click", () => setTimeout(mark));
  setInterval(() => { // Locust's page has no event for its own changes
    mark();
    describe().catch(() => { asked = null; });
  }, 500);
})();
