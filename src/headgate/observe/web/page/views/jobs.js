// @ts-check
/** The list of jobs, those that have ended too. */
import { DataTable } from "../data_table.js";
import { h, replace, setAttribute, setText } from "../dom.js";
import { duration, moment } from "../format.js";
import { href } from "../router.js";
import { fillBadge, makeBadge } from "./badge.js";

/**
 * @typedef {{
 *   jid: string, name: string, state: string, "start-time": number, "end-time": number,
 *   duration: number, tasks: Record<string, number>, why: string,
 * }} JobSummary
 */

/**
 * @param {import("../api_types.js").Context} context
 * @param {HTMLElement} main
 * @param {boolean} goesToOnly whether to open the job at once if there is only one
 */
export function showJobs({ connection, config, signal }, main, goesToOnly) {
  const table = makeTable();
  const problem = h("p", { class: "notice bad", hidden: true });
  let isFirst = true;
  connection.poll("jobs/overview", {
    everyMs: Math.max(1000, config["refresh-interval"]),
    signal,
    onAnswer: ({ jobs }) => {
      if (isFirst && goesToOnly && jobs.length === 1) {
        location.replace(href("jobs", jobs[0].jid));
        return;
      }
      isFirst = false;
      problem.hidden = true;
      table.show(jobs);
    },
    onRefused: (sentence) => {
      setText(problem, sentence);
      problem.hidden = false;
    },
  });
  replace(
    main,
    h("h1", {}, "Jobs"),
    problem,
    table.element,
    h("p", { class: "quiet" }, `Headgate ${config.version}`),
  );
}

/** @returns {DataTable<JobSummary>} */
function makeTable() {
  return new DataTable({
    label: "Jobs",
    keyOf: (job) => job.jid,
    empty: "No job has been started in this program yet.",
    columns: [
      {
        title: "Name",
        sort: (job) => job.name,
        make: () => h("a"),
        fill: (link, job) => {
          setAttribute(link, "href", href("jobs", job.jid));
          setText(link, job.name);
        },
      },
      {
        title: "State",
        sort: (job) => job.state,
        make: makeBadge,
        fill: (badge, job) => fillBadge(badge, job.state),
      },
      {
        title: "Started",
        sort: (job) => job["start-time"],
        text: (job) => moment(job["start-time"]),
      },
      {
        title: "For",
        numeric: true,
        sort: (job) => job.duration,
        text: (job) => duration(job.duration),
      },
      {
        title: "Tasks running",
        numeric: true,
        sort: (job) => job.tasks.running,
        text: (job) => `${job.tasks.running ?? 0} of ${job.tasks.total}`,
      },
      { title: "What limits it", wide: true, text: (job) => job.why || "–" },
      { title: "Id", text: (job) => job.jid },
    ],
  });
}
