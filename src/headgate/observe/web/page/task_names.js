// @ts-check

/**
 * What people call a task: the API names it by numbers, "3.1" for subtask 1 of vertex 3.
 *
 * @param {import("./api_types.js").Job | null} job
 * @param {string} task
 */
export function nameTask(job, task) {
  const [vertex, subtask] = task.split(".");
  const name = job?.vertices.find(({ id }) => id === vertex)?.name;
  return name === undefined ? task : `${name} [${subtask}]`;
}
