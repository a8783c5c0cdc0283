"use strict";
// The job's page: asks the agent for its board once a second and shows it. Every text of the board is set as text, never as
// markup: host names, causes and log lines are whatever a worker has written.
(() => {
  const $ = (id) => document.getElementById(id);
  const PARTS = [["detect", "detected"], ["stop", "stopped"], ["form", "world formed"], ["start", "started"],
    ["import", "imports"], ["first", "first step"]];
  const TABLE_RANKS = 64;
  let chosen = -1, picked = false, heard = 0, slow = -1, board = null;

  const el = (tag, name, text) => {
    const e = document.createElement(tag);
    if (name) e.className = name;
    if (text !== undefined) e.textContent = text;
    return e;
  };
  const svg = (tag, attributes) => {
    const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    return e;
  };
  const set = (id, text) => { $(id).textContent = text; };
  const show = (id, is) => { $(id).hidden = !is; };
  const has = (value) => typeof value === "number" && Number.isFinite(value);

  // --- numbers for people ---
  const short = (x) => {
    if (!has(x)) return "–";
    const a = Math.abs(x);
    if (a >= 1e9) return (x / 1e9).toFixed(2) + "\u00a0G";
    if (a >= 1e6) return (x / 1e6).toFixed(2) + "\u00a0M";
    if (a >= 1e4) return (x / 1e3).toFixed(1) + "\u00a0k";
    if (a >= 100 || Number.isInteger(x)) return Math.round(x).toLocaleString("en-US");
    return a >= 10 ? x.toFixed(1) : a >= 0.01 || x === 0 ? x.toFixed(a < 1 ? 4 : 3) : x.toExponential(1);
  };
  const bytes = (x) => {
    if (!has(x)) return "–";
    for (const [limit, unit] of [[2 ** 40, "TB"], [2 ** 30, "GB"], [2 ** 20, "MB"], [2 ** 10, "KB"]])
      if (x >= limit) return (x / limit).toFixed(x / limit < 10 ? 2 : 0) + "\u00a0" + unit;
    return x + " B";
  };
  const span = (ms) => {
    if (!has(ms) || ms < 0) return "–";
    if (ms < 1000) return Math.round(ms) + "\u00a0ms";
    if (ms < 60000) return (ms / 1000).toFixed(ms < 10000 ? 1 : 0) + "\u00a0s";
    const s = Math.floor(ms / 1000), two = (n) => String(n).padStart(2, "0");
    return s < 3600 ? Math.floor(s / 60) + ":" + two(s % 60) + "\u00a0min"
      : Math.floor(s / 3600) + ":" + two(Math.floor(s / 60) % 60) + "\u00a0h";
  };
  const count = (n, one, many) => n + " " + (n === 1 ? one : many || one + "s");

  // --- what the board says ---
  const all_ranks = (b) => b.nodes.flatMap((node) => node.ranks.map((rank) => ({ node, rank })))
    .sort((x, y) => x.rank.rank - y.rank.rank);
  const figure = (rank, name) => rank.figures && rank.figures[name];
  const kind = (state) => state === "running" ? "good" : state === "failed" ? "bad" : state === "exited" ? "" : "warn";
  const recovery = (round) => PARTS.reduce((sum, [key]) => sum + (round[key + "_ms"] || 0), 0);
  const ending = (rank) => rank.signal ? "signal " + rank.signal : "exit " + rank.exit_code;

  const job_state = (b) => {
    if (b.over) return b.exit_code ? ["failed, exit code " + b.exit_code, "bad"] : ["succeeded", "good"];
    if (b.state === "RUNNING") return ["running", "good"];
    return [b.state.toLowerCase().replace("_", " "), "warn"];
  };

  const header = (b) => {
    const [text, look] = job_state(b), round = b.rounds[b.rounds.length - 1];
    set("job", b.job || "job");
    document.title = (b.over ? (b.exit_code ? "✗ " : "✓ ") : "") + (b.job || "job") + " · muster";
    $("state").className = "pill " + look;
    set("state", text);
    const words = [b.program];
    if (round) words.push(count(round.world_size, "rank") + " on " + count(round.nodes, "node"), "round " + round.round);
    words.push("up " + span((b.over ? b.changed_at : b.now) - b.started_at));
    if (!b.serves) words.push("this node alone; the job's page is on the node that serves it" + (b.server ? ", " + b.server : ""));
    set("line", words.join(" · "));
    show("waiting", !!b.waiting);
    set("waiting", "Waiting: " + b.waiting);
    set("version", "muster " + b.version);
  };

  const last_event = (b) => {
    const n = b.rounds.length - 1, round = b.rounds[n], before = b.rounds[n - 1];
    let what = "", then = "", look = "";
    if (b.over && b.exit_code) {
      what = b.verdict || "The job failed with exit code " + b.exit_code; look = "bad";
      then = "The job is over, exit code " + b.exit_code + ".";
    } else if (round && round.stop_at && !b.over) {
      what = round.cause || "The round is stopped"; look = round.planned ? "" : "bad";
      then = "All workers stop, then the next round starts.";
    } else if (before && before.cause && !before.planned) {
      const first = has(round.first_ms);
      what = before.cause; look = first ? "good" : "";
      then = first ? "It came back: round " + round.round + " made its first step " + span(recovery(round)) + " after the failure (step " +
        short(round.first_step) + ", restart " + round.restarts + " of " + b.max_restarts + ")."
        : "Round " + round.round + " has started (restart " + round.restarts + " of " + b.max_restarts + "); no step yet.";
    }
    show("last", !!what);
    $("last").className = "banner " + look;
    set("last-what", what);
    set("last-then", then);
  };

  const tile = (name, value, more) => {
    const t = el("div", "tile");
    const figures = el("div");
    figures.append(el("strong", "", value));
    if (more) figures.append(el("small", "", more));
    t.append(el("span", "", name), figures);
    return t;
  };
  const tiles = (b, ranks) => {
    const list = [], first = ranks.find(({ rank }) => rank.figures), f = first ? first.rank.figures : {};
    const t = b.total, running = t ? t.running : ranks.filter(({ rank }) => rank.state === "running").length;
    const steps = (t ? [t.low_step, t.high_step] : ranks.map(({ rank }) => rank.step)).filter(has);
    const round = b.rounds[b.rounds.length - 1];
    slow = has(f.slow_rank) ? f.slow_rank : -1;
    if (steps.length) {
      const low = Math.min(...steps), high = Math.max(...steps);
      list.push(tile("step", short(high), (has(f.total_steps) ? "of " + short(f.total_steps) : "") + (low < high ? " slowest " + short(low) : "")));
    }
    if (has(f.loss)) list.push(tile("loss", short(f.loss)));
    if (has(f.tokens_per_s)) list.push(tile("tokens/s", short(f.tokens_per_s), has(f.mfu) && f.mfu > 0 ? "MFU " + (100 * f.mfu).toFixed(1) + "%" : ""));
    const busy = ranks.map(({ rank }) => figure(rank, "gpu_utilization")).filter(has), percent = (x) => Math.round(100 * x) + "%";
    if (busy.length) list.push(tile("GPU", percent(busy.reduce((a, x) => a + x) / busy.length), "lowest " + percent(Math.min(...busy))));
    if (has(f.gpu_memory)) list.push(tile("GPU memory", bytes(f.gpu_memory), "of " + bytes(f.gpu_memory_total)));
    if (has(f.step_ms)) list.push(tile("step time", span(f.step_ms)));
    if (has(f.exposed_ms)) list.push(tile("exposed comm", span(f.exposed_ms), f.step_ms > 0 ? Math.round(100 * f.exposed_ms / f.step_ms) + "%" : ""));
    if (f.slow_rank >= 0) list.push(tile("waited for", "rank " + f.slow_rank, span(f.slow_ms) + " a step"));
    list.push(tile("running", String(running), "of " + (round ? round.world_size : ranks.length)));
    list.push(tile("restarts", String(round ? round.restarts : 0), "of " + b.max_restarts));
    if (has(b.goodput)) list.push(tile("goodput", (100 * b.goodput).toFixed(1) + "%"));
    for (const [name, value] of Object.entries(f))
      if (!["loss", "tokens_per_s", "mfu", "step_ms", "exposed_ms", "slow_rank", "slow_ms", "grad_norm", "learning_rate", "comm_ms", "data_wait_ms", "total_steps", "gpu_utilization", "gpu_memory", "gpu_memory_total"].includes(name))
        list.push(tile(name, short(value)));
    $("tiles").replaceChildren(...list);
  };

  // --- curves, over time ---
  const curve = (b, name, index, form) => {
    const points = b.points.filter((p) => has(p[index]));
    if (points.length < 2) return null;
    const from = points[0][0], to = points[points.length - 1][0], values = points.map((p) => p[index]);
    let low = Math.min(...values), high = Math.max(...values);
    if (low === high) { low -= Math.abs(low) / 10 || 1; high += Math.abs(high) / 10 || 1; }
    const x = (t) => 1000 * (t - from) / (to - from || 1), y = (v) => 140 - 130 * (v - low) / (high - low);
    const box = el("div", "curve"), title = el("h2", "", name), plot = el("div", "plot");
    title.append(el("span", "dim", form(values[values.length - 1])));
    const s = svg("svg", { viewBox: "0 0 1000 150", preserveAspectRatio: "none", role: "img", "aria-label": name });
    for (const v of [10, 75, 140]) s.append(svg("line", { class: "grid", x1: 0, x2: 1000, y1: v, y2: v }));
    for (const r of b.rounds.slice(1))
      if (r.formed_at > from && r.formed_at < to) s.append(svg("line", { class: "restart", x1: x(r.formed_at), x2: x(r.formed_at), y1: 2, y2: 148 }));
    let path = "", at = null;
    for (const p of points) { // a new round is a new line
      const r = b.rounds.filter((one) => one.formed_at <= p[0]).length;
      path += (r === at ? "L" : "M") + x(p[0]).toFixed(1) + " " + y(p[index]).toFixed(1);
      at = r;
    }
    s.append(svg("path", { class: "curve-line", d: path }));
    plot.append(s, el("span", "y top", form(high)), el("span", "y bottom", form(low)));
    const axis = el("div", "plot-x");
    axis.append(el("span", "", span(from - b.started_at) + ", step " + short(points[0][1])),
      el("span", "", span(to - b.started_at) + ", step " + short(points[points.length - 1][1])));
    box.append(title, plot, axis);
    return box;
  };
  const curves = (b) => $("curves").replaceChildren(...[curve(b, "Loss", 2, short), curve(b, "Tokens/s", 3, short),
    curve(b, "Step time", 4, span), curve(b, "Exposed communication", 5, span)].filter(Boolean));

  // --- ranks ---
  const COLUMNS = [
    ["rank", "", (n, r) => r.rank],
    ["node", "host", (n) => n.host],
    ["state", "", null],
    ["step", "n", (n, r) => short(r.step)],
    ["tokens/s", "n wide", (n, r) => short(figure(r, "tokens_per_s"))],
    ["last beat", "n wide", (n, r) => has(r.beat_ms) ? span(r.beat_ms + (n.heard_ms || 0)) + " ago" : "–"],
    ["loss", "n wide", (n, r) => short(figure(r, "loss"))],
    ["step time", "n wide", (n, r) => span(figure(r, "step_ms"))],
    ["exposed", "n wide", (n, r) => span(figure(r, "exposed_ms"))],
    ["memory", "n", (n, r) => bytes(r.memory)],
    ["pid", "n wide", (n, r) => r.pid || "–"],
  ];
  const choose = (rank) => { chosen = rank; picked = true; render(board); lines(); };
  const row = ({ node, rank }) => {
    const tr = el("tr", rank.rank === chosen ? "chosen" : "");
    for (const [name, look, value] of COLUMNS) {
      const td = el("td", look);
      if (name === "state") {
        td.append(el("span", "pill " + kind(rank.state), rank.state === "failed" ? "failed: " + ending(rank) : rank.state));
        if (rank.rank === slow) td.append(" ", el("span", "pill warn", "waited for"));
      } else if (name === "rank") {
        const button = el("button", "", rank.rank);
        button.type = "button";
        td.append(button);
      } else td.textContent = value(node, rank);
      if (name === "node") td.title = node.host;
      tr.append(td);
    }
    tr.addEventListener("click", () => choose(rank.rank));
    return tr;
  };
  const ranks_part = (b, ranks) => {
    const head = el("tr"), table = $("ranks"), focused = document.activeElement && table.contains(document.activeElement);
    for (const [name, look] of COLUMNS) head.append(el("th", look, name));
    const many = ranks.length > TABLE_RANKS;
    const shown = many ? ranks.filter(({ rank }) => rank.state !== "running" || rank.rank === chosen).concat(ranks).slice(0, TABLE_RANKS)
      .filter((one, i, list) => list.findIndex((other) => other.rank === one.rank) === i) : ranks;
    const thead = el("thead"), tbody = el("tbody");
    thead.append(head);
    tbody.append(...shown.map(row));
    table.replaceChildren(thead, tbody);
    if (focused) { const button = table.querySelector("tr.chosen button"); if (button) button.focus(); }
    set("ranks-count", many || b.total ? "(" + shown.length + " of " + (b.total || { ranks: ranks.length }).ranks
      + "; those that do not run come first)" : "");
    show("map", many && !b.blocks);
    if (many && !b.blocks) $("map").replaceChildren(...ranks.map(({ node, rank }) => {
      const cell = el("button", kind(rank.state));
      cell.type = "button";
      cell.title = "rank " + rank.rank + " on " + node.host + ": " + rank.state;
      cell.addEventListener("click", () => choose(rank.rank));
      return cell;
    }));
  };

  // --- nodes ---
  const sum = (values) => values.filter(has).reduce((one, other) => one + other, 0);
  const NODE_COLUMNS = [
    ["node", "host", (n) => n.host],
    ["state", "", null],
    ["ranks", "n", (n) => n.ranks.length],
    ["running", "n", (n) => n.ranks.filter((rank) => rank.state === "running").length],
    ["slowest step", "n", (n) => { const steps = n.ranks.map((rank) => rank.step).filter(has); return steps.length ? short(Math.min(...steps)) : "–"; }],
    ["memory", "n", (n) => bytes(sum(n.ranks.map((rank) => rank.memory)) || undefined)],
    ["last report", "n wide", (n) => has(n.heard_ms) ? span(n.heard_ms) + " ago" : "–"],
  ];
  const node_state = (b, n) => !b.over && n.heard_ms > 3 * (b.sample_ms || 1000) ? ["silent", "bad"]
    : [n.state.toLowerCase().replace("_", " "), n.state === "RUNNING" ? "good" : b.over ? "" : "warn"];
  // Of a job of many nodes: blocks of them first, then those that are notable.
  const BLOCK_COLUMNS = [(k) => "nodes " + k.first + " to " + k.last, null, (k) => k.ranks, (k) => k.running,
    (k) => has(k.low_step) ? short(k.low_step) : "–", (k) => bytes(k.memory), (k) => count(k.nodes, "node")];
  const block_row = (b, k) => {
    const tr = el("tr", "block");
    BLOCK_COLUMNS.forEach((value, i) => {
      const td = el("td", NODE_COLUMNS[i][1], value ? value(k) : undefined);
      if (!value && k.failed) td.append(el("span", "pill bad", count(k.failed, "rank") + " failed"));
      if (!value && k.silent) td.append(el("span", "pill bad", k.silent + " silent"));
      if (!value && !k.failed && !k.silent) {
        const well = k.running + k.exited === k.ranks;
        td.append(el("span", "pill " + (well ? "good" : "warn"), well ? "running" : "starting"));
      }
      tr.append(td);
    });
    return tr;
  };
  const nodes_part = (b) => {
    const head = el("tr"), thead = el("thead"), tbody = el("tbody");
    for (const [name, look] of NODE_COLUMNS) head.append(el("th", look, name));
    thead.append(head);
    tbody.append(...(b.blocks || []).map((k) => block_row(b, k)), ...b.nodes.slice(0, TABLE_RANKS).map((n) => {
      const tr = el("tr");
      for (const [name, look, value] of NODE_COLUMNS) {
        const td = el("td", look, value ? value(n) : undefined), [state, kind] = node_state(b, n);
        if (name === "state") td.append(el("span", "pill " + kind, state));
        if (name === "node") td.title = n.host;
        tr.append(td);
      }
      return tr;
    }));
    show("nodes-part", b.nodes.length > 1);
    $("nodes").replaceChildren(thead, tbody);
  };

  // --- rounds ---
  const parts = (round) => {
    const box = el("div"), bar = el("div", "parts"), numbers = el("div", "numbers"), whole = recovery(round);
    PARTS.forEach(([key, name], i) => {
      const ms = round[key + "_ms"];
      if (!has(ms)) return;
      const piece = el("i", "k" + i);
      piece.style.flexGrow = String(ms / (whole || 1));
      piece.title = name + " " + span(ms);
      bar.append(piece);
      numbers.append(el("span", "k" + i, name + " " + span(ms)));
    });
    box.append(bar, numbers);
    return box;
  };
  const rounds = (b) => {
    const list = b.rounds.map((round, i) => {
      const li = el("li"), head = el("div", "head"), before = b.rounds[i - 1];
      const end = round.stop_at || (b.over ? b.changed_at : b.now);
      head.append(el("b", "", "Round " + round.round),
        el("span", "dim", "after " + span(round.formed_at - b.started_at)),
        el("span", "dim", (round.stop_at ? "ran " : "running for ") + span(end - round.formed_at)));
      if (has(round.first_step)) head.append(el("span", "dim", "steps " + short(round.first_step) + " to " + short(round.last_step)));
      head.append(el("span", "dim", count(round.world_size, "rank") + ", " + count(round.nodes, "node")));
      li.append(head);
      if (before && (has(round.stop_ms) || has(round.first_ms))) li.append(parts(round));
      if (round.cause) li.append(el("p", "cause" + (round.planned ? " planned" : ""), "Ended: " + round.cause));
      return li;
    }).reverse();
    $("rounds").replaceChildren(...(list.length ? list : [el("li", "dim", "The world has not formed yet.")]));
  };

  // --- the serving node ---
  const server = (b) => {
    show("server-part", b.voters.length > 1 || b.changes.length > 0);
    set("server", (b.server || "none") + (b.voters.length > 1 ? "; voters " + b.voters.join(", ") : ""));
    const list = b.changes.map((change) => {
      const li = el("li"), head = el("div", "head");
      head.append(el("b", "", change.server || "none"), el("span", "dim", "after " + span(change.at - b.started_at)));
      li.append(head, el("p", change.server ? "cause planned" : "cause", change.reason));
      return li;
    }).reverse();
    $("changes").replaceChildren(...list);
  };

  const warnings = (b) => {
    const list = b.nodes.flatMap((node) => (node.warnings || []).map((text) => el("li", "", node.host + ": " + text))).slice(0, 40);
    show("warnings-part", list.length > 0);
    $("warnings").replaceChildren(...list);
  };

  const render = (b) => {
    const ranks = all_ranks(b);
    if (!picked) {
      const failed = ranks.find(({ rank }) => rank.state === "failed");
      chosen = failed ? failed.rank.rank : ranks.length ? ranks[0].rank.rank : -1;
    }
    header(b); last_event(b); tiles(b, ranks); curves(b); ranks_part(b, ranks); nodes_part(b); rounds(b); server(b); warnings(b);
  };

  // --- asking ---
  const lines = async () => {
    if (chosen < 0) return;
    try {
      const answer = await fetch("lines.json?rank=" + chosen, { cache: "no-store" });
      const got = await answer.json();
      const pre = $("lines"), end = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 8;
      show("lines-part", true);
      set("lines-of", "rank " + got.rank);
      const text = got.lines || "None known: the rank has written nothing that passes through its agent (a terminal or a redirect may have it).";
      if (pre.textContent !== text) { pre.textContent = text; if (end) pre.scrollTop = pre.scrollHeight; }
    } catch { /* the board's request tells */ }
  };
  const ask = async () => {
    try {
      const answer = await fetch("board.json", { cache: "no-store" });
      if (!answer.ok) throw new Error(await answer.text());
      board = await answer.json();
      heard = performance.now();
      render(board);
      show("trouble", false);
      await lines();
    } catch (error) {
      const over = board && board.over;
      show("trouble", !over);
      set("trouble", heard ? "The agent has not answered for " + span(performance.now() - heard) + ": it has ended, or the network is down. What follows is its last state."
        : "No data: " + error.message);
    }
    set("age", board && board.over ? "the job is over" : heard ? "updated every second" : "");
    setTimeout(ask, board && board.over ? 5000 : 1000);
  };
  ask();
})();
