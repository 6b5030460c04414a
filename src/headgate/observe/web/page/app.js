// @ts-check
/** Shows what the address asks for: the list of jobs, a job, or the form for the token. */
import { Api } from "./api.js";
import { showConnection } from "./banner.js";
import { Connection } from "./connection.js";
import { crumb } from "./crumbs.js";
import { h, replace } from "./dom.js";
import { parse, takeToken } from "./router.js";
import { JobView } from "./views/job.js";
import { showJobs } from "./views/jobs.js";
import { showTokenForm } from "./views/token.js";

export class App {
  /** @param {HTMLElement} main */
  constructor(main) {
    this.main = main;
    this.api = new Api();
    this.connection = new Connection(this.api, () => this.#askToken());
    this.view = new AbortController();
    /** @type {JobView | null} */
    this.job = null;
    /** @type {import("./api_types.js").Config | undefined} */
    this.config = undefined;
  }

  async start() {
    const token = takeToken();
    if (token) this.api.useToken(token);
    showConnection(this.connection);
    window.addEventListener("hashchange", () => this.#route());
    const never = new AbortController().signal;
    this.config = await this.connection.persist(
      never,
      () => this.api.get("config"),
      (sentence) => replace(this.main, h("p", { class: "notice bad" }, sentence)),
    );
    if (this.config?.["needs-token"] && !this.api.token) this.#askToken();
    else if (this.config) this.#route();
  }

  #route() {
    const token = takeToken();
    if (token) this.api.useToken(token);
    const route = parse(location.hash);
    if (route.place === "job" && this.job?.id === route.job) {
      this.job.route(route);
      return;
    }
    const context = this.#leave();
    if (route.place === "job") {
      this.job = new JobView(context, this.main, route);
    } else {
      showJobs(context, this.main, route.place === "start");
    }
  }

  /** Ends what is shown; the context is for what comes. */
  #leave() {
    this.view.abort();
    this.view = new AbortController();
    this.job = null;
    this.connection.turned();
    this.main.replaceChildren();
    crumb();
    const { api, connection } = this;
    const config = /** @type {import("./api_types.js").Config} */ (this.config);
    return { api, connection, config, signal: this.view.signal };
  }

  #askToken() {
    const context = this.#leave();
    showTokenForm(context, this.main, () => this.#route());
  }
}
